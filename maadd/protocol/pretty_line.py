"""Log lines for people (`MAAD_LOG_PRETTY`, spec 04 §16): of the front and of its workers alike."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

import msgspec

LABELS = {10: "TRACE", 20: "DEBUG", 30: "INFO", 40: "WARN", 50: "ERROR", 60: "FATAL"}

_PLAIN = re.compile(r"[^\s\"=\x00-\x1f\x7f-\x9f]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def pretty_line(level: int, message: str, fields: Mapping[str, object]) -> bytes:
    """`12:34:56 WARN  message key=value key="two words"`, with its newline.

    Whatever a text holds, one event is one line, and reads as nothing else.
    """
    moment = time.strftime("%H:%M:%S")
    shown = "".join(f" {key}={_shown(value)}" for key, value in fields.items())
    text = f"{moment} {LABELS[level]:5} {_one_line(message)}{shown}\n"
    return text.encode("utf-8", "backslashreplace")


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else f'"{_one_line(_escaped(value))}"'
    try:
        return _one_line(msgspec.json.encode(value, enc_hook=repr).decode())
    except (UnicodeEncodeError, ValueError):
        return _one_line(repr(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _one_line(text: str) -> str:
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
