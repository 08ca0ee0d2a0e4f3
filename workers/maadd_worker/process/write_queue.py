"""The writes of a project in order of arrival, and the gate before their publish point.

A write is *waiting* until the writer takes it, *taken* until the engine has it admitted,
*admitted* until it is answered, or *deferred* where its answer does not come with its group. Up
to its admission it can be withdrawn or given up as too late, and nothing of it will ever be
published (spec 03 §2.2, spec 04 §6).
"""

from __future__ import annotations

import enum
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from maadd.protocol.errors import WireError
from maadd.protocol.messages import PERMIT_WAIT_S, Call, Permit

GROUP_LIMIT = 64
_GATHER_S = 0.004
_GATHER_GAP_S = 0.0015
"""How long the writer waits for the callers that it has just answered, in all and for the next
of them: a group of eight costs little more than one of four."""


_NOT_PUBLISHED = {"writeOutcome": "not_published"}
_GIVEN_UP = WireError(
    "REQUEST_TIMEOUT", "the call was given up; nothing was written", _NOT_PUBLISHED
)
_NO_WORD = WireError(
    "REQUEST_TIMEOUT",
    "the server did not confirm in time that the write may go on; nothing was written",
    _NOT_PUBLISHED,
)


class _Stage(enum.Enum):
    WAITING = 1
    TAKEN = 2
    ADMITTED = 3
    DEFERRED = 4


_TOO_LATE = (_Stage.ADMITTED, _Stage.DEFERRED)


class _Write:
    __slots__ = ("call", "permit", "received", "stage")

    def __init__(self, call: Call, received: float) -> None:
        self.call = call
        self.received = received
        self.stage = _Stage.WAITING
        self.permit: Permit | None = None
        """The front's word on its publication, once it is there."""


GiveUp = Callable[[Call, int, int], None]
"""Called for a write that waited too long: the call, milliseconds waited, queue depth."""

AskPermit = Callable[[str], None]
"""Has the front asked whether this request may be published."""


