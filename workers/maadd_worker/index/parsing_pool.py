"""Parsing processes, as seen from the pass that starts them (spec 01 §14.2).

They only save time: what none of them answers is prepared by whoever asked.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future

from maadd_worker.index.frames import Assignment, encode, read_frame, write_frame
from maadd_worker.index.prepare import FileTask

_COMMAND = ("-m", "maadd_worker.index.parsing_process")
_MOST = 3
_AHEAD = 2
"""Batches that a process has at a time: one in hand and the next."""

_END_S = 5.0

Answer = Future[bytes]
"""The frame of a batch; cancelled when its process ends without it."""


def useful_processes() -> int:
    """One for each processor besides that of the pass itself, at most three."""
    if hasattr(os, "sched_getaffinity"):
        processors = len(os.sched_getaffinity(0))
    else:
        processors = os.cpu_count() or 1
    return min(_MOST, processors - 1)


class ParsingPool:
    """Some parsing processes. Used by one thread; the owner closes it."""

    def __init__(self, assignment: Assignment, size: int) -> None:
        payload = encode(assignment)
        self._processes: list[_ParsingProcess] = []
        for _ in range(size):
            try:
                self._processes.append(_ParsingProcess(payload))
            except OSError:
                break

    @property
    def answered(self) -> bool:
        """Whether a process has answered yet; before that they are still starting."""
        return any(process.answered for process in self._processes)

    def submit(self, tasks: Sequence[FileTask]) -> Answer | None:
        """Give a batch to the process that has the least to do; None when all have enough."""
        running = [process for process in self._processes if process.running]
        if not running:
            return None
        process = min(running, key=_ParsingProcess.load)
        return process.submit(encode(tasks)) if process.load() < _AHEAD else None

    def kill(self) -> None:
        """End the processes at once; what they have is lost."""
        for process in self._processes:
            process.kill()

    def close(self) -> None:
        """Let the processes end, and wait for them."""
        for process in self._processes:
            process.close()


class _ParsingProcess:
    """One process with the thread that receives its answers, which come in order."""

    def __init__(self, assignment: bytes) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *_COMMAND], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._pending: deque[Answer] = deque()
        self._lock = threading.Lock()
        self.running = True
        self.answered = False
        self._receiver = threading.Thread(target=self._receive, name="parsing", daemon=True)
        self._receiver.start()
        self._send(assignment)

    def load(self) -> int:
        """Batches given and not answered."""
        return len(self._pending)

    def submit(self, payload: bytes) -> Answer | None:
        answer: Answer = Future()
        with self._lock:
            if not self.running:
                return None
            self._pending.append(answer)
        self._send(payload)
        return answer

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except OSError:
            self.kill()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        self._receiver.join()

    def _send(self, payload: bytes) -> None:
        assert self._process.stdin is not None
        try:
            write_frame(self._process.stdin, payload)
        except OSError:
            # It has ended; the receiver finds that out and gives up what is pending.
            self.kill()

    def _receive(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            while (frame := read_frame(stream)) is not None:
                self.answered = True
                self._pending.popleft().set_result(frame)
        with self._lock:
            self.running = False
            while self._pending:
                self._pending.popleft().cancel()
