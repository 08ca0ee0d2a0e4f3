"""Dates, addresses, amounts and links in raw text (spec 01 §17).

Every pattern starts only where a match can start, so that the search stays linear in the text.
"""

from __future__ import annotations

import re

_MOST = 10

_PATTERNS = {
    "dates": re.compile(r"\b\d{4}-\d{2}-\d{2}\b", re.ASCII),
    "emails": re.compile(
        r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]++@[A-Za-z0-9-]++(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}"
    ),
    "amounts": re.compile(
        r"(?<![0-9])(?<![0-9],)[0-9][0-9,]*+(?:\.[0-9]++)?+\s*+"
        r"(?:(?:USD|EUR|GBP|CAD|AUD|dollars?)\b|\$)",
        re.IGNORECASE,
    ),
    "urls": re.compile(r"https?://[^\s)>\]]+"),
}


def detect_patterns(text: str) -> dict[str, list[str]]:
    """The first ten different matches of each pattern, in the order of the text."""
    return {name: _first_matches(pattern, text) for name, pattern in _PATTERNS.items()}


def _first_matches(pattern: re.Pattern[str], text: str) -> list[str]:
    found: dict[str, None] = {}
    for match in pattern.finditer(text):
        found[match.group()] = None
        if len(found) == _MOST:
            break
    return list(found)
