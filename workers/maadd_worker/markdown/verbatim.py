"""Verbatim zones of a body: fenced code blocks and inline code spans (spec 01 §5.1, §5.2).

One fence scanner, CommonMark's, for headings, annotations and value calls alike.
"""

from __future__ import annotations

import re
from bisect import bisect_right

_FENCE = re.compile(r"\n {0,3}(`{3,}|~{3,})([^\n]*)")
_BACKTICKS = re.compile("`+")


class VerbatimZones:
    """Answers whether a position of a body is inside code.

    Fences are found at once, the code spans of a line when somebody asks about that line.
    Positions are 0-based code points of the body.
    """

    __slots__ = ("_body", "_fence_ends", "_fence_starts", "_line_end", "_line_start", "_spans")

    def __init__(self, body: str) -> None:
        self._body = body
        fences = fenced_ranges(body)
        self._fence_starts = [start for start, _ in fences]
        self._fence_ends = [end for _, end in fences]
        self._line_start = self._line_end = -1
        self._spans: list[tuple[int, int]] = []

    def in_fence(self, at: int) -> bool:
        """Whether `at` is on a line of a fenced block, opener and closer included."""
        nearest = bisect_right(self._fence_starts, at) - 1
        return nearest >= 0 and at < self._fence_ends[nearest]

    def covers(self, at: int) -> bool:
        """Whether `at` is inside a fenced block or an inline code span."""
        return self.in_fence(at) or self._in_code_span(at)

    def _in_code_span(self, at: int) -> bool:
        if not self._line_start <= at < self._line_end:
            self._line_start = self._body.rfind("\n", 0, at) + 1
            end = self._body.find("\n", at)
            self._line_end = len(self._body) if end < 0 else end
            self._spans = code_spans(self._body, self._line_start, self._line_end)
        nearest = bisect_right(self._spans, (at, len(self._body))) - 1
        return nearest >= 0 and at < self._spans[nearest][1]


def fenced_ranges(body: str) -> list[tuple[int, int]]:
    """Ranges `[start, end)` of the lines of each fenced block, in order.

    An opener has at most three spaces and three or more of one mark, and a backtick opener
    no backtick in its info string; the closer has the same mark, at least as often, and
    nothing else. An unclosed block runs to the end.
    """
    if "```" not in body and "~~~" not in body:
        return []
    ranges: list[tuple[int, int]] = []
    opener = ""
    start = 0
    # With a line feed in front, a match starts where its line starts in the body.
    for match in _FENCE.finditer("\n" + body):
        mark, rest = match.groups()
        if not opener:
            if mark[0] == "~" or "`" not in rest:
                opener, start = mark, match.start()
        elif mark.startswith(opener) and not rest.strip(" \t\r"):
            ranges.append((start, match.end() - 1))
            opener = ""
    if opener:
        ranges.append((start, len(body)))
    return ranges


def code_spans(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Ranges of the inline code spans of the line `text[start:end]`, backticks included.

    A run of n backticks closes at the next run of exactly n on the same line; without one it
    is plain text.
    """
    if text.find("`", start, end) < 0:
        return []
    runs = [match.span() for match in _BACKTICKS.finditer(text, start, end)]
    later: dict[int, list[int]] = {}
    for index in range(len(runs) - 1, -1, -1):
        run_start, run_end = runs[index]
        later.setdefault(run_end - run_start, []).append(index)
    spans: list[tuple[int, int]] = []
    index = 0
    while index < len(runs):
        run_start, run_end = runs[index]
        same_length = later[run_end - run_start]
        while same_length and same_length[-1] <= index:
            same_length.pop()
        if same_length:
            index = same_length[-1]
            spans.append((run_start, runs[index][1]))
        index += 1
    return spans
