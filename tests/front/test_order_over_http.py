"""The order of the checks of a call: where several would refuse it, the first one does
(spec 04 §6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from maadd.protocol.roles import Role

OFFICE = {"main": Role.ADMIN, "r": Role.READER}
HELD = {"name": "maad_query", "arguments": {"docType": "note"}}
BIG = "x" * 3000
RECORD = {"docType": "note", "fields": {}}


async def refused(client: Any, code: str, tool: str, reason: str = "", **arguments: Any) -> Any:
    """The details of a refusal with that code and reason."""
    error = await client.error(tool, **arguments)
    assert error["code"] == code, error
    assert not reason or error["details"]["reason"] == reason, error
    return error.get("details")


async def test_the_first_check_that_fails_decides(open_front: Any) -> None:
    limits = {"rl_disable": False, "rl_payload_bytes": 2000, "rl_concurrent": 1}
    async with (
        open_front(OFFICE, **limits, bulk_max_items=3, rl_writes_per_sec=1) as bench,
        bench.wire() as client_of,
    ):
        bearer = bench.issue("admin *").plaintext
        new, one, both = (client_of(bearer) for _ in range(3))
        for client in (new, one, both):
            await client.hello()

        bench.state.draining = True
        # 0 before 1: what no server could do is no matter of when.
        details = await refused(new, "INVALID_ARGS", "maad_gett", docId="x")
        assert details["issues"][0]["suggestion"] == "maad_get"
        details = await refused(new, "INVALID_ARGS", "maad_get", docID="x")
        assert {one["path"] for one in details["issues"]} == {"docID", "docId"}
        # 1 before 2 to 5, also for tools without an engine.
        await refused(new, "SHUTTING_DOWN", "maad_get", docId="x")
        await refused(new, "SHUTTING_DOWN", "maad_projects")
        await refused(new, "SHUTTING_DOWN", "maad_list_tokens")
        bench.state.draining = False

        # 5 before 6, 7 and 9.
        await refused(new, "SESSION_UNBOUND", "maad_get", docId=BIG, project="r")
        await refused(new, "SESSION_UNBOUND", "maad_list_tokens")
        # 6 before 7 and 9.
        await both.data("maad_use_projects", names=["main", "r"])
        await refused(both, "PROJECT_REQUIRED", "maad_delete", docId=BIG)
        await one.data("maad_use_project", name="r")
        await refused(one, "PROJECT_NOT_WHITELISTED", "maad_delete", docId=BIG, project="main")
        # 7 before 9, and before 10.
        await refused(one, "INSUFFICIENT_ROLE", "maad_delete", docId=BIG)
        held = asyncio.create_task(one.post("tools/call", HELD))
        number = one.number + 1
        await bench.until(lambda: bench.pool.in_flight() == 1)
        await refused(one, "INSUFFICIENT_ROLE", "maad_delete", docId="x")
        # 8, the access of strict tools, before 9.
        await refused(one, "INSUFFICIENT_ROLE", "maad_create_guarded", **guarded(BIG))
        # 9 before 10, 10 before everything behind it.
        size = await refused(one, "RATE_LIMITED", "maad_get", "payload_too_large", docId=BIG)
        assert (size["limit"], size["size"] > 3000, size["retryAfterMs"]) == (2000, True, None)
        await refused(one, "RATE_LIMITED", "maad_get", "concurrent", docId="x")
        await refused(one, "RATE_LIMITED", "maad_projects", "concurrent")
        await one.notify("notifications/cancelled", {"requestId": number})
        await held

        # 14: the number of items before the rate of writes.
        assert await both.code("maad_create", project="main", **RECORD) is None
        many = {"records": [RECORD] * 4, "project": "main"}
        await refused(both, "BULK_LIMIT_EXCEEDED", "maad_bulk_create", **many)
        await refused(
            both, "RATE_LIMITED", "maad_create", "writes_per_sec", **RECORD, project="main"
        )
        bench.now += 1
        assert await both.code("maad_create", project="main", **RECORD) is None

    lines = [line for line in bench.logged("tool_call") if line["result"] == "error"]
    assert {line["tool"] for line in lines} >= {"maad_gett", "maad_get", "maad_projects"}


def guarded(doc_id: str) -> dict[str, Any]:
    """Arguments of a guarded create that pass the first check."""
    return {
        "contract": "guarded-create-v1",
        "docType": "note",
        "docId": doc_id[:100],
        "fields": {"title": doc_id},
        "body": "",
        "expectedSchemaDigest": "0" * 64,
        "expectedContentDigest": "0" * 64,
        "allowedHistoryModes": ["audit"],
    }


CONTRACT = {"contract": "create-contract-v1", "docType": "note"}


async def test_a_strict_read_is_for_those_who_may_still_ask_when_it_ends(open_front: Any) -> None:
    """Step 8, again after the operation; and its engine is one that is ready (step 11)."""
    async with open_front({"main": Role.ADMIN, "more": Role.ADMIN}) as bench, bench.wire() as of:
        path = Path(bench.tokens.path)

        async def ended_by(
            code: str | None, lose: Callable[[str], str], *, told: bool = False
        ) -> None:
            """Loses access while the worker has the call; sessions hear of it if `told`."""
            client = of(bench.issue("admin main", name="own").plaintext)
            await client.hello()
            await client.data("maad_use_project", name="main")
            begun = bench.calls().count("maad_create_contract begun")
            asked = asyncio.create_task(client.code("maad_create_contract", **CONTRACT))
            await bench.until(lambda: bench.calls().count("maad_create_contract begun") > begun)
            kept = path.read_text()
            path.write_text(lose(kept))
            if told:
                await bench.follower.reload()
            else:
                bench.tokens.reload()
            await bench.let_go()
            assert await asked == code
            path.write_text(kept.replace('"own"', '"earlier"'))
            await bench.follower.reload()

        cold = of(bench.issue("admin main").plaintext)
        await cold.hello()
        await cold.data("maad_use_project", name="main")
        refused = await cold.code("maad_create_contract", **CONTRACT)
        assert refused == "RECEIPT_ENGINE_NOT_READY"
        assert await cold.code("maad_create", docType="note", fields={}) is None

        own = '  name: "own"\n'
        await ended_by(None, lambda text: text)
        revoked = '  revoked_at: "2020-01-01T00:00:00Z"\n'
        await ended_by("TOKEN_REVOKED", lambda text: text.replace(own, own + revoked))
        expired = '  expires_at: "2020-01-01T00:00:00Z"\n'
        await ended_by("TOKEN_EXPIRED", lambda text: text.replace(own, own + expired))
        await ended_by("TOKEN_UNKNOWN", lambda text: text[: text.rindex("- id:")])

        def without_main(text: str) -> str:
            before, entry, rest = text.rpartition("- id:")
            return before + entry + rest.replace('"main"', '"more"')

        await ended_by("TOKEN_PROJECT_FORBIDDEN", without_main)
        gone = "SESSION_CANCELLED"
        await ended_by(gone, lambda text: text.replace(own, own + revoked), told=True)
