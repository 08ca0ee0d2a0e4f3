"""When memory counts as short, how often that is told, what is closed (spec 04 §12.5)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from maadd.front.memory_pressure import (
    Alarm,
    MemorySample,
    PressureGauge,
    PressureLimits,
    choose_evictions,
    take_sample,
    watch_memory,
)
from maadd.ops.memory import MIB, CgroupMemory
from maadd.pool.snapshot import IdleWorker

CALM = MemorySample(heap_used_mb=100.0, heap_cap_mb=512.0)
TIGHT = MemorySample(heap_used_mb=450.0, heap_cap_mb=512.0)


def gauge(ratio: float = 0.8, interval_ms: int = 60_000) -> PressureGauge:
    return PressureGauge(PressureLimits(interval_ms, ratio, 300.0))


def take(pressure: PressureGauge, sample: MemorySample, at: float) -> Alarm | None:
    return pressure.take(sample, now=at, wall=1_900_000_000.0 + at)


def test_450_of_512_fires_once_and_again_after_the_cooldown() -> None:
    pressure = gauge()
    assert take(pressure, TIGHT, 0) == Alarm("heap", edge=True)
    assert take(pressure, TIGHT, 60) is None
    assert take(pressure, TIGHT, 299.9) is None
    assert take(pressure, TIGHT, 300) == Alarm("heap", edge=False)
    assert take(pressure, TIGHT, 599) is None
    assert take(pressure, TIGHT, 600) == Alarm("heap", edge=False)
    assert pressure.snapshot().pressure_fires_total == 3


def test_a_calm_sample_arms_the_edge_again() -> None:
    pressure = gauge()
    assert take(pressure, TIGHT, 0)
    assert take(pressure, CALM, 1) is None
    assert not pressure.snapshot().in_pressure
    assert take(pressure, TIGHT, 2) == Alarm("heap", edge=True)


@pytest.mark.parametrize(
    ("sample", "ratio", "reason"),
    [
        (MemorySample(heap_used_mb=409.6, heap_cap_mb=512.0), 0.8, "heap"),
        (MemorySample(heap_used_mb=409.5, heap_cap_mb=512.0), 0.8, None),
        (MemorySample(cgroup_current_mb=900.0, cgroup_max_mb=1000.0), 0.8, "cgroup"),
        (
            MemorySample(
                heap_used_mb=450.0,
                heap_cap_mb=512.0,
                cgroup_current_mb=900.0,
                cgroup_max_mb=1000.0,
            ),
            0.8,
            "heap+cgroup",
        ),
        (MemorySample(heap_used_mb=450.0), 0.8, None),
        (MemorySample(heap_used_mb=450.0, heap_cap_mb=0.0), 0.0, None),
        (MemorySample(cgroup_current_mb=450.0, cgroup_max_mb=0.0), 0.0, None),
        (MemorySample(), 0.0, None),
        (MemorySample(heap_used_mb=1.0, heap_cap_mb=512.0), 0.0, "heap"),
        (MemorySample(heap_used_mb=511.0, heap_cap_mb=512.0), 1.0, None),
        (MemorySample(heap_used_mb=512.0, heap_cap_mb=512.0), 1.0, "heap"),
    ],
)
def test_what_counts_as_pressure(sample: MemorySample, ratio: float, reason: str | None) -> None:
    alarm = take(gauge(ratio), sample, 0)
    assert (alarm and alarm.reason) == reason


def test_before_the_first_sample_nothing_is_known() -> None:
    shown = gauge().snapshot()
    assert shown.enabled
    assert (shown.last_sample_at, shown.ratio, shown.in_pressure) == (None, None, False)
    assert not gauge(interval_ms=0).snapshot().enabled
    assert not gauge(interval_ms=-5).snapshot().enabled


def test_health_sees_rounded_figures() -> None:
    pressure = gauge()
    take(pressure, MemorySample(450.04, 512.0, 80.26, 1234.56, 10_000.0), 0)
    assert msgspec.to_builtins(pressure.snapshot()) == {
        "enabled": True,
        "intervalMs": 60_000,
        "thresholdRatio": 0.8,
        "lastSampleAt": "2030-03-17T17:46:40.000Z",
        "heapUsedMb": 450.0,
        "heapCapMb": 512.0,
        "heapRatio": 0.879,
        "ratio": 0.879,
        "rssMb": 80.3,
        "externalMb": None,
        "arrayBuffersMb": None,
        "cgroupCurrentMb": 1234.6,
        "cgroupMaxMb": 10_000.0,
        "cgroupRatio": 0.123,
        "inPressure": True,
        "heapInPressure": True,
        "cgroupInPressure": False,
        "lastPressureAt": "2030-03-17T17:46:40.000Z",
        "pressureFiresTotal": 1,
    }


IDLE = [IdleWorker("old", 60.0), IdleWorker("middle", 60.0), IdleWorker("new", 60.0)]


@pytest.mark.parametrize(
    ("sample", "chosen"),
    [
        (CALM, []),
        (MemorySample(cgroup_current_mb=800.0, cgroup_max_mb=1000.0), ["old"]),
        (MemorySample(cgroup_current_mb=850.0, cgroup_max_mb=1000.0), ["old"]),
        (MemorySample(cgroup_current_mb=870.0, cgroup_max_mb=1000.0), ["old", "middle"]),
        (MemorySample(cgroup_current_mb=999.0, cgroup_max_mb=1000.0), ["old", "middle", "new"]),
        # A busy worker close to its limit is no reason to close others.
        (MemorySample(heap_used_mb=450.0, heap_cap_mb=512.0), []),
        (MemorySample(heap_used_mb=60.0, heap_cap_mb=64.0), ["old", "middle", "new"]),
    ],
)
def test_idle_workers_are_closed_until_it_is_enough(
    sample: MemorySample, chosen: list[str]
) -> None:
    pressure = gauge()
    take(pressure, sample, 0)
    assert choose_evictions(pressure, IDLE) == chosen


class Pool:
    """Idle workers, and which of them were closed."""

    memory_limit_mb = None

    def __init__(self, *idle: IdleWorker) -> None:
        self._idle = list(idle)
        self.evicted: asyncio.Queue[list[str]] = asyncio.Queue()

    def snapshots(self) -> dict[str, Any]:
        return {}

    def idle_workers(self) -> list[IdleWorker]:
        return self._idle

    async def evict(self, projects: list[str]) -> list[str]:
        self._idle = [worker for worker in self._idle if worker.project not in projects]
        self.evicted.put_nowait(projects)
        return projects


async def test_the_watch_tells_and_acts(make_bench: Any) -> None:
    bench = make_bench("alpha")
    pool: Any = Pool(*IDLE)
    pressure = gauge(interval_ms=5)
    full = CgroupMemory(870 * MIB, 1000 * MIB)
    task = asyncio.create_task(watch_memory(pressure, pool, lambda: full, bench.log))
    assert await pool.evicted.get() == ["old", "middle"]
    assert await pool.evicted.get() == ["new"]
    task.cancel()
    (line,) = [event for event in bench.events if event.get("operation") == "memory_pressure"]
    assert (line["level"], line["category"]) == ("warning", "engine")
    assert (line["reason"], line["edge"], line["cgroup_ratio"]) == ("cgroup", True, 0.87)
    assert line["rss_mb"] > 5


async def test_an_interval_of_zero_never_samples(make_bench: Any) -> None:
    bench = make_bench("alpha")
    pressure = gauge(interval_ms=0)
    await watch_memory(pressure, bench.pool, lambda: None, bench.log)
    assert pressure.snapshot().last_sample_at is None


async def test_a_sample_without_workers_and_groups(make_bench: Any) -> None:
    sample = take_sample(make_bench("alpha").pool, lambda: None)
    assert (sample.heap_used_mb, sample.heap_cap_mb) == (None, None)
    assert (sample.cgroup_current_mb, sample.cgroup_max_mb) == (None, None)
    assert sample.rss_mb is not None
