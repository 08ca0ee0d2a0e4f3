"""Equality of frontmatter values (spec 01 §13.2)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from maadd_worker.markdown.text import iso_milliseconds


def same_value(one: Any, other: Any) -> bool:
    """Deep equality with types: `1`, `true` and `"1"` are three values, `1` and `1.0` are one.

    The data model has one number type; NaN equals itself. A moment equals its ISO text,
    which is what is stored. The order of keys in maps does not matter.
    """
    if isinstance(one, dt.datetime):
        one = iso_milliseconds(one)
    if isinstance(other, dt.datetime):
        other = iso_milliseconds(other)
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other or (one != one and other != other)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_value, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_value(one[k], other[k]) for k in one)
    return type(one) is type(other) and bool(one == other)
