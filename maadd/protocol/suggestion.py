"""The nearest known name for a mistyped one."""

from __future__ import annotations

from collections.abc import Iterable

_MAX_COMPARED = 64
"""Longer input is no slip of the pen; it also bounds the cost of the comparison."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name among `known` that `name` most likely meant, or None when none is close.

    Case, `_`, `-` and blanks do not count, so that `doc_id` finds `docId`.
    """
    if len(name) > _MAX_COMPARED:
        return None
    # Imported late: it is needed for mistakes only and costs milliseconds at start.
    from difflib import get_close_matches

    plain = {_plain(candidate): candidate for candidate in known}
    wanted = _plain(name)
    if wanted in plain:
        return plain[wanted]
    matches = get_close_matches(wanted, plain, n=1, cutoff=0.5)
    return plain[matches[0]] if matches else None


def _plain(name: str) -> str:
    return "".join(char for char in name.lower() if char not in "_- ")
