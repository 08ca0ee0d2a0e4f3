"""Log lines of a worker on standard error: JSON objects, or text for people (spec 04 §16).

Callers pass names, sizes and times only: no record body, field value or token is ever a
field of a line.
"""

from __future__ import annotations

import os
import socket
import time
from types import MappingProxyType
from typing import Any

import msgspec

from maadd.protocol.line_sink import LineSink
from maadd.protocol.pretty_line import pretty_line

LEVELS = MappingProxyType(
    {"trace": 10, "debug": 20, "info": 30, "warn": 40, "error": 50, "fatal": 60, "silent": 70}
)


_OF_THE_ENGINE = frozenset({"doc_too_large", "doc_body_truncated", "instructions_outdated"})
"""Events that belong to the engine family of lines, under their own names (spec 04 §16)."""


class Log:
    """Writes lines at or above a level; safe from every thread, and waits for no reader."""

    def __init__(self, level: str, project: str, fd: int = 2, *, pretty: bool = False) -> None:
        self._threshold = LEVELS.get(level, LEVELS["info"])
        self._project = project
        self._pretty = pretty
        self._sink = LineSink(fd, self._loss_line)
        self._pid = os.getpid()
        self._hostname = socket.gethostname()
        self._encoder = msgspec.json.Encoder(enc_hook=repr)

    @property
    def traces(self) -> bool:
        """Whether `debug` writes anything; ask before making its members in a hot place."""
        return self._threshold <= LEVELS["debug"]

    def debug(self, event: str, **fields: Any) -> None:
        """Something that only the search for a fault needs."""
        self._line("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Something that an operator may want to know."""
        self._line("info", event, fields)

    def warn(self, event: str, **fields: Any) -> None:
        """Something that works, but not as it should."""
        if event in _OF_THE_ENGINE:
            self.engine("warn", event, event, **fields)
        else:
            self._line("warn", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Something that failed."""
        self._line("error", event, fields)

    def engine(self, level: str, operation: str, text: str, **details: Any) -> None:
        """A line of the engine family: free text, with `category` and `operation`."""
        fields = {"event": "engine", "category": "engine", "operation": operation, **details}
        self._line(level, text, fields)

    def _line(self, level: str, message: str, fields: dict[str, Any]) -> None:
        severity = LEVELS[level]
        if severity < self._threshold:
            return
        # When nobody reads our log any more the work goes on without it.
        self._sink.write(self._encoded(severity, message, fields))

    def close(self, within_s: float) -> None:
        """End the log; its reader gets so long to take what waits for it."""
        self._sink.close(within_s)

    def _loss_line(self, lines: int) -> bytes:
        return self._encoded(LEVELS["warn"], "log_lines_dropped", {"lines": lines})

    def _encoded(self, severity: int, message: str, fields: dict[str, Any]) -> bytes:
        if self._pretty:
            shown = {name: value for name, value in fields.items() if name != "event"}
            return pretty_line(severity, message, {"project": self._project, **shown})
        members = {
            "level": severity,
            "time": time.time_ns() // 1_000_000,
            "pid": self._pid,
            "hostname": self._hostname,
            "msg": message,
            "project": self._project,
            **fields,
        }
        return self._encoder.encode(members) + b"\n"
