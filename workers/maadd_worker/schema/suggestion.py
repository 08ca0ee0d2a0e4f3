"""Near names for messages about an unknown name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean "state"?)` for the known names closest to `name`, or an empty text."""
    near = get_close_matches(name, list(known), n=3, cutoff=0.6)
    if not near:
        return ""
    quoted = ", ".join(f'"{candidate}"' for candidate in near)
    return f" (did you mean {quoted}?)"


def listed(names: Iterable[str], limit: int = 30) -> str:
    """The names joined with commas, cut after `limit` with the count of the rest."""
    every = list(names)
    shown = ", ".join(every[:limit])
    rest = len(every) - limit
    return f"{shown} and {rest} more" if rest > 0 else shown
