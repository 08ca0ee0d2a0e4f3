"""The filter grammar: from the argument to operators (spec 02 §2.2)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import msgspec

from maadd.protocol.errors import MaadError

OPERATORS = ("eq", "neq", "gt", "gte", "lt", "lte", "in", "contains", "between")

MAX_FIELDS = 100
MAX_OPERATORS = 100
"""Per call, and per field: far above any use, below what SQLite's parser takes."""
_MEMBERS = 2
"""Of an operator: `op` and `value`."""

_SMALL_LETTERS = str.maketrans(ascii_uppercase, ascii_lowercase)
_ASCII_LETTER = re.compile("[A-Za-z]")
_NO_PATTERN = re.compile("[%_\\0]")
_LONGEST_PATTERN = 1000
"""Characters, far below the bytes that LIKE takes."""


class ScopeWarning(msgspec.Struct, frozen=True):
    """Something that a caller probably did not mean; it changes no result."""

    code: str
    field: str
    message: str


def filter_fields(filters: object) -> Mapping[str, Any]:
    """The fields of a `filters` argument with their conditions; FILTER_OP_INVALID for no object."""
    if filters is None:
        return {}
    if not isinstance(filters, Mapping):
        raise MaadError(
            "FILTER_OP_INVALID",
            "filters must be an object that maps field names to conditions",
            {"reason": "filters_not_object"},
        )
    if len(filters) > MAX_FIELDS:
        raise MaadError(
            "FILTER_OP_INVALID",
            f"filters may name at most {MAX_FIELDS} fields",
            {"reason": "too_many_fields"},
        )
    return filters


def flatten_condition(
    name: str, given: object, warnings: list[ScopeWarning]
) -> list[tuple[str, Any]]:
    """A condition as (operator, value) pairs that must all hold; `between` is two of them.

    Raises FILTER_EMPTY_ARRAY, FILTER_OP_INVALID, FILTER_BETWEEN_INVALID, with the field.
    """
    parts: list[tuple[str, Any]] = []
    waiting = [given]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            parts.extend(_operator(name, item))
            if len(item) > _MEMBERS:
                warnings.append(_more_members(name, item))
        elif not isinstance(item, list):
            parts.append(("eq", item))
        elif not item:
            raise MaadError(
                "FILTER_EMPTY_ARRAY",
                f'filter on "{name}": an empty list says nothing; give conditions, or leave it out',
                {"field": name},
            )
        else:
            if sum(not isinstance(member, list | Mapping) for member in item) > 1:
                warnings.append(_array_of_scalars(name))
            waiting.extend(reversed(item))
    if len(parts) > MAX_OPERATORS:
        raise MaadError(
            "FILTER_OP_INVALID",
            f'filter on "{name}": at most {MAX_OPERATORS} operators; use "in" for many values',
            {"field": name, "reason": "too_many_operators"},
        )
    return parts


def contains_test(column: str, text: str) -> str:
    """SQL that tells whether a column holds the text; takes `contains_params`.

    Only ASCII letters fold, as with LIKE, and nothing is a wildcard.
    """
    if _ASCII_LETTER.search(text) is None:
        return f"instr({column}, ?) > 0"
    folded = f"instr(lower({column}), lower(?)) > 0"
    if not _is_pattern(text):
        return folded
    # A third less time, but LIKE reads no further than a character U+0000.
    rest = f"instr({column}, char(0)) > 0 AND {folded}"
    return f"({column} LIKE '%' || ? || '%' OR {rest})"


def contains_params(text: str) -> tuple[str, ...]:
    """The parameters of a `contains_test`."""
    twice = _ASCII_LETTER.search(text) is not None and _is_pattern(text)
    return (text, text) if twice else (text,)


def _is_pattern(text: str) -> bool:
    """Whether LIKE takes every character of a text as it stands."""
    return len(text) <= _LONGEST_PATTERN and _NO_PATTERN.search(text) is None


def ascii_lower(text: str) -> str:
    """A text with its ASCII letters as small ones, which is all that a substring folds."""
    return text.lower() if text.isascii() else text.translate(_SMALL_LETTERS)


def is_number(value: object) -> bool:
    """Whether the value is a JSON number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _operator(name: str, given: Mapping[Any, Any]) -> list[tuple[str, Any]]:
    op = given.get("op")
    if not isinstance(op, str) or op not in OPERATORS:
        raise MaadError(
            "FILTER_OP_INVALID",
            f'filter on "{name}": {{op, value}} needs an op of {", ".join(OPERATORS)}',
            {"field": name, "op": op if isinstance(op, str) else None},
        )
    if op == "between":
        low, high = _bounds(name, given.get("value"))
        return [("gte", low), ("lte", high)]
    if "value" not in given:
        raise MaadError(
            "FILTER_OP_INVALID",
            f'filter on "{name}": op "{op}" needs a value',
            {"field": name, "op": op, "reason": "value_missing"},
        )
    if op == "in" and not isinstance(given["value"], list):
        raise MaadError(
            "FILTER_OP_INVALID",
            f'filter on "{name}": op "in" needs a list of values',
            {"field": name, "op": op, "reason": "in_requires_array"},
        )
    return [(op, given["value"])]


def _bounds(name: str, value: object) -> tuple[Any, Any]:
    def invalid(why: str) -> MaadError:
        return MaadError(
            "FILTER_BETWEEN_INVALID",
            f'filter on "{name}": between needs [low, high]; {why}',
            {"field": name},
        )

    if not isinstance(value, list) or len(value) != 2:
        raise invalid("the value is not a list of two")
    low, high = value
    if low is None or high is None:
        raise invalid("a bound is null")
    numbers = is_number(low) and is_number(high)
    if (numbers or (isinstance(low, str) and isinstance(high, str))) and _above(low, high):
        raise invalid("low is above high")
    return low, high


def _above(low: Any, high: Any) -> bool:
    if isinstance(low, str):
        return bool(_code_units(low) > _code_units(high))
    return bool(low > high)


def _code_units(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _more_members(name: str, given: Mapping[Any, Any]) -> ScopeWarning:
    others = ", ".join(f'"{member[:40]}"' for member in [*given] if member not in ("op", "value"))
    return ScopeWarning(
        "FILTER_MEMBER_IGNORED",
        name,
        f'an operator on "{name}" has members beside op and value, which mean nothing: '
        f"{others[:200]}; for several operators give a list of them",
    )


def _array_of_scalars(name: str) -> ScopeWarning:
    return ScopeWarning(
        "FILTER_ARRAY_OF_SCALARS",
        name,
        f'the list on "{name}" asks one value to equal all of them; for any of them use '
        '{"op": "in", "value": [...]}',
    )
