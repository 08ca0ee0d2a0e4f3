"""Values to YAML on one line, so that every YAML reader gets the same values back (01 §9.3)."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping
from typing import Any

from maadd.protocol.errors import MaadError
from maadd_worker.markdown.text import iso_milliseconds, js_number
from maadd_worker.markdown.yaml_profile import MAX_NESTING, core_scalar, load_yaml_document

MAX_KEY_LENGTH = 128
"""Code points of a field name."""

_CONTROL = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029]")
_SURELY_PLAIN = re.compile(
    r"[A-Za-z_](?:[A-Za-z0-9_./+ -]*[A-Za-z0-9_./+-])?|[0-9]{4}(?:-[0-9]{2}){2}"
)
_RESERVED_WORDS = frozenset(("true", "false", "null", "yes", "no", "nan", "NaN", "NAN"))
_QUOTED_CHARACTER = re.compile("[:#\"'\0-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_QUOTED_IN_FLOW = re.compile(r"[,\[\]{}?]")
_QUOTED_START = frozenset("{[*&!%@`")
_DIGIT_START_NOT_NUMBER = re.compile(r"[0-9].*[^0-9.eE+-]", re.DOTALL)
_NUMBER_SHAPED = re.compile(
    r"[-+]?(?:0[box][0-9a-fA-F_]+"
    r"|(?:\.[0-9_]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9_]+)?"
    r"|\.(?:inf|Inf|INF)|\.?(?:nan|NaN|NAN))"
)
_ESCAPED = re.compile('["\\\\\0-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]')
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def yaml_value(value: Any, field: str, *, in_flow: bool = False) -> str:
    """One line of YAML for a frontmatter value; lists and maps in flow style.

    Raises INVALID_FIELDS for a value frontmatter cannot hold; `field` is named in it.
    """
    if isinstance(value, str):
        return yaml_string(value, in_flow=in_flow)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, int):
        return js_number(value)
    if isinstance(value, float):
        return _yaml_float(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(yaml_value(item, field, in_flow=True) for item in value)}]"
    if isinstance(value, Mapping):
        members = (
            f"{yaml_string(key, in_flow=True)}: {yaml_value(member, field, in_flow=True)}"
            for key, member in value.items()
        )
        return f"{{{', '.join(members)}}}"
    if isinstance(value, dt.datetime):
        return yaml_string(iso_milliseconds(value), in_flow=in_flow)
    raise MaadError(
        "INVALID_FIELDS",
        f"{field}: a value of type {type(value).__name__} cannot be stored; give a text, a "
        "number, true, false, null, a list or an object",
        {"field": field},
    )


def yaml_string(text: str, *, in_flow: bool) -> str:
    """`text` plain where that is safe, else double-quoted."""
    return text if _is_plain(text, in_flow) else f'"{_ESCAPED.sub(_escape, text)}"'


def check_keys(fields: Mapping[str, Any]) -> None:
    """INVALID_FIELDS for a field name with control characters or over 128 code points.

    Names inside maps are held to the same rule. A value nested far beyond the profile is a
    YAML_PROFILE_VIOLATION.
    """
    for key, value in fields.items():
        _check_key(key)
        if isinstance(value, Mapping | list | tuple):
            _check_nested_keys(value, key, 1)


def _check_key(key: str) -> None:
    if len(key) > MAX_KEY_LENGTH:
        raise MaadError(
            "INVALID_FIELDS",
            f"field name {key[:40]!r}... has {len(key)} characters; at most {MAX_KEY_LENGTH}",
            {"field": key[:MAX_KEY_LENGTH]},
        )
    if _CONTROL.search(key):
        raise MaadError(
            "INVALID_FIELDS",
            f"field name {key!r} holds a control character or line break; remove it",
            {"field": key},
        )


def _check_nested_keys(value: Any, field: str, depth: int) -> None:
    if depth > MAX_NESTING:
        raise MaadError(
            "YAML_PROFILE_VIOLATION",
            f"{field} is nested too deep; a field holds at most a list or map of lists or maps "
            "of scalars",
            {"field": field},
        )
    if isinstance(value, Mapping):
        for key in value:
            _check_key(key)
        value = value.values()
    for item in value:
        if isinstance(item, Mapping | list | tuple):
            _check_nested_keys(item, field, depth + 1)


def _is_plain(text: str, in_flow: bool) -> bool:
    if _SURELY_PLAIN.fullmatch(text):
        return text not in _RESERVED_WORDS and isinstance(core_scalar(text), str)
    if not text or text[0] in _QUOTED_START or _QUOTED_CHARACTER.search(text):
        return False
    if _DIGIT_START_NOT_NUMBER.match(text) or _NUMBER_SHAPED.fullmatch(text):
        return False
    if in_flow and _QUOTED_IN_FLOW.search(text):
        return False
    try:
        return bool(load_yaml_document(text, "") == text)
    except MaadError:
        return False


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    short = _SHORT_ESCAPES.get(character)
    if short is not None:
        return short
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _yaml_float(value: float) -> str:
    if not math.isfinite(value):
        return ".nan" if value != value else (".inf" if value > 0 else "-.inf")
    if value.is_integer() and 2**53 <= abs(value) < 1e21:
        # Without its fraction or exponent it would read back as an exact integer.
        return repr(value)
    return js_number(value)
