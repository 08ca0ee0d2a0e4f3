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

JS_WHITESPACE = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""The complete set that ES `trim()` removes and `\\s` matches (spec 05 §4.4)."""

_LEADING_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_JSON_ESCAPES = {ord('"'): '\\"', ord("\\"): "\\\\", 8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f"}
_JSON_ESCAPES |= {13: "\\r"} | {
    code: f"\\u{code:04x}" for code in range(32) if code not in (8, 9, 10, 12, 13)
}
_EXPONENT_FROM = 1e21
_EXPONENT_BELOW = 1e-6


def js_trim(text: str) -> str:
    """`text` without ES white space at both ends (U+FEFF goes, U+001C and U+0085 stay)."""
    return text.strip(JS_WHITESPACE)


def js_number(value: int | float) -> str:
    """Shortest decimal in JavaScript style: `3`, `0.5`, `1e+21`, `1e-7`, `NaN`, `Infinity`.

    Integers are exact at any size; the reference prints them in exponent form from 1e21 up.
    """
    if isinstance(value, int):
        return str(int(value))
    if not math.isfinite(value):
        return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")
    magnitude = abs(value)
    if value.is_integer() and magnitude < 2**53:
        return str(int(value))
    if _EXPONENT_BELOW <= magnitude < _EXPONENT_FROM:
        shortest = repr(value)
        return _positional(shortest) if "e" in shortest else shortest.removesuffix(".0")
    mantissa, exponent = repr(value).split("e")
    mantissa = mantissa.removesuffix(".0")
    return f"{mantissa}e{exponent[0]}{exponent[1:].lstrip('0')}"


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


def _positional(shortest: str) -> str:
    """`1.5e+20` or `1e-06` written without an exponent."""
    sign = "-" if shortest[0] == "-" else ""
    mantissa, exponent = shortest.lstrip("-").split("e")
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    point = len(whole) + int(exponent)
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits.ljust(point, '0')}"


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
