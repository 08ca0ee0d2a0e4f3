"""When a dead worker is started again (spec 04 §13). Pure: it is told the time and the dice."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

import msgspec

from maadd.pool.policy import RestartLimits


class Restart(msgspec.Struct, frozen=True):
    """What follows a death: wait `delay_s`, then try again.

    `failed`: calls are refused until then, and the next start is only a probe.
    """

    delay_s: float
    failed: bool


class RestartPolicy:
    """Counts the deaths of one project's workers."""

    def __init__(self, limits: RestartLimits, dice: Callable[[], float] = random.random) -> None:
        self._limits = limits
        self._dice = dice
        self._recent: deque[float] = deque()
        self._in_a_row = 0
        self._failed = False
        self._ready_since: float | None = None

    def ready(self, now: float) -> None:
        """A worker became ready."""
        self._ready_since = now

    def died(self, now: float) -> Restart:
        """A worker died, ready or not; says when the next one may start."""
        limits = self._limits
        if self._ready_since is not None and now - self._ready_since >= limits.healthy_s:
            self._recent.clear()
            self._in_a_row = 0
            self._failed = False
        self._ready_since = None
        self._recent.append(now)
        while now - self._recent[0] > limits.window_s:
            self._recent.popleft()
        # A probe that dies leaves the project failed, however long it took to die.
        self._failed = self._failed or len(self._recent) >= limits.max_deaths
        delay = min(limits.max_delay_s, limits.first_delay_s * 2.0 ** min(self._in_a_row, 60))
        self._in_a_row += 1
        spread = 1 - limits.jitter + 2 * limits.jitter * self._dice()
        return Restart(min(limits.max_delay_s, delay * spread), self._failed)

    def forget(self) -> None:
        """The project was stopped on purpose; the next start begins with a clean slate."""
        self._recent.clear()
        self._in_a_row = 0
        self._failed = False
        self._ready_since = None
