"""Derived answers kept until the records they rest on change."""

from __future__ import annotations

import threading

_BUDGET = 40_000
"""Total cost of remembered answers: about as many short tuples."""


class AnswerMemo:
    """Answers by key, each of one generation of its type; shared by all readers of an index.

    Values are shared too: whoever recalls one must not change it.
    """

    __slots__ = ("_answers", "_cost", "_lock")

    def __init__(self) -> None:
        self._answers: dict[object, tuple[int, object]] = {}
        self._cost = 0
        self._lock = threading.Lock()

    def recall(self, key: object, generation: int) -> object | None:
        """What was remembered under the key, if its generation is still the same."""
        entry = self._answers.get(key)
        return entry[1] if entry is not None and entry[0] == generation else None

    def remember(self, key: object, generation: int, value: object, cost: int = 1) -> None:
        """Keep an answer that holds for one generation of its type."""
        with self._lock:
            if self._cost + cost > _BUDGET:
                self._answers.clear()
                self._cost = 0
            self._answers[key] = (generation, value)
            self._cost += cost
