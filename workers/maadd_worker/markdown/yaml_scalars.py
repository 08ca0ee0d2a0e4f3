"""What a plain YAML scalar means: the YAML 1.2 core schema, exactly (spec 01 §4.2)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

_WORDS: dict[str, bool | None] = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
_NUMBER_STARTS = frozenset("0123456789+-.")
_WORD_STARTS = frozenset("~nNtTfF")

_NUMBER = re.compile(
    r"[-+]?0b(?P<binary>[01]+)"
    r"|[-+]?0x(?P<hexadecimal>[0-9a-fA-F]+)"
    r"|[-+]?0o(?P<octal>[0-7]+)"
    r"|[-+]?(?P<decimal>[0-9]+)"
    r"|(?P<float>[-+]?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<infinity>[-+]?\.(?:inf|Inf|INF))"
    r"|(?P<nan>\.(?:nan|NaN|NAN))"
)
_BASES = {"binary": 2, "octal": 8, "decimal": 10, "hexadecimal": 16}
_MAX_EXACT_FLOAT = 2**53
_MAX_DECIMAL_DIGITS = 309
"""Longer decimal integers are beyond the largest double (1.8e308)."""

CORE_TAG_PREFIX = "tag:yaml.org,2002:"


def core_scalar(text: str) -> Any:
    """Value of a plain scalar: None, bool, int, float or the text itself.

    Integers are exact. A number beyond the range of a double stays a string. The data model
    has one number type, as JSON has: a float without a fraction (`3.0`, `1e3`) is given as
    the int it equals, so that it reads, compares and prints alike everywhere.
    """
    if not text or text[0] in _WORD_STARTS:
        return _WORDS.get(text, text)
    if text[0] not in _NUMBER_STARTS:
        return text
    match = _NUMBER.fullmatch(text)
    if match is None:
        return text
    kind = match.lastgroup
    if kind == "float":
        return _float(text)
    if kind == "nan":
        return math.nan
    if kind == "infinity":
        return -math.inf if text[0] == "-" else math.inf
    assert kind is not None
    return _integer(text, match[kind], _BASES[kind])


def tagged_scalar(tag: str, text: str, plain: bool) -> Any:
    """Value of a scalar with a core tag (`!!int`, the non-specific `!`, ...).

    Raises ValueError with a message for people when the tag is not of the core schema or
    does not fit the text.
    """
    if tag == "!":
        return text
    if not tag.startswith(CORE_TAG_PREFIX):
        raise ValueError(f"tag {tag} is not supported; write the value without it")
    name = tag.removeprefix(CORE_TAG_PREFIX)
    if name == "str":
        return text
    empty = plain and not text
    if empty and name in ("seq", "map"):
        return [] if name == "seq" else {}
    accepts = _TAGS.get(name)
    if accepts is None:
        raise ValueError(f"tag !!{name} is not supported; write the value without it")
    value = core_scalar(text)
    if not accepts(value) or (value is None and not text and not plain):
        raise ValueError(f"tag !!{name} does not fit the value {text[:60]!r}")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TAGS: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": _is_number,
}


def _integer(text: str, digits: str, base: int) -> int | str:
    if base == 10:
        digits = digits.lstrip("0") or "0"
        if len(digits) > _MAX_DECIMAL_DIGITS:
            return text
    number = int(digits, base)
    if number.bit_length() > 1023:
        try:
            float(number)
        except OverflowError:
            return text
    return -number if text[0] == "-" else number


def _float(text: str) -> int | float | str:
    number = float(text)
    if math.isinf(number):
        return text
    if number.is_integer() and abs(number) < _MAX_EXACT_FLOAT:
        return int(number)
    return number
