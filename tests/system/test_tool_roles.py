"""Every tool at every role, over a socket (spec 04 §5.2, §20 rows 3 and 13)."""

from __future__ import annotations

from typing import Any

from daemon_bench import Instance

from maadd.protocol.roles import Role
from maadd.protocol.tools import TOOLS

ARGUMENTS: dict[str, dict[str, Any]] = {
    "maad_use_project": {"name": "main"},
    "maad_use_projects": {"names": ["main"]},
    "maad_scan": {"path": "."},
    "maad_schema": {"docType": "note"},
    "maad_get": {"docId": "nte-1"},
    "maad_query": {"docType": "note"},
    "maad_search": {"primitive": "entity"},
    "maad_related": {"docId": "nte-1"},
    "maad_relationship_paths": {"startDocId": "nte-1"},
    "maad_aggregate": {"docType": "note", "groupBy": "rank"},
    "maad_join": {"docType": "note", "refs": ["title"]},
    "maad_verify": {"mode": "integrity"},
    "maad_semantic_search": {"query": "x"},
    "maad_create_contract": {"contract": "create-contract-v1", "docType": "note"},
    "maad_create_guarded": {
        "contract": "guarded-create-v1",
        "docType": "note",
        "docId": "nte-new",
        "fields": {"title": "x"},
        "body": "",
        "expectedSchemaDigest": "0" * 64,
        "expectedContentDigest": "0" * 64,
        "allowedHistoryModes": ["audit"],
    },
    "maad_document_receipt": {
        "contract": "document-persistence-v1",
        "docType": "note",
        "docId": "nte-1",
    },
    "maad_history": {"docId": "nte-1"},
    "maad_instructions": {"action": "check"},
    "maad_validate": {"docId": "nte-1"},
    "maad_create": {"docType": "note", "fields": {"title": "x"}},
    "maad_update": {"docId": "nte-1", "fields": {"title": "x"}},
    "maad_bulk_create": {"records": [{"docType": "note", "fields": {"title": "x"}}]},
    "maad_bulk_update": {"updates": [{"docId": "nte-1", "fields": {"title": "x"}}]},
    "maad_delete": {"docId": "nte-1"},
    "maad_bulk_delete": {"docIds": ["nte-1"]},
    "maad_delete_where": {"docType": "note", "filters": {"rank": 1}},
    "maad_repair_where": {"docType": "note", "repairTypes": ["fix_schema_drift"]},
    "maad_backup": {"mode": "list"},
    "maad_issue_token": {"role": "reader", "projects": [{"name": "main"}]},
    "maad_revoke_token": {"id": "tok-000000000000"},
    "maad_rotate_token": {"id": "tok-000000000000"},
    "maad_show_token": {"id": "tok-000000000000"},
}
"""Arguments that every check before the role accepts; those without any are left out."""


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
