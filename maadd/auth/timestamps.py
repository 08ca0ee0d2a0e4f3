"""Points in time as the registry writes them: RFC 3339, milliseconds, UTC (spec 04 §7.1)."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d([Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d))?", re.ASCII
)


def parse_timestamp(text: str) -> float | None:
    """Seconds since the epoch, or None when `text` names no point in time of the years 1 to 9999
    in UTC.

    Accepted are RFC 3339 with `Z` or an offset, and a bare date, which means midnight UTC.
    """
    if _RFC_3339.fullmatch(text) is None:
        return None
    try:
        moment = datetime.fromisoformat(text.upper())
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        format_timestamp(seconds)  # an offset, or rounding, may lead beyond the year 9999
    except (ValueError, OverflowError):
        return None
    return seconds


def format_timestamp(seconds: float) -> str:
    """`2031-02-03T04:05:06.789Z`."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
