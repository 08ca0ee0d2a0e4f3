"""Admission of heavy tools with a frozen clock (the rules of spec 04 §12.4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from maadd.pipeline.heavy import FreeMemory, HeavyGuard, HeavyLimits
from maadd.protocol.errors import MaadError

PLENTY = FreeMemory(500.0, 500.0)
TIGHT = FreeMemory(95.9, 500.0)


class Bench:
    def __init__(self, **changes: object) -> None:
        self.now = 100.0
        self.samples = 0
        limits = {
            "disabled": False,
            "min_free_mb": 96,
            "retry_after_ms": 1000,
            "max_concurrent": 4,
            "breaker_threshold": 3,
            "breaker_cooldown_ms": 5000,
            **changes,
        }
        self.guard = HeavyGuard(HeavyLimits(**limits), lambda: self.now)

    def admit(self, free: FreeMemory) -> dict[str, object] | None:
        """The details of the refusal, None when the call may go on."""

        def sample() -> FreeMemory:
            self.samples += 1
            return free

        return details_of(lambda: self.guard.admit(sample))


def details_of(action: Callable[[], object]) -> dict[str, object] | None:
    try:
        action()
    except MaadError as refusal:
        if refusal.code != "OVERLOADED":
            raise
        return refusal.details
    return None


@pytest.mark.parametrize(
    ("free", "reason", "shown"),
    [
        (FreeMemory(None, None), None, None),
        (FreeMemory(96.0, None), None, None),
        (FreeMemory(95.96, None), "free_heap", 96.0),
        (FreeMemory(10.0, 20.0), "free_heap", 10.0),
        (FreeMemory(None, 20.0), "free_cgroup", 20.0),
        (FreeMemory(500.0, 95.0), "free_cgroup", 95.0),
        (FreeMemory(-12.5, None), "free_heap", -12.5),
    ],
)
def test_free_memory_below_the_floor_is_refused(
    free: FreeMemory, reason: str | None, shown: float | None
) -> None:
    refusal = Bench().admit(free)
    if reason is None:
        assert refusal is None
        return
    assert refusal == {
        "reason": reason,
        "freeMb": shown,
        "minFreeMb": 96,
        "retryAfterMs": 1000,
    }


def test_the_third_shed_in_a_row_opens_the_breaker() -> None:
    bench = Bench()
    assert [bench.admit(TIGHT)["reason"] for _ in range(3)] == ["free_heap"] * 3
    assert bench.guard.snapshot().breaker_open
    bench.now += 1.25
    assert bench.admit(PLENTY) == {"reason": "breaker_open", "retryAfterMs": 3750}
    assert bench.samples == 3
    bench.now += 3.75
    assert not bench.guard.snapshot().breaker_open
    assert bench.admit(PLENTY) is None
    assert bench.samples == 4


def test_after_the_cooldown_the_count_begins_anew() -> None:
    bench = Bench()
    for _ in range(3):
        bench.admit(TIGHT)
    bench.now += 5
    for _ in range(2):
        assert bench.admit(TIGHT)["reason"] == "free_heap"
    assert not bench.guard.snapshot().breaker_open


def test_a_healthy_sample_ends_the_streak() -> None:
    bench = Bench()
    for free in (TIGHT, TIGHT, PLENTY, TIGHT, TIGHT):
        bench.admit(free)
    assert not bench.guard.snapshot().breaker_open
    assert bench.guard.snapshot().shed_total == 4


def test_without_a_threshold_the_breaker_stays_closed() -> None:
    bench = Bench(breaker_threshold=0)
    for _ in range(10):
        assert bench.admit(TIGHT)["reason"] == "free_heap"
    assert bench.guard.snapshot().breaker_tripped_total == 0


def test_the_fifth_at_once_finds_no_place() -> None:
    bench = Bench()
    places = [bench.guard.enter() for _ in range(4)]
    assert details_of(bench.guard.enter) == {
        "reason": "concurrency",
        "limit": 4,
        "retryAfterMs": 1000,
    }
    places[0].leave()
    places[0].leave()
    assert bench.guard.snapshot().in_flight == 3
    bench.guard.enter()
    assert details_of(bench.guard.enter) is not None


def test_without_a_limit_there_is_always_a_place() -> None:
    bench = Bench(max_concurrent=0)
    for _ in range(50):
        bench.guard.enter()
    assert bench.guard.snapshot().in_flight == 50


def test_health_sees_what_was_refused() -> None:
    bench = Bench(max_concurrent=1)
    bench.guard.enter()
    assert details_of(bench.guard.enter) is not None
    for _ in range(3):
        bench.admit(TIGHT)
    bench.admit(PLENTY)
    bench.guard.note_coalesced()
    shown = bench.guard.snapshot()
    assert shown.enabled
    assert (shown.min_free_heap_mb, shown.max_concurrent, shown.in_flight) == (96, 1, 1)
    assert (shown.shed_total, shown.coalesced_total) == (3, 1)
    assert shown.concurrency_rejected_total == 1
    assert (shown.breaker_tripped_total, shown.breaker_rejected_total) == (1, 1)
    assert shown.last_shed_at is not None
    assert not Bench(disabled=True).guard.snapshot().enabled


def test_jobs_that_nobody_waits_for_take_places_too() -> None:
    jobs = [1]
    limits = HeavyLimits(
        disabled=False,
        min_free_mb=0,
        retry_after_ms=1000,
        max_concurrent=2,
        breaker_threshold=3,
        breaker_cooldown_ms=5000,
    )
    guard = HeavyGuard(limits, jobs_alone=lambda: jobs[0])
    guard.enter()
    with pytest.raises(MaadError) as refused:
        guard.enter()
    assert refused.value.details == {"reason": "concurrency", "limit": 2, "retryAfterMs": 1000}
    assert guard.snapshot().in_flight == 2
    jobs[0] = 0
    guard.enter()
