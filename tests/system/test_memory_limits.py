"""Memory limits of a running daemon: guard of heavy tools, pressure (spec 04 §12.4, §12.5)."""

from __future__ import annotations

import json
from typing import Any

from daemon_bench import Client, Daemon, Instance, eventually


def bound(daemon: Daemon, token: str) -> Client:
    client = daemon.client(token)
    client.ok("maad_use_project", name="main")
    return client


def test_the_guard_and_the_watch_are_in_health(instance: Instance, start: Any) -> None:
    daemon = start(
        instance,
        MAAD_HEAVY_OP_MIN_FREE_HEAP_MB="0",
        MAAD_WORKER_MEMORY_MB="4096",
        MAAD_PROJECT_IDLE_TIMEOUT_MS="300",
        MAAD_PROJECT_SWEEP_INTERVAL_MS="20",
    )
    admin = bound(daemon, instance.token)
    admin.ok("maad_summary")
    runtime = admin.ok("maad_health")["runtime"]
    guard = runtime["heavyOpGuard"]
    assert (guard["enabled"], guard["minFreeHeapMb"], guard["maxConcurrent"]) == (True, 0, 4)
    assert (guard["inFlight"], guard["shedTotal"], guard["breakerOpen"]) == (0, 0, False)
    pressure = runtime["memoryPressure"]
    assert (pressure["enabled"], pressure["intervalMs"]) == (True, 60_000)
    assert pressure["heapCapMb"] == 4096.0
    assert pressure["lastSampleAt"]
    assert pressure["rssMb"] > 10
    assert runtime["tokenChanges"] == "watch"
    # A worker that nobody asks for a while is closed, and the next call starts another.
    assert eventually(lambda: '"msg":"workers_evicted"' in daemon.log)
    assert admin.ok("maad_summary")


def test_a_heavy_tool_without_memory_is_refused(instance: Instance, start: Any) -> None:
    # The worker alone uses more than all but one MiB of what it may.
    daemon = start(instance, MAAD_WORKER_MEMORY_MB="4096", MAAD_HEAVY_OP_MIN_FREE_HEAP_MB="4095")
    admin = bound(daemon, instance.token)
    for _ in range(3):
        error = admin.call("maad_summary")["errors"][0]
        assert (error["code"], error["details"]["reason"]) == ("OVERLOADED", "free_heap")
        assert error["details"]["minFreeMb"] == 4095
    error = admin.call("maad_reindex")["errors"][0]
    assert error["details"]["reason"] == "breaker_open"
    assert 0 < error["details"]["retryAfterMs"] <= 5000
    assert admin.ok("maad_get", docId="nte-1")
    guard = admin.ok("maad_health")["runtime"]["heavyOpGuard"]
    assert (guard["breakerOpen"], guard["shedTotal"]) == (True, 3)


def test_idle_workers_are_closed_under_pressure(instance: Instance, start: Any) -> None:
    daemon = start(
        instance,
        MAAD_WORKER_MEMORY_MB="4096",
        MAAD_MEMORY_PRESSURE_RATIO="0.001",
        MAAD_MEMORY_PRESSURE_INTERVAL_MS="50",
    )
    admin = bound(daemon, instance.token)
    assert admin.ok("maad_get", docId="nte-1")
    assert eventually(lambda: '"msg":"workers_evicted"' in daemon.log)
    whole, _, _ = daemon.log.rpartition("\n")
    lines = [json.loads(line) for line in whole.splitlines()]
    told = next(line for line in lines if line.get("operation") == "memory_pressure")
    assert (told["level"], told["event"], told["category"]) == (40, "engine", "engine")
    assert (told["reason"], told["edge"], told["heap_cap_mb"]) == ("heap", True, 4096.0)
    assert told["heap_ratio"] == told["ratio"] >= told["threshold_ratio"] == 0.001
    assert told["heap_used_mb"] > 1
    assert told["rss_mb"] > 1
    assert (told["external_mb"], told["array_buffers_mb"]) == (None, None)
    assert {"cgroup_current_mb", "cgroup_max_mb", "cgroup_ratio"} <= told.keys()
    # The next call starts it again.
    assert admin.ok("maad_get", docId="nte-2")
