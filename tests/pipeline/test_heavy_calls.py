"""Heavy calls on their way through the pipeline: admission, sharing, places (spec 04 §12.4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from maadd.pipeline.heavy import FreeMemory
from maadd.protocol.messages import Reply


async def held(bench: Any, tool: str, session: Any = None, **args: Any) -> asyncio.Task[Any]:
    """A call that the worker has and does not answer before `bench.worker.hold` is set."""
    if bench.worker.hold is None:
        bench.worker.hold = asyncio.Event()
    task = asyncio.create_task(bench.ask(session or bench.session, tool, **args))
    await bench.worker.arrived.get()
    return task


async def later(bench: Any, tool: str, session: Any = None, **args: Any) -> asyncio.Task[Any]:
    """A call that has gone as far as it can by itself."""
    task = asyncio.create_task(bench.ask(session or bench.session, tool, **args))
    for _ in range(5):
        await asyncio.sleep(0)
    return task


async def finish(bench: Any, *tasks: asyncio.Task[Any]) -> list[Any]:
    bench.worker.hold.set()
    return await asyncio.gather(*tasks)


@pytest.mark.parametrize("tool", ["maad_summary", "maad_schema", "maad_reindex", "maad_reload"])
def test_exactly_the_heavy_tools_are_guarded(make_bench: Any, tool: str) -> None:
    bench = make_bench()
    bench.free = FreeMemory(20.0, None)
    args = {"docType": "ship"} if tool == "maad_schema" else {}
    error = bench.error(tool, **args)
    assert error["code"] == "OVERLOADED"
    assert error["details"] == {
        "reason": "free_heap",
        "freeMb": 20.0,
        "minFreeMb": 96,
        "retryAfterMs": 1000,
    }
    assert bench.worker.calls == []
    assert bench.call("maad_get", docId="shp-1")["ok"]
    assert bench.call("maad_describe")["ok"]


def test_the_breaker_refuses_without_a_sample_and_lets_a_healthy_one_through(
    make_bench: Any,
) -> None:
    bench = make_bench()
    bench.free = FreeMemory(None, 1.0)
    for _ in range(3):
        assert bench.error("maad_summary")["details"]["reason"] == "free_cgroup"
    bench.free = FreeMemory(None, None)
    assert bench.error("maad_summary")["details"] == {
        "reason": "breaker_open",
        "retryAfterMs": 5000,
    }
    bench.now += 5
    assert bench.call("maad_summary")["ok"]


def test_the_off_switch(make_bench: Any) -> None:
    bench = make_bench(heavy_op_guard_disable=True)
    bench.free = FreeMemory(1.0, 1.0)
    assert bench.call("maad_summary")["ok"]


async def test_equal_calls_share_one_execution(make_bench: Any) -> None:
    bench = make_bench()
    other = bench.open("s2")
    leader = await held(bench, "maad_schema", docType="ship")
    equal = [
        await later(bench, "maad_schema", docType="ship"),
        await later(bench, "maad_schema", other, docType="ship", project="fleet"),
        await later(bench, "maad_schema", docType="ship", _trace="x"),
    ]
    bench.worker.answers = [Reply("", ok=True, body=b'{"type":"ship"}')]
    for answer in await finish(bench, leader, *equal):
        assert answer == {"ok": True, "data": {"type": "ship"}}
    assert len(bench.worker.calls) == 1
    assert bench.heavy.snapshot().coalesced_total == 3
    assert bench.heavy.snapshot().in_flight == 0


async def test_defaults_make_no_difference(make_bench: Any) -> None:
    bench = make_bench()
    leader = await held(bench, "maad_reindex")
    follower = await later(bench, "maad_reindex", force=False, prune=False)
    await finish(bench, leader, follower)
    assert len(bench.worker.calls) == 1


async def test_other_arguments_and_other_tools_are_executed_themselves(make_bench: Any) -> None:
    bench = make_bench()
    tasks = [
        await held(bench, "maad_reindex"),
        await held(bench, "maad_reindex", force=True),
        await held(bench, "maad_summary"),
        await held(bench, "maad_reload"),
    ]
    await finish(bench, *tasks)
    assert len(bench.worker.calls) == 4


async def test_callers_of_another_role_do_not_share(make_bench: Any) -> None:
    bench = make_bench()
    leader = await held(bench, "maad_summary")
    reader = bench.open("s2")
    first = await later(bench, "maad_summary", reader)
    assert len(bench.worker.calls) == 1
    lowered = bench.open("s3")
    lowered.binding = bench.lowered_binding()
    second = await held(bench, "maad_summary", lowered)
    await finish(bench, leader, first, second)
    assert [call.role for call in bench.worker.calls] == [2, 0]


async def test_nobody_is_answered_from_before_an_own_write(make_bench: Any) -> None:
    bench = make_bench()
    leader = await held(bench, "maad_summary")
    hold, bench.worker.hold = bench.worker.hold, None
    assert (await bench.ask(bench.session, "maad_update", docId="shp-1", body="new"))["ok"]
    await bench.worker.arrived.get()
    bench.worker.hold = hold
    after = await held(bench, "maad_summary")
    await finish(bench, leader, after)
    assert [call.tool for call in bench.worker.calls].count("maad_summary") == 2


async def test_a_reload_of_the_instance_separates(make_bench: Any) -> None:
    bench = make_bench()
    leader = await held(bench, "maad_summary")
    bench.state.generation += 1
    after = await held(bench, "maad_summary")
    await finish(bench, leader, after)
    assert len(bench.worker.calls) == 2


async def test_a_fifth_execution_at_once_is_refused_and_a_follower_is_not(
    make_bench: Any,
) -> None:
    bench = make_bench()
    tasks = [await held(bench, "maad_schema", docType=f"t{n}") for n in range(4)]
    follower = await later(bench, "maad_schema", bench.open("s2"), docType="t3")
    refused = await bench.ask(bench.open("s3"), "maad_schema", docType="t4")
    assert refused["errors"][0]["details"] == {
        "reason": "concurrency",
        "limit": 4,
        "retryAfterMs": 1000,
    }
    await finish(bench, *tasks, follower)
    assert (await bench.ask(bench.session, "maad_schema", docType="t4"))["ok"]


async def test_a_caller_that_leaves_takes_nothing_from_the_others(make_bench: Any) -> None:
    bench = make_bench()
    leader = await held(bench, "maad_summary")
    follower = await later(bench, "maad_summary", bench.open("s2"))
    leader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leader
    (answer,) = await finish(bench, follower)
    assert answer["ok"]
    assert bench.heavy.snapshot().in_flight == 0


async def test_a_caller_over_its_write_rate_holds_no_place(make_bench: Any) -> None:
    bench = make_bench(rl_writes_per_sec=1)
    assert (await bench.ask(bench.session, "maad_reindex"))["ok"]
    refused = await bench.ask(bench.session, "maad_reload")
    assert refused["errors"][0]["code"] == "RATE_LIMITED"
    assert bench.heavy.snapshot().in_flight == 0


async def test_a_follower_pays_no_write_and_tells_no_audit(make_bench: Any) -> None:
    bench = make_bench(rl_writes_per_sec=1)
    leader = await held(bench, "maad_reindex")
    follower = await later(bench, "maad_reindex")
    bench.worker.answers = [Reply("", ok=True, body=b"{}", audit={"doc_id": None})]
    for answer in await finish(bench, leader, follower):
        assert answer["ok"]
    assert [line["event"] for line in bench.audited] == ["write"]


async def test_a_session_holds_its_place_while_it_shares(make_bench: Any) -> None:
    bench = make_bench(rl_concurrent=1)
    other = bench.open("s2")
    leader = await held(bench, "maad_summary")
    follower = await later(bench, "maad_summary", other)
    refused = await bench.ask(other, "maad_summary")
    assert refused["errors"][0]["details"]["reason"] == "concurrent"
    await finish(bench, leader, follower)
    assert (await bench.ask(other, "maad_summary"))["ok"]
