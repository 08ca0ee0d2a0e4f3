"""JSON lines: encoding, and writing each line whole to a descriptor."""

from __future__ import annotations

import os
import select
from typing import Any

import msgspec

_encoder = msgspec.json.Encoder()


def encode_line(members: dict[str, Any]) -> bytes:
    """One line of JSON with its newline. Text that has no UTF-8 form is shown escaped."""
    try:
        return _encoder.encode(members) + b"\n"
    except UnicodeEncodeError:
        return _encoder.encode(_encodable(members)) + b"\n"


def write_line(descriptor: int, line: bytes) -> None:
    """Writes `line` with one write; only a short write is continued. Raises OSError.

    A full pipe that does not block by itself is waited for: a log line is never dropped
    because its reader is slow.
    """
    while line:
        try:
            written = os.write(descriptor, line)
        except BlockingIOError:
            poller = select.poll()
            poller.register(descriptor, select.POLLOUT)
            poller.poll()
            continue
        line = line[written:]


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    return value
