"""Log lines: encoding, and the way to standard error."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from maadd.protocol.line_sink import LineSink
from maadd.protocol.pretty_line import pretty_line

_encoder = msgspec.json.Encoder()


def encode_line(members: dict[str, Any]) -> bytes:
    """One line of JSON with its newline. Text that has no UTF-8 form is shown escaped."""
    try:
        return _encoder.encode(members) + b"\n"
    except UnicodeEncodeError:
        return _encoder.encode(_encodable(members)) + b"\n"


def open_sink(descriptor: int, *, pretty: bool = False) -> LineSink:
    """A sink that tells in a line of the ops channel how many lines it had to drop."""
    return LineSink(descriptor, _pretty_loss_line if pretty else _loss_line)


def _loss_line(lines: int) -> bytes:
    moment = int(time.time() * 1000)
    return encode_line({"level": 40, "time": moment, "lines": lines, "msg": "log_lines_dropped"})


def _pretty_loss_line(lines: int) -> bytes:
    return pretty_line(40, "log_lines_dropped", {"lines": lines})


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    return value
