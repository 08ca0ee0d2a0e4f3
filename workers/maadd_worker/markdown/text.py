"""Text rules shared by the record format and the index, as ECMAScript defines them.

The corpus is shared with a JavaScript implementation, so trimming, white space, number
text and leading-number parsing follow that language, not Python (spec 01 §18, 02 §1.5).
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from maadd.protocol.es_text import WHITESPACE as JS_WHITESPACE
from maadd.protocol.es_text import number_text
from maadd.protocol.es_text import trim as js_trim

__all__ = [
    "JS_WHITESPACE",
    "iso_milliseconds",
    "js_number",
    "js_text",
    "js_trim",
    "lead_float",
]

_LEADING_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_JSON_ESCAPES = {ord('"'): '\\"', ord("\\"): "\\\\", 8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f"}
_JSON_ESCAPES |= {13: "\\r"} | {
    code: f"\\u{code:04x}" for code in range(32) if code not in (8, 9, 10, 12, 13)
}


def js_number(value: int | float) -> str:
    """Shortest decimal in JavaScript style: `3`, `0.5`, `1e+21`, `1e-7`, `NaN`, `Infinity`.

    Integers are exact at any size; the reference prints them in exponent form from 1e21 up.
    """
    if isinstance(value, int):
        return str(int(value))
    if not math.isfinite(value):
        return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")
    return number_text(value)


def js_text(value: Any) -> str:
    """Text form of a frontmatter value, as the index stores and compares it (02 §1.5).

    Mappings become canonical JSON (sorted keys, compact) where the reference writes
    `[object Object]`; a null list item becomes empty text.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, int | float):
        return js_number(value)
    if isinstance(value, Mapping):
        return _canonical_json(value)
    if isinstance(value, Sequence):
        return ",".join("" if item is None else js_text(item) for item in value)
    if isinstance(value, dt.datetime):
        return iso_milliseconds(value)
    return str(value)


def iso_milliseconds(moment: dt.datetime) -> str:
    """ISO-8601 in UTC with milliseconds and `Z`; a naive moment counts as UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    moment = moment.astimezone(dt.UTC).replace(tzinfo=None)
    return moment.isoformat(timespec="milliseconds") + "Z"


def lead_float(text: str) -> float | None:
    """The number `text` starts with after white space, the rest ignored; None without one."""
    match = _LEADING_NUMBER.match(text.lstrip(JS_WHITESPACE))
    if match is None:
        return None
    number = float(match.group())
    return number if math.isfinite(number) else None


def _canonical_json(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value.translate(_JSON_ESCAPES)}"'
    if isinstance(value, Mapping):
        members = sorted((str(key), member) for key, member in value.items())
        return (
            "{" + ",".join(f"{_canonical_json(k)}:{_canonical_json(v)}" for k, v in members) + "}"
        )
    if isinstance(value, Sequence):
        return "[" + ",".join(map(_canonical_json, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return "null"
    if isinstance(value, dt.datetime):
        return f'"{iso_milliseconds(value)}"'
    return js_text(value)
