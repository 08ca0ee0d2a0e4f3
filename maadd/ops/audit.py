"""The audit channel: who changed what, one JSON line an event (spec 04 §16)."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from maadd.ops.lines import encode_line, write_line
from maadd.ops.redaction import scrub_members
from maadd.protocol.errors import MaadError

_STDERR = 2
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class AuditLog:
    """Appends to a file, or to standard error without one; safe from any thread."""

    def __init__(self, path: str | None, descriptor: int) -> None:
        self.path = path
        self.lost = 0
        self._descriptor = descriptor
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: str | None) -> AuditLog:
        """The channel at `path` (None: standard error). Raises INSTANCE_CONFIG_INVALID."""
        if path is None:
            return cls(None, _STDERR)
        try:
            return cls(path, os.open(path, _FLAGS, 0o640))
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
            try:
                write_line(self._descriptor, line)
            except OSError:
                self.lost += 1
                if self.path is not None:
                    _write_elsewhere(line)

    def reopen(self) -> None:
        """Opens the path anew, after a rotation. Raises OSError and goes on with the old file."""
        if self.path is None:
            return
        fresh = os.open(self.path, _FLAGS, 0o640)
        with self._lock:
            old, self._descriptor = self._descriptor, fresh
        os.close(old)

    def close(self) -> None:
        """Ends the channel; later lines go to standard error."""
        with self._lock:
            old, self._descriptor = self._descriptor, _STDERR
        if old != _STDERR:
            os.close(old)


def _write_elsewhere(line: bytes) -> None:
    try:
        write_line(_STDERR, line)
    except OSError:
        return  # counted already, and there is no third place
