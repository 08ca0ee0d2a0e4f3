"""A brake on repeated failed authentications of one address (spec 04 §9.1)."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

_PER_SECOND = 10.0
_ADDRESSES = 4096
"""Addresses remembered; the one quiet for longest is forgotten first."""


class FailureThrottle:
    """One bucket of ten failures per address, refilled with ten a second."""

    __slots__ = ("_buckets", "_clock")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def admit(self, address: str) -> bool:
        """Count one failure; False when this address has had too many."""
        now = self._clock()
        tokens, stamp = self._buckets.get(address, (_PER_SECOND, now))
        tokens = min(_PER_SECOND, tokens + (now - stamp) * _PER_SECOND)
        admitted = tokens >= 1
        self._buckets[address] = (tokens - 1 if admitted else tokens, now)
        self._buckets.move_to_end(address)
        if len(self._buckets) > _ADDRESSES:
            self._buckets.popitem(last=False)
        return admitted
