"""The ops channel: one JSON line an event, on standard error (spec 04 §16).

`open_ops_log` gives a structlog logger that is handed to whoever logs; there is no global
one. `log.info("tool_call", tool=..., latency_ms=...)` writes

    {"level":30,"time":1790000000000,"pid":7,"hostname":"h","tool":...,"msg":"tool_call"}

Levels are numbers: debug 20, info 30, warning 40, error 50, critical 60. Callers log sizes
and names, never a record's body or values; secrets are taken out here. Standard output is
never touched.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Literal, NoReturn

import structlog
from structlog.typing import EventDict, FilteringBoundLogger

from maadd.ops.lines import encode_line, open_sink
from maadd.ops.redaction import scrub_members, scrub_text
from maadd.protocol.line_sink import LineSink
from maadd.protocol.pretty_line import pretty_line

STDERR = 2

OpsLogger = FilteringBoundLogger
"""What the rest of the front logs with."""

Severity = Literal["fatal", "error", "degraded", "best_effort", "info"]

_NUMBERS = {"debug": 20, "info": 30, "warning": 40, "error": 50, "critical": 60}
_THRESHOLDS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
    "silent": logging.CRITICAL,
}
_METHODS = {
    "fatal": "critical",
    "error": "error",
    "degraded": "warning",
    "best_effort": "warning",
    "info": "info",
}

_NAMED_TWICE = frozenset(
    {
        "tool_call_overrun",
        "sighup_reload_failed",
        "sighup_tokens_reload_failed",
        "tokens_reload",
        "signal_received",
        "shutdown_start",
        "shutdown_timeout",
        "shutdown_forced",
        "shutdown_complete",
    }
)
"""Lines that carry their name in `event` as well as in `msg`."""

_EVENT = "_event"
"""The field that becomes `event`, a name structlog keeps for itself."""

_MESSAGE_LIMIT = 300
"""Characters kept of an exception's or a library's text."""


class LineLogger:
    """The end of the channel. One that is gone must not take the server with it."""

    def __init__(self, sink: LineSink) -> None:
        self._sink = sink

    def write(self, line: bytes) -> None:
        """One line, or one more that the sink counts as lost."""
        self._sink.write(line)

    debug = info = warning = error = critical = write


def open_ops_log(
    level: str = "info", *, pretty: bool = False, sink: LineSink | None = None
) -> OpsLogger:
    """A logger for events from `level` on: trace, debug, info, warn, error, fatal or silent.

    `pretty` writes for people instead of JSON; `sink` is standard error unless given.
    """
    render = _drop if level == "silent" else _render_pretty if pretty else _json_renderer()
    logger: OpsLogger = structlog.wrap_logger(
        LineLogger(open_sink(STDERR) if sink is None else sink),
        processors=[render],
        wrapper_class=structlog.make_filtering_bound_logger(_THRESHOLDS[level]),
        context_class=dict,
    ).bind()
    return logger


def log_channel_ready(
    log: OpsLogger, level: str, *, pretty: bool = False, descriptor: int = STDERR
) -> None:
    """The first line of every boot. The threshold stands in `log_level`: `level` is the line's."""
    destination = "pretty" if pretty else "stderr" if descriptor == STDERR else "custom"
    log.info("ops_channel_ready", destination=destination, log_level=level)


def log_engine(
    log: OpsLogger,
    severity: Severity,
    category: str,
    operation: str,
    message: str,
    **details: Any,
) -> None:
    """A line in free text about `category`/`operation`, such as `mcp`/`startup`."""
    write: Callable[..., None] = getattr(log, _METHODS[severity])
    fields = {_EVENT: "engine", "category": category, "operation": operation, **details}
    write(message, **fields)


def capture_library_logs(log: OpsLogger) -> None:
    """Routes the standard `logging` of libraries and Python's warnings here, from warning on."""
    root = logging.getLogger()
    root.handlers[:] = [_LibraryHandler(log)]
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)


class _LibraryHandler(logging.Handler):
    """Hands records of `logging` to the ops channel, one line each."""

    def __init__(self, log: OpsLogger) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except (TypeError, ValueError):
            text = str(record.msg)
        level = min(logging.CRITICAL, record.levelno // 10 * 10)
        self._log.log(
            level,
            _cut(text),
            **{_EVENT: "library"},
            category=record.name,
            exc_info=record.exc_info,
        )


def _drop(_logger: object, _method: str, _event: EventDict) -> NoReturn:
    raise structlog.DropEvent


def _json_renderer() -> Callable[[object, str, EventDict], bytes]:
    pid = os.getpid()
    hostname = socket.gethostname()

    def render(_logger: object, method: str, event: EventDict) -> bytes:
        line = {
            "level": _NUMBERS[method],
            "time": int(time.time() * 1000),
            "pid": pid,
            "hostname": hostname,
        }
        return encode_line(_fill(line, event))

    return render


def _render_pretty(_logger: object, method: str, event: EventDict) -> bytes:
    line = _fill({}, event)
    error = line.pop("err", None)
    message = line.pop("msg")
    line.pop("event", None)
    text = pretty_line(_NUMBERS[method], message, line)
    if error:
        text += f"{error['stack']}{error['type']}: {error['message']}\n".encode(
            "utf-8", "backslashreplace"
        )
    return text


def _fill(line: dict[str, Any], event: EventDict) -> dict[str, Any]:
    """`line` with the event's members, scrubbed; no member replaces one of the line's own."""
    message = event.pop("event")
    tag = event.pop(_EVENT, None)
    exc_info = event.pop("exc_info", None)
    for key, value in scrub_members(event).items():
        line[f"{key}_" if key in line else key] = value
    if tag is not None or message in _NAMED_TWICE:
        line["event"] = message if tag is None else tag
    if exc_info:
        error = exc_info[1] if isinstance(exc_info, tuple) else exc_info
        if not isinstance(error, BaseException):
            error = sys.exc_info()[1]
        if error is not None:
            line["err"] = _error_members(error)
    line["msg"] = scrub_text(str(message))
    return line


def _error_members(error: BaseException, depth: int = 3) -> dict[str, Any]:
    """Type, message, frames and at most `depth` causes; the frames show code, never values."""
    members: dict[str, Any] = {
        "type": type(error).__name__,
        "message": scrub_text(_cut(str(error))),
        "stack": scrub_text("".join(traceback.format_tb(error.__traceback__))),
    }
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and depth:
        members["cause"] = _error_members(cause, depth - 1)
    return members


def _cut(text: str) -> str:
    """The first line, bounded: what follows may quote the input that was refused."""
    first = text.partition("\n")[0]
    return first if len(first) <= _MESSAGE_LIMIT else f"{first[:_MESSAGE_LIMIT]}…"
