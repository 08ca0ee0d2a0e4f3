"""Two threads for the reads that may be slow, each with its own connections.

A read past its deadline, or cancelled, is interrupted; the interrupt is repeated until the
read ends, because SQLite only hears it while a statement runs.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections import deque

from maadd.protocol.messages import Call, Reply
from maadd_worker.process.log import Log
from maadd_worker.process.outbox import Outbox
from maadd_worker.process.replies import internal_failure, read_timed_out, stack_of
from maadd_worker.process.served import AnyEngine, ServedReader

READER_THREADS = 2
_REPEAT_INTERRUPT_S = 0.05

_NICENESS = 5
"""Slow reads give way to what is answered at once, in this project and in all others: without
it they cost a project beside them several times its usual latency on a full machine."""


def answer_read(engine: AnyEngine, call: Call, reader: ServedReader, log: Log) -> Reply:
    """The engine's answer; INTERNAL instead of an exception, whose text nobody gets to see."""
    try:
        return engine.read(call, reader)
    except Exception as error:
        log.error(
            "tool_failed",
            request_id=call.request_id,
            tool=call.tool,
            error=type(error).__name__,
            stack=stack_of(error),
        )
        return internal_failure(call, None)


class _Slot:
    """What one reading thread does now. `lock` keeps an interrupt off the next read."""

    __slots__ = ("call", "deadline", "interrupted", "lock", "reader", "thread")

    def __init__(self, reader: ServedReader) -> None:
        self.reader = reader
        self.lock = threading.Lock()
        self.call: Call | None = None
        self.deadline = 0.0
        self.interrupted = False
        self.thread: threading.Thread | None = None


class ReadPool:
    """Fed by the main thread, which also tells it to look at the time (`check`)."""

    def __init__(self, engine: AnyEngine, limit: int, outbox: Outbox, log: Log) -> None:
        self._engine = engine
        self._limit = limit
        self._outbox = outbox
        self._log = log
        self._condition = threading.Condition()
        self._waiting: deque[tuple[Call, float]] = deque()
        self._closed = False
        self._next_check = math.inf
        self._slots = [_Slot(engine.open_reader()) for _ in range(READER_THREADS)]
        for number, slot in enumerate(self._slots, 1):
            slot.thread = threading.Thread(
                target=self._serve, args=(slot,), name=f"reader-{number}", daemon=True
            )
            slot.thread.start()

    def offer(self, call: Call) -> bool:
        """Accept a read; False when the queue is full."""
        with self._condition:
            if len(self._waiting) >= self._limit:
                return False
            deadline = time.monotonic() + call.deadline_ms / 1000
            self._next_check = min(self._next_check, deadline)
            self._waiting.append((call, deadline))
            self._condition.notify()
            return True

    def cancel(self, request_id: str) -> bool | None:
        """True: it had not begun and never will. False: it is being ended. None: not here."""
        with self._condition:
            for entry in self._waiting:
                if entry[0].request_id == request_id:
                    self._waiting.remove(entry)
                    return True
        for slot in self._slots:
            with slot.lock:
                if slot.call is not None and slot.call.request_id == request_id:
                    self._interrupt(slot)
                    return False
        return None

    def cancel_all(self) -> None:
        """Drop what waits and end what runs."""
        with self._condition:
            self._waiting.clear()
        for slot in self._slots:
            with slot.lock:
                if slot.call is not None:
                    self._interrupt(slot)

    def check(self, now: float) -> None:
        """End what is past its deadline."""
        if now < self._next_check:
            return
        deadlines = []
        with self._condition:
            for entry in list(self._waiting):
                if entry[1] <= now:
                    self._waiting.remove(entry)
                    self._outbox.post(read_timed_out(entry[0]))
                else:
                    deadlines.append(entry[1])
        for slot in self._slots:
            with slot.lock:
                if slot.call is not None:
                    if slot.deadline <= now:
                        self._interrupt(slot)
                    deadlines.append(slot.deadline)
        self._next_check = min(deadlines, default=math.inf)

    @property
    def next_check(self) -> float:
        """The monotonic time at which `check` may have something to do."""
        return self._next_check

    def depth(self) -> int:
        """Reads accepted and not yet answered."""
        return len(self._waiting) + sum(slot.call is not None for slot in self._slots)

    def close(self) -> None:
        """End the threads (no read may be left) and close their connections."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        for slot in self._slots:
            if slot.thread is not None:
                slot.thread.join()
            slot.reader.close()

    def _interrupt(self, slot: _Slot) -> None:
        slot.interrupted = True
        slot.deadline = time.monotonic() + _REPEAT_INTERRUPT_S
        self._next_check = min(self._next_check, slot.deadline)
        slot.reader.interrupt()

    def _serve(self, slot: _Slot) -> None:
        _give_way()
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                call, deadline = self._waiting.popleft()
                with slot.lock:
                    slot.deadline = deadline
                    slot.interrupted = False
                    slot.call = call
            reply = answer_read(self._engine, call, slot.reader, self._log)
            with slot.lock:
                slot.call = None
                interrupted = slot.interrupted
            if interrupted and not reply.ok:
                reply = read_timed_out(call)
            self._outbox.post(reply)


def _give_way() -> None:
    """Lower the priority of the calling thread, which on Linux has one of its own."""
    with contextlib.suppress(PermissionError):  # a sandbox may forbid even that
        mine = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, 0, mine + _NICENESS)