class WriteQueue:
    """Shared by the main thread (offers, withdraws) and the writer (takes, admits).

    `limit` bounds the waiting writes, `wait_ms` the time until a write is admitted.
    """

    def __init__(self, limit: int, wait_ms: int, give_up: GiveUp, ask_permit: AskPermit) -> None:
        self._limit = limit
        self._ask_permit = ask_permit
        self._wait_s = wait_ms / 1000
        self._give_up = give_up
        self._condition = threading.Condition()
        self._writes: dict[str, _Write] = {}
        self._waiting: deque[_Write] = deque()
        self._closed = False
        self._woken = False
        self._answered = 0

    def offer(self, call: Call) -> bool:
        """Accept a write; False when the queue is full."""
        with self._condition:
            if len(self._waiting) >= self._limit:
                return False
            write = _Write(call, time.monotonic())
            self._writes[call.request_id] = write
            self._waiting.append(write)
            self._condition.notify()
            return True

    def take(self, timeout: float | None) -> list[Call] | None:
        """Writer: the waiting writes, at most `GROUP_LIMIT`.

        Empty after `timeout` seconds (None: no limit) or a `wake`; None when the queue is
        closed and nothing waits any more. Where several callers take turns, those of the last
        group are given a moment to come back.
        """
        with self._condition:
            callers = min(self._answered + len(self._waiting), GROUP_LIMIT)
            self._answered = 0
            self._condition.wait_for(lambda: self._waiting or self._woken or self._closed, timeout)
            self._woken = False
            if not self._waiting:
                return None if self._closed else []
            self._gather(callers)
            group: list[Call] = []
            while self._waiting and len(group) < GROUP_LIMIT:
                write = self._waiting.popleft()
                write.stage = _Stage.TAKEN
                group.append(write.call)
            self._answered = len(group)
            return group

    def _gather(self, callers: int) -> None:
        """Wait until so many writes wait, for as long as they keep coming."""
        give_up = time.monotonic() + _GATHER_S
        while len(self._waiting) < callers and not self._closed:
            there = len(self._waiting)
            self._condition.wait(max(0.0, min(_GATHER_GAP_S, give_up - time.monotonic())))
            if len(self._waiting) == there:
                return

    def admit(self, request_id: str) -> bool:
        """Writer: see `Gate.admit`."""
        with self._condition:
            write = self._writes.get(request_id)
            if write is None:
                return False
            if write.stage is not _Stage.ADMITTED:
                if time.monotonic() - write.received > self._wait_s:
                    self._expire(write)
                    return False
                write.stage = _Stage.ADMITTED
            return True

    def wanted(self, request_id: str) -> bool:
        """Writer: see `Gate.wanted`."""
        with self._condition:
            write = self._writes.get(request_id)
            return write is not None and time.monotonic() < _deadline(write)

    def permit(self, request_id: str) -> WireError | None:
        """Writer: see `Gate.permit`."""
        with self._condition:
            write = self._writes.get(request_id)
            if write is None:
                return _GIVEN_UP
            self._ask_permit(request_id)
            left_s = _deadline(write) - time.monotonic()
            self._condition.wait_for(
                lambda: write.permit is not None or request_id not in self._writes,
                min(PERMIT_WAIT_S, max(0.0, left_s)),
            )
            return _NO_WORD if write.permit is None else write.permit.refusal

    def take_permit(self, permit: Permit) -> None:
        """The front has answered."""
        with self._condition:
            write = self._writes.get(permit.request_id)
            if write is not None:
                write.permit = permit
                self._condition.notify()

    def defer(self, request_id: str) -> None:
        """Writer: see `Gate.defer`."""
        with self._condition:
            write = self._writes.get(request_id)
            if write is not None:
                write.stage = _Stage.DEFERRED

    def finish(self, request_id: str) -> bool:
        """Writer: the write is answered. False when its caller already has an answer."""
        with self._condition:
            return self._writes.pop(request_id, None) is not None

    def unanswered(self, group: Sequence[Call]) -> list[tuple[Call, bool]]:
        """Writer: the writes of a finished group that should have an answer and have none, and
        whether they were admitted."""
        with self._condition:
            left = (self._writes.get(call.request_id) for call in group)
            return [
                (write.call, write.stage is _Stage.ADMITTED)
                for write in left
                if write is not None and write.stage is not _Stage.DEFERRED
            ]

    def withdraw(self, request_id: str) -> bool | None:
        """True: nothing of it will be written. False: too late. None: not here (any more)."""
        with self._condition:
            write = self._writes.get(request_id)
            if write is None:
                return None
            if write.stage in _TOO_LATE:
                return False
            self._forget(write)
            return True

    def withdraw_all(self) -> None:
        """Withdraw every write that is not admitted."""
        with self._condition:
            for write in [w for w in self._writes.values() if w.stage not in _TOO_LATE]:
                self._forget(write)

    def expire(self, now: float) -> None:
        """Give up the waiting writes whose time is over."""
        with self._condition:
            while self._waiting and now - self._waiting[0].received > self._wait_s:
                self._expire(self._waiting[0])

    def next_expiry(self) -> float:
        """The monotonic time at which the oldest waiting write will have waited too long."""
        try:
            return self._waiting[0].received + self._wait_s
        except IndexError:
            return math.inf

    def depth(self) -> int:
        """Writes accepted and not yet answered."""
        return len(self._writes)

    def wake(self) -> None:
        """Let `take` return although no write waits."""
        with self._condition:
            self._woken = True
            self._condition.notify()

    def close(self) -> None:
        """Let the writer end when nothing waits any more."""
        with self._condition:
            self._closed = True
            self._condition.notify()

    def _expire(self, write: _Write) -> None:
        depth = len(self._writes)
        self._forget(write)
        self._give_up(write.call, int((time.monotonic() - write.received) * 1000), depth)

    def _forget(self, write: _Write) -> None:
        del self._writes[write.call.request_id]
        self._condition.notify()
        if write.stage is _Stage.WAITING:
            self._waiting.remove(write)


def _deadline(write: _Write) -> float:
    """The monotonic time at which nobody waits for the call any more."""
    return write.received + write.call.deadline_ms / 1000
