"""What moved HEAD lately, so that commits are not left behind by a switch to a new branch.

`git checkout -b` reads the commit first and writes the name of the branch into HEAD later. What
is committed in between lies on the old branch alone; its files are on the disk and in the index.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec

from maadd_worker.history.store import Person
from maadd_worker.history.trees import TreeEntry

_REMEMBERED_S = 5.0


class Move(msgspec.Struct, frozen=True):
    """One group of commits: the ref that got them, its commit before and after (full ids), and
    what they set; `at` is monotonic."""

    ref: str
    base: str
    to: str
    touched: Mapping[str, TreeEntry | None]
    person: Person
    at: float


class RecentMoves:
    """The moves of the last seconds, oldest first, each of which starts where the one before
    ended. Used from one thread."""

    __slots__ = ("_moves",)

    def __init__(self) -> None:
        self._moves: list[Move] = []

    @property
    def last(self) -> Move | None:
        """The newest, unless it is too long ago for a switch that began before it."""
        last = self._moves[-1] if self._moves else None
        return last if last is not None and last.at >= _oldest() else None

    def add(self, move: Move) -> None:
        """The newest move."""
        last = self.last
        if last is not None and (last.ref, last.to) != (move.ref, move.base):
            self._moves.clear()
        oldest = _oldest()
        while self._moves and self._moves[0].at < oldest:
            del self._moves[0]
        self._moves.append(move)

    def clear(self) -> None:
        """No commit of them can be left behind any more."""
        self._moves.clear()

    def touched_since(self, sha: str) -> dict[str, TreeEntry | None] | None:
        """What the commits since `sha` have set; None when no move started there."""
        touched: dict[str, TreeEntry | None] = {}
        for number, move in enumerate(self._moves):
            if move.base == sha:
                for left in self._moves[number:]:
                    touched |= left.touched
                return touched
        return None


def _oldest() -> float:
    return time.monotonic() - _REMEMBERED_S
