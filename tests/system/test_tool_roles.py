"""Every tool at every role, over a socket (spec 04 §5.2, §20 rows 3 and 13)."""

from __future__ import annotations

from typing import Any

from daemon_bench import Instance
from tool_arguments import ARGUMENTS

from maadd.protocol.roles import Role
from maadd.protocol.tools import TOOLS


def test_every_tool_is_gated_by_its_role_and_by_nothing_less(
    unindexed: Instance, start: Any
) -> None:
    daemon = start(unindexed, "--dry-run", MAAD_BOOT_REINDEX="1")
    clients = {}
    for role in Role:
        client = clients[role] = daemon.client(unindexed.token)
        client.ok("maad_use_project", name="main", **{"as": role.text})
    shown = clients[Role.READER].request("tools/list", {})["result"]["tools"]
    listed = {tool["name"] for tool in shown}
    assert listed == {name for name, spec in TOOLS.items() if spec.available}
    for tool in shown:
        spec, hints = TOOLS[tool["name"]], tool["annotations"]
        assert hints.get("readOnlyHint", False) is spec.read_only_hint
        assert hints.get("destructiveHint", True) is spec.destructive_hint
        assert hints.get("idempotentHint", False) is spec.idempotent_hint
        assert tool.get("title") or hints["title"]
        assert tool["inputSchema"]["additionalProperties"] is False
    judged: set[str] = set()
    for name in sorted(listed):
        arguments = ARGUMENTS.get(name, {})
        for role, client in clients.items():
            # `call` checks that `isError` says the same as `ok`.
            envelope = client.call(name, **arguments)
            code = None if envelope["ok"] else envelope["errors"][0]["code"]
            least = TOOLS[name].min_role
            if least is not None and role < least:
                assert code == "INSUFFICIENT_ROLE", (name, role, envelope)
                judged.add(name)
            else:
                assert code not in ("INSUFFICIENT_ROLE", "INVALID_ARGS", "INTERNAL"), (
                    name,
                    role,
                    envelope,
                )
    gated = {name for name in listed if (TOOLS[name].min_role or Role.READER) > Role.READER}
    assert judged == gated
