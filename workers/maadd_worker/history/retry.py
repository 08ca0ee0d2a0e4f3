"""When a history step that failed is tried again (spec 03 §7.3, §9.3)."""

from __future__ import annotations

import random
import time

from maadd_worker.history.outcome import GitFailure

RETRY_S = 5.0
LONGEST_RETRY_S = 300.0
LOCK_POLL_S = 0.25

_TEMPORARY = ("index-lock", "ref-lock", "merge", "cherry-pick", "rebase")
_MOST_DOUBLINGS = 16
_JITTER = 0.25


class Retry:
    """The clock of one policy's retries. Changed by the writer's thread only.

    What somebody else will end is tried every five seconds; anything else at `base_s`, twice
    that, and so on up to five minutes, with jitter.
    """

    __slots__ = ("_attempts", "_base_s", "due", "failure")

    def __init__(self, base_s: float = RETRY_S) -> None:
        self._base_s = base_s
        self._attempts = 0
        self.failure: GitFailure | None = None
        """Why the last attempt failed; None when it did not."""
        self.due = 0.0
        """Monotonic time of the next attempt."""

    @property
    def is_temporary(self) -> bool:
        """Whether nothing but a lock or an unfinished operation of somebody else is in the way."""
        return self.failure is not None and self.failure.reason in _TEMPORARY

    def clear(self) -> None:
        """The last attempt succeeded."""
        self.failure = None

    def failed(self, failure: GitFailure, *, again: bool) -> None:
        """Take note of a failed attempt; `again` when nothing new was tried with it."""
        self._attempts = self._attempts + 1 if again else 0
        self.failure = failure
        if self.is_temporary:
            delay = RETRY_S
        else:
            # A child that hangs would hold the writer for most of the time.
            base = max(self._base_s, RETRY_S) if failure.timed_out else self._base_s
            delay = min(base * 2 ** min(self._attempts, _MOST_DOUBLINGS), LONGEST_RETRY_S)
            delay *= random.uniform(1 - _JITTER, 1 + _JITTER)
        self.due = time.monotonic() + delay

    def seconds_left(self, *, lock_is_held: bool) -> float:
        """Seconds until the next attempt is due; 0 when it is now.

        A held index lock is looked at often, and its end makes the attempt due at once.
        """
        remaining = max(0.0, self.due - time.monotonic())
        if self.failure is not None and self.failure.reason == "index-lock":
            return min(remaining, LOCK_POLL_S) if lock_is_held else 0.0
        return remaining
