"""Rate limits and the guard of heavy tools as clients meet them: through a listening socket, the
whole pipeline and real workers, by a clock that stands still (spec 04 §12.1, §12.4, §12.5)."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import Future
from typing import Any

import pytest
from daemon_bench import Client, eventually
from threaded_front import ServedRooms, ThreadedFront
from tool_arguments import ARGUMENTS

from maadd.front.memory_pressure import watch_memory
from maadd.ops.memory import MIB, CgroupMemory
from maadd.pipeline.heavy import FreeMemory
from maadd.protocol.tools import TOOLS

pytestmark = pytest.mark.xdist_group("fronts")

NOTE = {"docType": "note", "fields": {"title": "x"}}


def create(client: Client, **more: Any) -> dict[str, Any] | None:
    """The details of the refusal of one write, None when it is done."""
    envelope = client.call("maad_create", **NOTE, **more)
    if envelope["ok"]:
        return None
    error = envelope["errors"][0]
    assert error["code"] == "RATE_LIMITED"
    details: dict[str, Any] = error["details"]
    return details


# -- the buckets of writes ---------------------------------------------------------------


def test_ten_writes_pass_and_the_eleventh_waits_for_a_refill(fronts: ThreadedFront) -> None:
    served = fronts.serve()
    client = served.client()
    assert [create(client) for _ in range(10)] == [None] * 10
    eleventh = {
        "reason": "writes_per_sec",
        "limit": 10,
        "retryAfterMs": 100,
        "tool": "maad_create",
    }
    # What is refused costs nothing, also not of the minute.
    assert [create(client) for _ in range(50)] == [eleventh] * 50
    # A token has the same buckets, however many sessions it opens.
    assert create(served.client()) == eleventh
    assert create(served.client(other=True)) is None
    served.rooms.now += 0.150
    assert create(client) is None
    assert create(client) == eleventh | {"retryAfterMs": 50}
    served.rooms.now += 1
    assert [create(client) for _ in range(10)] == [None] * 10


def test_sixty_writes_pass_in_a_minute(fronts: ThreadedFront) -> None:
    served = fronts.serve(rl_writes_per_sec=1000)
    client = served.client()
    for _ in range(60):
        assert create(client) is None
        served.rooms.now += 0.001
    refused = create(client)
    assert refused is not None
    assert (refused["reason"], refused["limit"]) == ("writes_per_min", 60)
    # 59 ms of refill after the first write, which a full bucket paid, and one after the last.
    assert refused["retryAfterMs"] == 940
    served.rooms.now += 60
    assert create(client) is None


WRITES = {
    "maad_create", "maad_create_guarded", "maad_update", "maad_bulk_create", "maad_bulk_update",
    "maad_delete", "maad_bulk_delete", "maad_delete_where", "maad_purge_soft_deleted",
    "maad_repair_where", "maad_reindex", "maad_reload", "maad_flush", "maad_backup",
}  # fmt: skip
"""Every tool of kind W, of which the reference charges five."""


def test_every_write_is_charged_and_no_read(fronts: ThreadedFront) -> None:
    served = fronts.serve(rl_writes_per_sec=1)
    client = served.client()
    client.ok("maad_get", docId="nte-1")
    charged = set()
    for name, spec in TOOLS.items():
        if not spec.routed or not spec.available:
            continue
        served.rooms.now += 60
        arguments = ARGUMENTS.get(name, {})
        assert client.call(name, **arguments)["ok"], name
        again = client.call(name, **arguments)
        if not again["ok"]:
            assert again["errors"][0]["details"] == {
                "reason": "writes_per_sec", "limit": 1, "retryAfterMs": 1000, "tool": name,
            }  # fmt: skip
            charged.add(name)
    assert charged == WRITES
    served.rooms.now += 60
    assert client.call("maad_instructions", action="refresh")["ok"]
    assert client.refused("maad_instructions", action="refresh")["code"] == "RATE_LIMITED"


def test_a_bulk_call_costs_a_write_for_ten_records(fronts: ThreadedFront) -> None:
    served = fronts.serve(rl_writes_per_sec=5)
    client = served.client()
    for tool, member, item in (
        ("maad_bulk_create", "records", NOTE),
        ("maad_bulk_update", "updates", {"docId": "nte-1", "fields": {"title": "y"}}),
        ("maad_bulk_delete", "docIds", "nte-1"),
    ):
        served.rooms.now += 60
        client.ok(tool, **{member: [item] * 11})
        assert [create(client) for _ in range(3)] == [None] * 3
        refused = client.refused(tool, **{member: [item] * 11})
        # Two are missing, at five a second.
        assert refused["details"]["retryAfterMs"] == 400
    # At most what the bucket holds: else it could never be paid.
    served = fronts.serve(rl_writes_per_sec=2)
    client = served.client()
    client.ok("maad_bulk_create", records=[NOTE] * 50)
    refused = client.refused("maad_bulk_create", records=[NOTE] * 50)
    assert refused["details"]["retryAfterMs"] == 1000
    served.rooms.now += 1
    client.ok("maad_bulk_create", records=[NOTE] * 50)
    # The number of records is judged before the rate.
    refused = client.refused("maad_bulk_create", records=[NOTE] * 51)
    assert refused["code"] == "BULK_LIMIT_EXCEEDED"
    assert refused["details"] == {
        "tool": "maad_bulk_create", "received": 51, "limit": 50, "suggestedChunkSize": 50,
    }  # fmt: skip


def test_a_replay_costs_nothing_and_is_answered_by_an_empty_bucket(fronts: ThreadedFront) -> None:
    client = fronts.serve(rl_writes_per_sec=1).client()
    assert [create(client, idempotencyKey="known") for _ in range(3)] == [None] * 3
    assert create(client) is None
    assert create(client, idempotencyKey="known") is None
    refused = create(client, idempotencyKey="new")
    assert refused is not None
    assert refused["reason"] == "writes_per_sec"


# -- calls at the same time, and their size ----------------------------------------------


def test_five_calls_run_and_a_sixth_when_one_has_ended(fronts: ThreadedFront) -> None:
    served = fronts.serve()
    client = served.client()
    client.ok("maad_get", docId="nte-1")
    fronts.main.hold()
    query = {"name": "maad_query", "arguments": {"docType": "held"}}
    message = {"jsonrpc": "2.0", "id": "q", "method": "tools/call", "params": query}
    fronts.submit(client.twin().post, message)
    assert eventually(lambda: "maad_query begun" in fronts.main.calls())
    held = [fronts.held(client, "maad_get", docId="nte-1") for _ in range(4)]
    for tool, arguments in (("maad_get", {"docId": "nte-1"}), ("maad_current_session", {})):
        refused = client.refused(tool, **arguments)
        assert refused["code"] == "RATE_LIMITED"
        assert refused["details"] == {
            "reason": "concurrent", "limit": 5, "retryAfterMs": None, "tool": tool,
        }  # fmt: skip
    other = served.client()
    assert other.ok("maad_current_session")
    withdrawn = {"requestId": "q"}
    client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": withdrawn})
    assert eventually(lambda: client.call("maad_current_session")["ok"])

    # With the session goes its account; what it had running does not count against the next.
    held.append(fronts.held(client, "maad_get", docId="nte-1"))
    assert client.refused("maad_current_session")["details"]["reason"] == "concurrent"
    assert client.end() == 200
    assert served.client().ok("maad_current_session")
    fronts.main.let_go()
    for future in held:
        future.exception(20)


@pytest.mark.parametrize("tool", ["maad_get", "maad_current_session"])
def test_arguments_may_be_as_long_as_the_limit(fronts: ThreadedFront, tool: str) -> None:
    """Bytes of UTF-8 in compact JSON, whatever the client sent."""
    served = fronts.serve(rl_payload_bytes=200)
    client = served.client()

    def of_size(size: int) -> dict[str, str]:
        # Two bytes each as UTF-8; the client escapes them to six.
        name, filler = "docId" if tool == "maad_get" else "_trace", "é" * 50
        room = size - len(json.dumps({name: filler}, ensure_ascii=False).encode())
        return {name: filler + "x" * (room + 1)}

    assert client.ok(tool, **of_size(200)) is not None
    refused = client.refused(tool, **of_size(201))
    assert refused["code"] == "RATE_LIMITED"
    assert refused["details"] == {
        "reason": "payload_too_large", "limit": 200, "retryAfterMs": None, "tool": tool,
        "size": 201,
    }  # fmt: skip


def test_the_off_switch_turns_all_four_off(fronts: ThreadedFront) -> None:
    served = fronts.serve(
        rl_disable=True,
        rl_writes_per_sec=1,
        rl_writes_per_min=1,
        rl_concurrent=1,
        rl_payload_bytes=1,
    )
    client = served.client()
    assert [create(client) for _ in range(3)] == [None] * 3
    fronts.main.hold()
    held = fronts.held(client, "maad_get", docId="nte-1")
    assert client.ok("maad_current_session")
    fronts.main.let_go()
    assert held.result(20)["ok"]


# -- heavy tools -------------------------------------------------------------------------

TIGHT, PLENTY = FreeMemory(95.9, 500.0), FreeMemory(96.0, 96.0)
FREE_HEAP = {"reason": "free_heap", "freeMb": 95.9, "minFreeMb": 96, "retryAfterMs": 1000}


def overloaded(client: Client, tool: str = "maad_summary", **arguments: Any) -> dict[str, Any]:
    """The details of the refusal."""
    error = client.refused(tool, **arguments)
    assert error["code"] == "OVERLOADED"
    details: dict[str, Any] = error["details"]
    return details


def guard(client: Client) -> Any:
    """The guard as health shows it."""
    return client.ok("maad_health")["runtime"]["heavyOpGuard"]


def test_the_third_shed_in_a_row_opens_the_breaker(fronts: ThreadedFront) -> None:
    served = fronts.serve()
    rooms, client = served.rooms, served.client()
    rooms.free = TIGHT
    assert overloaded(client) == FREE_HEAP
    assert overloaded(client, "maad_schema", docType="note") == FREE_HEAP
    assert guard(client)["breakerOpen"] is False
    assert overloaded(client, "maad_reindex") == FREE_HEAP
    assert (guard(client)["breakerOpen"], guard(client)["shedTotal"]) == (True, 3)
    assert client.ok("maad_get", docId="nte-1") == {}

    rooms.free = PLENTY
    assert overloaded(client, "maad_reload") == {"reason": "breaker_open", "retryAfterMs": 5000}
    rooms.now += 1.25
    assert overloaded(client) == {"reason": "breaker_open", "retryAfterMs": 3750}
    assert rooms.samples == 3
    # Then the next call gets a fresh sample, and the count begins anew.
    rooms.now += 3.75
    rooms.free = TIGHT
    for _ in range(2):
        assert overloaded(client) == FREE_HEAP
    rooms.free = PLENTY
    for tool in ("maad_summary", "maad_reindex", "maad_reload"):
        assert client.ok(tool) == {}
    rooms.free = TIGHT
    for _ in range(2):
        assert overloaded(client) == FREE_HEAP
    rooms.free = FreeMemory(None, None)
    assert client.ok("maad_summary") == {}
    shown = guard(client)
    assert (shown["breakerTrippedTotal"], shown["breakerRejectedTotal"]) == (1, 2)
    assert (shown["breakerOpen"], shown["shedTotal"], shown["inFlight"]) == (False, 7, 0)
    assert shown["lastShedAt"]


def test_the_knobs_of_the_guard(fronts: ThreadedFront) -> None:
    served = fronts.serve(
        heavy_op_min_free_heap_mb=10, heavy_op_retry_after_ms=77, heavy_op_breaker_threshold=0
    )
    client = served.client()
    served.rooms.free = FreeMemory(None, 9.94)
    # Without a threshold the breaker stays closed.
    for _ in range(5):
        assert overloaded(client) == {
            "reason": "free_cgroup", "freeMb": 9.9, "minFreeMb": 10, "retryAfterMs": 77,
        }  # fmt: skip
    served.rooms.free = TIGHT
    assert client.ok("maad_summary") == {}

    served = fronts.serve(heavy_op_breaker_threshold=1, heavy_op_breaker_cooldown_ms=20)
    client = served.client()
    served.rooms.free = TIGHT
    assert overloaded(client) == FREE_HEAP
    assert overloaded(client) == {"reason": "breaker_open", "retryAfterMs": 20}

    served = fronts.serve(heavy_op_guard_disable=True)
    client = served.client()
    served.rooms.free = TIGHT
    assert client.ok("maad_summary") == {}
    assert guard(client)["enabled"] is False


def joined(
    fronts: ThreadedFront, admin: Client, client: Client, tool: str, **more: Any
) -> Future[Any]:
    """A call, once it shares the execution of another, as an admin sees."""
    before = guard(admin)["coalescedTotal"]
    future = fronts.later(client, tool, **more)
    assert eventually(lambda: guard(admin)["coalescedTotal"] == before + 1)
    return future


def executions(fronts: ThreadedFront) -> list[str]:
    return [line for line in fronts.main.calls() if line.endswith(" begun")]


def test_equal_calls_share_one_execution(fronts: ThreadedFront) -> None:
    served = fronts.serve(heavy_op_max_concurrent=2)
    client, same, reader = served.client(), served.client(), served.client(role="reader")
    client.ok("maad_get", docId="nte-1")
    already = len(executions(fronts))
    fronts.main.hold()
    leader = fronts.held(client, "maad_summary")
    shared = [
        joined(fronts, client, client, "maad_summary"),
        joined(fronts, client, same, "maad_summary", project="main", _trace="x"),
    ]
    # Callers of another role do not share, and followers take no place.
    other = fronts.held(reader, "maad_summary")
    assert guard(client)["inFlight"] == 2
    refused = overloaded(client, "maad_schema", docType="note")
    assert refused == {"reason": "concurrency", "limit": 2, "retryAfterMs": 1000}
    assert guard(client)["concurrencyRejectedTotal"] == 1
    shared.append(joined(fronts, client, reader, "maad_summary"))
    fronts.main.let_go()
    for future in (leader, other, *shared):
        assert future.result(20) == {"ok": True, "data": {}}
    assert executions(fronts)[already:] == ["maad_summary begun"] * 2
    assert eventually(lambda: guard(client)["inFlight"] == 0)


def test_defaults_make_no_difference_and_other_arguments_do(fronts: ThreadedFront) -> None:
    served = fronts.serve()
    client = served.client()
    client.ok("maad_get", docId="nte-1")
    already = len(executions(fronts))
    fronts.main.hold()
    calls = [
        fronts.held(client, "maad_reindex"),
        joined(fronts, client, client, "maad_reindex", force=False, prune=False),
        fronts.held(client, "maad_reindex", force=True),
    ]
    fronts.main.let_go()
    assert all(future.result(20)["ok"] for future in calls)
    assert executions(fronts)[already:] == ["maad_reindex begun"] * 2


def test_nobody_is_answered_from_before_an_own_write(fronts: ThreadedFront) -> None:
    served = fronts.serve()
    client = served.client()
    client.ok("maad_get", docId="nte-1")
    already = len(executions(fronts))
    fronts.main.hold()
    before = fronts.held(client, "maad_summary")
    assert create(client, docId="free") is None
    after = fronts.held(client, "maad_summary")
    assert guard(client)["coalescedTotal"] == 0
    fronts.main.let_go()
    assert all(future.result(20)["ok"] for future in (before, after))
    assert executions(fronts)[already:].count("maad_summary begun") == 2


# -- memory pressure ---------------------------------------------------------------------


class Watched:
    """A front whose memory is watched every five milliseconds, in a control group of 512 MiB."""

    def __init__(self, served: ServedRooms) -> None:
        self.rooms = served.rooms
        self.used_mb = 100
        self.looks = 0

    def read(self) -> CgroupMemory:
        self.looks += 1
        return CgroupMemory(self.used_mb * MIB, 512 * MIB)

    async def watch(self) -> None:
        rooms = self.rooms
        await watch_memory(rooms.pressure, rooms.pool, self.read, rooms.log, rooms.clock)

    def sampled(self) -> None:
        """Wait until what is so now has been seen."""
        looks = self.looks
        assert eventually(lambda: self.looks >= looks + 2)


def test_450_of_512_is_told_once_and_again_after_the_cooldown(fronts: ThreadedFront) -> None:
    served = fronts.serve(memory_pressure_interval_ms=5)
    # The worker of another project keeps its own; this one's is closed under pressure.
    client = served.client(project="other")
    watched = Watched(served)
    task = asyncio.run_coroutine_threadsafe(watched.watch(), fronts.loop)

    def shown() -> Any:
        return client.ok("maad_health")["runtime"]["memoryPressure"]

    def told() -> list[tuple[bool, str]]:
        lines = [line for line in served.events if line.get("operation") == "memory_pressure"]
        assert all(
            (line["level"], line["category"], line["cgroup_max_mb"], line["threshold_ratio"])
            == ("warning", "engine", 512.0, 0.8)
            for line in lines
        )
        return [(line["edge"], line["reason"]) for line in lines]

    watched.sampled()
    assert (shown()["inPressure"], shown()["cgroupRatio"]) == (False, 0.195)
    watched.used_mb = 450
    watched.sampled()
    watched.rooms.now += 299.9
    watched.sampled()
    assert told() == [(True, "cgroup")]
    watched.rooms.now += 0.1
    watched.sampled()
    assert told() == [(True, "cgroup"), (False, "cgroup")]
    seen = shown()
    assert (seen["inPressure"], seen["cgroupInPressure"], seen["heapInPressure"]) == (
        True, True, False,
    )  # fmt: skip
    assert (seen["cgroupCurrentMb"], seen["cgroupMaxMb"], seen["cgroupRatio"]) == (
        450.0, 512.0, 0.879,
    )  # fmt: skip
    assert (seen["pressureFiresTotal"], seen["thresholdRatio"]) == (2, 0.8)
    assert seen["lastPressureAt"]
    # A calm sample arms the edge again.
    watched.used_mb = 100
    watched.sampled()
    assert shown()["inPressure"] is False
    watched.used_mb = 450
    watched.sampled()
    assert told()[2:] == [(True, "cgroup")]
    assert shown()["pressureFiresTotal"] == 3
    task.cancel()
