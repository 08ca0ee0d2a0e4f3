"""What the front counts of its own work, for the metrics (spec 04 §9.9).

Counting costs each call a few dictionary look-ups, whether anybody asks for the figures or
not. Every label has a bounded set of values: configured projects, tools of the table, codes and
reasons that are ours.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection

import msgspec

from maadd.protocol.tools import TOOLS

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the latency buckets, in seconds; one more takes what lies above."""

UNKNOWN_TOOL = "unknown"
"""Stands for every tool name that a client made up."""

_REASONS = frozenset(
    {
        "allowlist",
        "auth_failures",
        "breaker_open",
        "concurrency",
        "concurrent",
        "free_cgroup",
        "free_heap",
        "http_bytes",
        "payload_too_large",
        "sessions",
        "worker_queue",
        "workers",
        "writes_per_min",
        "writes_per_sec",
    }
)
"""Every `details.reason` of RATE_LIMITED, OVERLOADED and INSUFFICIENT_ROLE."""


class Latency(msgspec.Struct):
    """How long calls took: how many fell into each bucket, and seconds in sum."""

    buckets: list[int]
    total_s: float = 0.0

    def add(self, seconds: float) -> None:
        """One more call."""
        self.buckets[bisect_left(BUCKETS_S, seconds)] += 1
        self.total_s += seconds


class Meter:
    """Counts since the start. Belongs to the event loop's thread.

    A project of "" stands for calls that reached none.
    """

    __slots__ = ("closed", "errors", "of_project", "of_tool", "refused", "successes")

    def __init__(self) -> None:
        self.successes: Counter[tuple[str, str]] = Counter()
        """By project and tool."""
        self.errors: Counter[tuple[str, str, str, str]] = Counter()
        """By project, tool, code and reason."""
        self.of_project: dict[str, Latency] = {}
        self.of_tool: dict[str, Latency] = {}
        self.refused: Counter[tuple[str, str]] = Counter()
        """HTTP requests that were refused, by code and reason."""
        self.closed: Counter[str] = Counter()
        """Sessions that ended, by close reason."""

    def succeeded(self, project: str | None, tool: str, seconds: float) -> None:
        """A call was answered `ok`."""
        self.successes[project or "", tool] += 1
        self._took(project or "", tool, seconds)

    def failed(
        self, project: str | None, tool: str, seconds: float, code: str, reason: object
    ) -> None:
        """A call was answered with an error; `reason` is its `details.reason`, if any."""
        known = tool if tool in TOOLS else UNKNOWN_TOOL
        named = reason if isinstance(reason, str) and reason in _REASONS else ""
        self.errors[project or "", known, code, named] += 1
        self._took(project or "", known, seconds)

    def keep(self, projects: Collection[str]) -> None:
        """Forget projects that are no longer served."""
        kept = {"", *projects}
        for gone in [name for name in self.of_project if name not in kept]:
            del self.of_project[gone]
        for success in [key for key in self.successes if key[0] not in kept]:
            del self.successes[success]
        for error in [key for key in self.errors if key[0] not in kept]:
            del self.errors[error]

    def _took(self, project: str, tool: str, seconds: float) -> None:
        for latencies, name in ((self.of_project, project), (self.of_tool, tool)):
            latency = latencies.get(name)
            if latency is None:
                latency = latencies[name] = Latency([0] * (len(BUCKETS_S) + 1))
            latency.add(seconds)
