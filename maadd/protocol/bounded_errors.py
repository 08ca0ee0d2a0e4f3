"""Errors that repeat what a client sent stay short, however long that was."""

from __future__ import annotations

import itertools
from typing import Any

from maadd.protocol.errors import WireError

_LONGEST_MESSAGE = 2_000
"""Characters. The end of a message, which says what to do, is kept with its beginning."""
_KEPT_END = 500
_LONGEST_TEXT = 500
"""Characters of a text in the details."""
_LONGEST_LIST = 100


def bounded(error: WireError) -> WireError:
    """The error with its long texts and lists cut; `details.truncated` has the whole length of
    each list (or object) by its path."""
    message = error.message
    if len(message) > _LONGEST_MESSAGE:
        begin = message[: _LONGEST_MESSAGE - _KEPT_END - 3]
        message = f"{begin} … {message[-_KEPT_END:]}"
    if error.details is None:
        return WireError(error.code, message)
    totals: dict[str, int] = {}
    details = _bounded(error.details, "", totals)
    if totals:
        details["truncated"] = totals
    return WireError(error.code, message, details)


def _bounded(value: Any, path: str, totals: dict[str, int]) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return value[: _LONGEST_TEXT - 1] + "…"
    if not isinstance(value, dict | list | tuple):
        return value
    if len(value) > _LONGEST_LIST:
        totals[path] = max(len(value), totals.get(path, 0))
    if not isinstance(value, dict):
        return [_bounded(item, f"{path}[]", totals) for item in value[:_LONGEST_LIST]]
    short = {}
    for name, member in itertools.islice(value.items(), _LONGEST_LIST):
        name = _bounded(name, path, totals)
        short[name] = _bounded(member, f"{path}.{name}" if path else name, totals)
    return short
