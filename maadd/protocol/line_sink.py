"""Where log lines go: written at once, and never waited for (spec 04 §16).

A reader of standard error that is slow, or that never reads, must not hold up a server. Lines
that a pipe, a socket or a terminal does not take at once wait for it in a bounded queue, in
their order; what does not fit there is dropped, counted, and told of when the channel flows
again. Files take every line at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import stat
import threading
from collections import deque
from collections.abc import Callable

QUEUE_BYTES = 1 << 20
"""How much may wait for a reader."""

_NO_WAIT = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


class LineSink:
    """One descriptor for lines; safe from every thread. It is not closed with the sink.

    `loss_line` makes the line that tells how many were dropped. `lost` counts the lines that
    will never be read: those and the ones that the channel refused; `last_failure` says why.
    """

    def __init__(
        self,
        descriptor: int,
        loss_line: Callable[[int], bytes],
        *,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        self.lost = 0
        self.last_failure = ""
        self._loss_line = loss_line
        self._room = queue_bytes
        self._descriptor = descriptor
        self._close_private: Callable[[], None] = _nothing
        self._write_now = self._choose_way()
        self._queue: deque[bytes] = deque()
        self._waiting = 0
        self._dropped = 0
        self._pumping = False
        # Reentrant: a collected object may log while a line is being written.
        self._changed = threading.Condition(threading.RLock())

    def write(self, line: bytes) -> bool:
        """Take one line; whether it is written or waits to be. Never blocks, never raises."""
        with self._changed:
            if not self._queue and self._write_now is not None:
                try:
                    written = self._write_now(line)
                except BlockingIOError:
                    written = 0
                except OSError as error:
                    self.lost += 1
                    self.last_failure = error.strerror or str(error)
                    return False
                if written == len(line):
                    return True
                line = line[written:]
            elif self._waiting + len(line) > self._room:
                self.lost += 1
                self._dropped += 1
                self.last_failure = "its reader does not read"
                self._start_pump()
                return False
            self._enqueue(line)
            self._start_pump()
        return True

    def flush(self, within_s: float) -> bool:
        """Wait until nothing waits for the reader, at most `within_s` seconds; whether so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue, within_s)

    def close(self, within_s: float = 0.0) -> None:
        """Flush, and let the channel go; what is written afterwards is lost."""
        self.flush(within_s)
        with self._changed:
            self._write_now = _refuse
            self._close_private()
            self._close_private = _nothing

    def _choose_way(self) -> Callable[[bytes], int] | None:
        """How a line is written without waiting; None where only a thread can wait for it.

        O_NONBLOCK on the descriptor itself would be set for everybody who shares it.
        """
        descriptor = self._descriptor
        try:
            mode = os.fstat(descriptor).st_mode
        except OSError:
            mode = stat.S_IFREG  # closed: each write says so
        if stat.S_ISSOCK(mode):
            channel = socket.socket(fileno=os.dup(descriptor))
            self._close_private = channel.close
            return lambda line: channel.send(line, _NO_WAIT)
        if not (stat.S_ISFIFO(mode) or os.isatty(descriptor)):
            return lambda line: _write_whole(descriptor, line)
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            own = os.open(f"/proc/self/fd/{descriptor}", flags)
        except OSError:
            return None  # of another user, as in a container that changed its own
        self._close_private = lambda: os.close(own)
        return lambda line: os.write(own, line)

    def _enqueue(self, line: bytes) -> None:
        self._queue.append(line)
        self._waiting += len(line)

    def _start_pump(self) -> None:
        if self._pumping:
            return
        # Where no thread can be had the next line tries again.
        with contextlib.suppress(RuntimeError):
            threading.Thread(target=self._pump, name="log-lines", daemon=True).start()
            self._pumping = True

    def _pump(self) -> None:
        """Write what waits, in order, until nothing does. Holds no lock while it waits."""
        while True:
            with self._changed:
                if not self._queue and self._dropped:
                    self._enqueue(self._loss_line(self._dropped))
                    self._dropped = 0
                if not self._queue:
                    self._pumping = False
                    return
                line = self._queue[0]
            try:
                self._write_waiting(line)
            except OSError:
                with self._changed:
                    self.lost += len(self._queue)
                    self._queue.clear()
                    self._waiting = 0
                    self._changed.notify_all()
                continue
            with self._changed:
                self._queue.popleft()
                self._waiting -= len(line)
                self._changed.notify_all()

    def _write_waiting(self, line: bytes) -> None:
        if self._write_now is None:
            _write_whole(self._descriptor, line)
            return
        while line:
            try:
                with self._changed:
                    line = line[self._write_now(line) :]
            except BlockingIOError:
                _await_room(self._descriptor)


def _nothing() -> None:
    return


def _refuse(_line: bytes) -> int:
    raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def _write_whole(descriptor: int, line: bytes) -> int:
    """One write; only a short one is continued, and a full channel waited for."""
    rest = line
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            _await_room(descriptor)
    return len(line)


def _await_room(descriptor: int) -> None:
    poller = select.poll()
    poller.register(descriptor, select.POLLOUT)
    poller.poll()
