"""The writes of the writer thread, as `maad_health` tells of them (spec 03 §6.3)."""

from __future__ import annotations

import datetime as dt
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

_RECENT_WRITES = 200


class _RunningWrite(msgspec.Struct, frozen=True):
    """The write that holds the writer thread."""

    op: str
    started_at: str
    since: float

    def view(self) -> dict[str, Any]:
        elapsed_ms = round((time.monotonic() - self.since) * 1000)
        return {"op": self.op, "startedAt": self.started_at, "elapsedMs": elapsed_ms}


class WriteActivity:
    """The write that runs now and how long the last ones took; other threads may look."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=_RECENT_WRITES)
        self._last_at: str | None = None
        self._current: _RunningWrite | None = None

    def begin(self, op: str) -> None:
        self._current = _RunningWrite(op, _now(), time.monotonic())

    @property
    def current(self) -> str | None:
        """The tool whose write runs now."""
        return None if self._current is None else self._current.op

    def end(self) -> None:
        """The write that began last, if any, is over."""
        if self._current is not None:
            self._times.append(time.monotonic() - self._current.since)
            self._last_at = _now()
            self._current = None

    def health(self) -> dict[str, Any]:
        current, times = self._current, sorted(self._times)
        return {
            "lastWriteOp": None if current is None else current.view(),
            "lastWriteAt": self._last_at,
            "writeLatencyMs": {"p50": _quantile(times, 0.5), "p95": _quantile(times, 0.95)},
        }


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    if not ordered:
        return None
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000, 3)
