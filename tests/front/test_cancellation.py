"""A client that withdraws a call stops the work in the worker (spec 04 §6)."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


async def withdraw(task: asyncio.Task[object]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_over_http_a_read_is_interrupted_and_a_waiting_write_never_done(open_front, mode):
    async with open_front() as bench, bench.http() as client_of, client_of(mode) as client:
        if mode == "legacy":
            await client.call_tool("maad_use_project", {"name": "main"})
        query = asyncio.create_task(client.call_tool("maad_query", {"docType": "note"}))
        await bench.noted("maad_query begun")
        await withdraw(query)
        await bench.noted("maad_query interrupted")
        await bench.until(lambda: bench.pool.in_flight() == 0)

        create = {"docType": "note", "fields": {}}
        held = asyncio.create_task(client.call_tool("maad_create", {**create, "docId": "held"}))
        await bench.noted("held begun")
        waiting = asyncio.create_task(client.call_tool("maad_create", {**create, "docId": "w"}))
        await bench.until(lambda: bench.pool.in_flight() == 2)
        await withdraw(waiting)
        await bench.until(lambda: bench.pool.in_flight() == 1)
        await bench.let_go()
        assert not (await held).is_error
        await client.call_tool("maad_create", {**create, "docId": "last"})
        assert [line for line in bench.calls() if line.endswith("written")] == [
            "held written",
            "last written",
        ]


@pytest.mark.parametrize("stateless", [False, True])
async def test_over_stdio_a_read_is_interrupted_and_gets_no_answer(open_front, stateless):
    meta = {"_meta": ENVELOPE} if stateless else {}
    async with open_front() as bench, bench.stdio() as pipes:
        if not stateless:
            pipes.send(id=1, method="initialize", params=HELLO)
            await pipes.receive()
            pipes.send(method="notifications/initialized")
        bind = {"name": "maad_use_project", "arguments": {"name": "main"}, **meta}
        pipes.send(id=2, method="tools/call", params=bind)
        assert (await pipes.receive())["id"] == 2
        query = {"name": "maad_query", "arguments": {"docType": "note"}, **meta}
        pipes.send(id="q", method="tools/call", params=query)
        await bench.noted("maad_query begun")
        pipes.send(method="notifications/cancelled", params={"requestId": "q"})
        await bench.noted("maad_query interrupted")
        pipes.send(id=3, method="tools/list", params=meta)
        assert (await pipes.receive())["id"] == 3


async def test_progress_comes_in_order_and_before_the_answer(open_front):
    async with open_front() as bench, bench.stdio() as pipes:
        pipes.send(id=1, method="initialize", params=HELLO)
        await pipes.receive()
        pipes.send(method="notifications/initialized")
        bind = {"name": "maad_use_project", "arguments": {"name": "main"}}
        pipes.send(id=2, method="tools/call", params=bind)
        await pipes.receive()
        reindex = {"name": "maad_reindex", "arguments": {}}
        pipes.send(
            id=3, method="tools/call", params={**reindex, "_meta": {"progressToken": "mine"}}
        )
        heard = []
        while "id" not in (message := await pipes.receive()):
            assert message["method"] == "notifications/progress"
            assert message["params"]["progressToken"] == "mine"
            heard.append(message["params"]["progress"])
        assert heard[-1] == 3
        assert heard == sorted(set(heard))
        pipes.send(id=4, method="tools/call", params=reindex)
        assert (await pipes.receive())["id"] == 4
