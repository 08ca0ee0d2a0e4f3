"""Admission of heavy tools: free memory, a breaker, places for the whole server (spec 04 §12.4)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import msgspec

from maadd.auth.timestamps import format_timestamp
from maadd.config.settings import Settings
from maadd.protocol.errors import MaadError


class HeavyLimits(msgspec.Struct, frozen=True):
    """The knobs; 0 turns the places and the breaker off, `disabled` everything."""

    disabled: bool
    min_free_mb: int
    retry_after_ms: int
    max_concurrent: int
    breaker_threshold: int
    breaker_cooldown_ms: int


class FreeMemory(msgspec.Struct, frozen=True):
    """MiB until the worker's own limit and until the control group's; None where there is no
    limit or nothing is known."""

    heap_mb: float | None
    cgroup_mb: float | None


class HeavySnapshot(msgspec.Struct, frozen=True, rename="camel"):
    """`runtime.heavyOpGuard` of health (spec 03 §6.6)."""

    enabled: bool
    min_free_heap_mb: int
    max_concurrent: int
    in_flight: int
    breaker_open: bool
    shed_total: int
    coalesced_total: int
    concurrency_rejected_total: int
    breaker_tripped_total: int
    breaker_rejected_total: int
    last_shed_at: str | None


class HeavyPlace:
    """One of the places, held until the operation has really ended."""

    __slots__ = ("_guard",)

    def __init__(self, guard: HeavyGuard) -> None:
        self._guard: HeavyGuard | None = guard

    def leave(self) -> None:
        """Give the place back; a second time does nothing."""
        if self._guard is not None:
            self._guard.in_flight -= 1
            self._guard = None


class HeavyGuard:
    """Judges heavy calls; `clock` is monotonic seconds.

    `jobs_alone` counts background jobs that no call waits for; they take places too.
    """

    def __init__(
        self,
        limits: HeavyLimits,
        clock: Callable[[], float] = time.monotonic,
        jobs_alone: Callable[[], int] = lambda: 0,
    ) -> None:
        self.in_flight = 0
        self._jobs_alone = jobs_alone
        self._limits = limits
        self._clock = clock
        self._streak = 0
        self._open_until = -math.inf
        self._shed_total = 0
        self._coalesced_total = 0
        self._concurrency_rejected_total = 0
        self._breaker_tripped_total = 0
        self._breaker_rejected_total = 0
        self._last_shed_at: str | None = None

    @property
    def enabled(self) -> bool:
        """Whether there is a guard at all."""
        return not self._limits.disabled

    def admit(self, sample: Callable[[], FreeMemory]) -> None:
        """Let the call go on, or OVERLOADED with the reason `breaker_open`, `free_heap` or
        `free_cgroup`. While the breaker is open no sample is taken."""
        wait_s = self._open_until - self._clock()
        if wait_s > 0:
            self._breaker_rejected_total += 1
            raise _overloaded(
                "memory was short several times in a row; heavy tools rest for a while",
                "breaker_open",
                math.ceil(wait_s * 1000),
            )
        free = sample()
        for reason, free_mb in (("free_heap", free.heap_mb), ("free_cgroup", free.cgroup_mb)):
            if free_mb is not None and free_mb < self._limits.min_free_mb:
                self._shed()
                raise _overloaded(
                    f"{free_mb:.1f} MiB of memory are free, a heavy tool needs "
                    f"{self._limits.min_free_mb}",
                    reason,
                    self._limits.retry_after_ms,
                    freeMb=round(free_mb, 1),
                    minFreeMb=self._limits.min_free_mb,
                )
        self._streak = 0

    def enter(self) -> HeavyPlace:
        """Take a place, or OVERLOADED with the reason `concurrency`."""
        limit = self._limits.max_concurrent
        if 0 < limit <= self.in_flight + self._jobs_alone():
            self._concurrency_rejected_total += 1
            raise _overloaded(
                f"{limit} heavy operations are running, as many as may be",
                "concurrency",
                self._limits.retry_after_ms,
                limit=limit,
            )
        self.in_flight += 1
        return HeavyPlace(self)

    def note_coalesced(self) -> None:
        """Count a call that shares another's execution."""
        self._coalesced_total += 1

    def snapshot(self) -> HeavySnapshot:
        """The guard as health shows it."""
        return HeavySnapshot(
            enabled=self.enabled,
            min_free_heap_mb=self._limits.min_free_mb,
            max_concurrent=self._limits.max_concurrent,
            in_flight=self.in_flight + self._jobs_alone(),
            breaker_open=self._open_until > self._clock(),
            shed_total=self._shed_total,
            coalesced_total=self._coalesced_total,
            concurrency_rejected_total=self._concurrency_rejected_total,
            breaker_tripped_total=self._breaker_tripped_total,
            breaker_rejected_total=self._breaker_rejected_total,
            last_shed_at=self._last_shed_at,
        )

    def _shed(self) -> None:
        self._shed_total += 1
        self._last_shed_at = format_timestamp(time.time())
        self._streak += 1
        if 0 < self._limits.breaker_threshold <= self._streak:
            self._streak = 0
            self._breaker_tripped_total += 1
            self._open_until = self._clock() + self._limits.breaker_cooldown_ms / 1000


def heavy_limits(settings: Settings) -> HeavyLimits:
    """The knobs as the environment sets them."""
    return HeavyLimits(
        disabled=settings.heavy_op_guard_disable,
        min_free_mb=settings.heavy_op_min_free_heap_mb,
        retry_after_ms=settings.heavy_op_retry_after_ms,
        max_concurrent=settings.heavy_op_max_concurrent,
        breaker_threshold=settings.heavy_op_breaker_threshold,
        breaker_cooldown_ms=settings.heavy_op_breaker_cooldown_ms,
    )


def _overloaded(message: str, reason: str, retry_after_ms: int, **details: Any) -> MaadError:
    return MaadError(
        "OVERLOADED",
        f"{message}; try again in {retry_after_ms} ms",
        {"reason": reason, **details, "retryAfterMs": retry_after_ms},
    )
