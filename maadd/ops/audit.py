"""The audit channel: who changed what, one JSON line an event (spec 04 §16)."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from maadd.ops.lines import encode_line, open_sink
from maadd.ops.redaction import scrub_members
from maadd.protocol.errors import MaadError
from maadd.protocol.line_sink import LineSink

OnFault = Callable[[str | None], None]

_STDERR = 2
_CLOSE_S = 0.2
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class AuditLog:
    """Appends to a file, or to standard error without one; safe from any thread.

    `lost` counts the lines that did not reach their file; `on_fault` is told of the first one
    (what stands against it), and with None when the file takes lines again.
    """

    def __init__(
        self, path: str | None, descriptor: int, elsewhere: LineSink, on_fault: OnFault
    ) -> None:
        self.path = path
        self.lost = 0
        self._descriptor = descriptor
        self._elsewhere = elsewhere
        self._on_fault = on_fault
        self._sink = elsewhere if path is None else open_sink(descriptor)
        self._failing = False
        self._lock = threading.Lock()

    @classmethod
    def open(
        cls,
        path: str | None,
        stderr: LineSink | None = None,
        on_fault: OnFault = lambda _reason: None,
    ) -> AuditLog:
        """The channel at `path` (None: standard error). Raises INSTANCE_CONFIG_INVALID."""
        elsewhere = open_sink(_STDERR) if stderr is None else stderr
        if path is None:
            return cls(None, _STDERR, elsewhere, on_fault)
        try:
            return cls(path, _open(path), elsewhere, on_fault)
        except OSError as error:
            raise MaadError(
                "INSTANCE_CONFIG_INVALID",
                f"MAAD_AUDIT_PATH={path!r} cannot be opened: {error.strerror}",
            ) from None

    def write(self, event: str, **fields: Any) -> None:
        """One line. A line that the file refuses goes to standard error and counts as `lost`."""
        line = encode_line(
            {
                "level": 30,
                "time": int(time.time() * 1000),
                "channel": "audit",
                **scrub_members(fields),
                "msg": event,
            }
        )
        with self._lock:
            written = self._sink.write(line)
            turned = written == self._failing
            self._failing = not written
            if not written:
                self.lost += 1
                if self.path is not None:
                    self._elsewhere.write(line)
        if turned:
            self._on_fault(None if written else self._sink.last_failure)

    def reopen(self) -> None:
        """Opens the path anew, after a rotation. Raises OSError and goes on with the old file."""
        if self.path is None:
            return
        fresh = _open(self.path)
        with self._lock:
            self._sink.close()
            old, self._descriptor = self._descriptor, fresh
            self._sink = open_sink(fresh)
        os.close(old)

    def close(self) -> None:
        """Ends the channel; later lines go to standard error."""
        with self._lock:
            old, self._descriptor = self._descriptor, _STDERR
            if old != _STDERR:
                self._sink.close(_CLOSE_S)
                self._sink = self._elsewhere
        if old != _STDERR:
            os.close(old)


def _open(path: str) -> int:
    """A pipe that nobody reads refuses with ENXIO instead of waiting for its reader."""
    descriptor = os.open(path, _FLAGS | os.O_NONBLOCK, 0o640)
    os.set_blocking(descriptor, True)
    return descriptor
