"""JSON text to values for the host contracts (spec 05 §3.6): strict RFC 8259, no surprises.

Python's own parser would take `NaN`, and fails on long integers by a limit of its own.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

MAX_SAFE_INTEGER = 2**53 - 1
_MAX_EXACT_DIGITS = 400
"""Longer integers are beyond the largest double (309 digits) anyway."""


class NotJsonError(ValueError):
    """The text is no JSON."""


class DuplicateMemberError(ValueError):
    """An object has the member `name` twice."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the member {name!r} occurs twice")
        self.name = name


def parse_json(
    text: str | bytes, *, exact_integers: bool = False, refuse_duplicates: bool = False
) -> Any:
    """The value of a JSON text; NotJsonError when it is none.

    Integers beyond ±(2⁵³−1) become floats, infinite where they overflow; with
    `exact_integers` they stay as they are written, up to 400 digits. Of members with one name
    the last one wins, unless `refuse_duplicates` raises DuplicateMemberError.
    """
    try:
        decoded = text if isinstance(text, str) else text.decode()
        return json.loads(
            decoded,
            parse_int=_exact_integer if exact_integers else _integer,
            parse_constant=_refuse_constant,
            object_pairs_hook=_without_duplicates if refuse_duplicates else None,
        )
    except DuplicateMemberError:
        raise
    except (ValueError, RecursionError) as error:
        raise NotJsonError(str(error)) from None


def _integer(digits: str) -> int | float:
    if len(digits) <= 15:
        return int(digits)
    value = float(digits)
    return int(digits) if abs(value) <= MAX_SAFE_INTEGER else value


def _exact_integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MAX_EXACT_DIGITS else float(digits)


def _refuse_constant(name: str) -> NoReturn:
    raise NotJsonError(f"{name} is not JSON")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise DuplicateMemberError(name)
            seen.add(name)
    return members
