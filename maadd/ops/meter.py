"""What the front counts of its own work, for the metrics (spec 04 §9.9).

Counting costs each call a few dictionary look-ups, whether anybody asks for the figures or
not. Every label has a bounded set of values: configured projects, tools of the table, codes and
reasons that are ours.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection

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


class Latency:
    """How long calls took: how many fell into each bucket, and seconds in sum."""

    __slots__ = ("buckets", "total_s")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.total_s = 0.0

    def copy(self) -> Latency:
        """As it is now."""
        made = Latency()
        made.buckets = self.buckets.copy()
        made.total_s = self.total_s
        return made


class _Tally:
    """The calls of one tool on one project: how many succeeded, and where their times go."""

    __slots__ = ("of_project", "of_tool", "successes")

    def __init__(self, of_project: Latency, of_tool: Latency) -> None:
        self.successes = 0
        self.of_project = of_project
        self.of_tool = of_tool


class Meter:
    """Counts since the start. Belongs to the event loop's thread.

    A project of "" stands for calls that reached none.
    """

    __slots__ = ("_tallies", "closed", "errors", "of_project", "of_tool", "refused")

    def __init__(self) -> None:
        self.errors: Counter[tuple[str, str, str, str]] = Counter()
        """By project, tool, code and reason."""
        self.of_project: dict[str, Latency] = {}
        self.of_tool: dict[str, Latency] = {}
        self.refused: Counter[tuple[str, str]] = Counter()
        """HTTP requests that were refused, by code and reason."""
        self.closed: Counter[str] = Counter()
        """Sessions that ended, by close reason."""
        self._tallies: dict[tuple[str | None, str], _Tally] = {}

    def successes(self) -> dict[tuple[str, str], int]:
        """By project and tool."""
        return {
            (project or "", tool): tally.successes
            for (project, tool), tally in self._tallies.items()
            if tally.successes
        }

    def succeeded(self, project: str | None, tool: str, seconds: float) -> None:
        """A call was answered `ok`."""
        self._took(project, tool, seconds).successes += 1

    def failed(
        self, project: str | None, tool: str, seconds: float, code: str, reason: object
    ) -> None:
        """A call was answered with an error; `reason` is its `details.reason`, if any."""
        known = tool if tool in TOOLS else UNKNOWN_TOOL
        named = reason if isinstance(reason, str) and reason in _REASONS else ""
        self.errors[project or "", known, code, named] += 1
        self._took(project, known, seconds)

    def keep(self, projects: Collection[str]) -> None:
        """Forget projects that are no longer served."""
        kept = {"", None, *projects}
        for project in [name for name in self.of_project if name not in kept]:
            del self.of_project[project]
        for call in [key for key in self._tallies if key[0] not in kept]:
            del self._tallies[call]
        for error in [key for key in self.errors if key[0] not in kept]:
            del self.errors[error]

    def _took(self, project: str | None, tool: str, seconds: float) -> _Tally:
        tally = self._tallies.get((project, tool))
        if tally is None:
            tally = self._tallies[project, tool] = _Tally(
                self.of_project.setdefault(project or "", Latency()),
                self.of_tool.setdefault(tool, Latency()),
            )
        bucket = bisect_left(BUCKETS_S, seconds)
        latency = tally.of_project
        latency.buckets[bucket] += 1
        latency.total_s += seconds
        latency = tally.of_tool
        latency.buckets[bucket] += 1
        latency.total_s += seconds
        return tally
