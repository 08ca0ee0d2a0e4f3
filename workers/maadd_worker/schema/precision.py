"""Calendar dates and the precision of a date's literal text (spec 01 §8).

Dates are kept as the text that was written, so every rule here reads the text.
"""

from __future__ import annotations

import calendar
import re

PRECISIONS: tuple[str, ...] = ("year", "month", "day", "hour", "minute", "second", "millisecond")
"""From coarse to fine."""

_RANK = {name: rank for rank, name in enumerate(PRECISIONS)}

_LITERAL = re.compile(
    r"[0-9]{4}(-[0-9]{2}(-[0-9]{2}"
    r"(T[0-9]{2}(:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?)?(?:Z|[+-][0-9]{2}:[0-9]{2})?)?)?)?"
)
_DAYS_OF_MONTH = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DAY_PREFIX = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME_OF_DAY = re.compile(
    r"[Tt ]([01][0-9]|2[0-3])(:[0-5][0-9](:([0-5][0-9]|60)(\.[0-9]+)?)?)?"
    r"(?: ?(?:[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?))?"
)


def rank(precision: str) -> int:
    """0 for `year` up to 6 for `millisecond`."""
    return _RANK[precision]


def literal_precision(text: str) -> str | None:
    """The precision that `text` is written with, or None when it has none of the known forms.

    A zone (`Z`, `+02:00`) is understood behind a time only: `2026-04-16+02:00` is no known form.
    """
    found = _LITERAL.fullmatch(text)
    if found is None:
        return None
    return PRECISIONS[len(PRECISIONS) - 1 - found.groups().count(None)]


def starts_with_day(text: str) -> bool:
    """Whether `text` begins in the form `YYYY-MM-DD`, whatever the numbers say."""
    return _DAY_PREFIX.match(text) is not None


def is_calendar_day(year: int, month: int, day: int) -> bool:
    """Whether the day exists in the Gregorian calendar (years 1 to 9999)."""
    if not (1 <= year <= 9999 and 1 <= month <= 12 and day >= 1):
        return False
    last = 29 if month == 2 and calendar.isleap(year) else _DAYS_OF_MONTH[month]
    return day <= last


def is_calendar_date(text: str) -> bool:
    """Whether `text` is a day that exists, alone or with a time of day behind it.

    The time follows `T` or one blank and may carry fractions and a zone.
    """
    found = _DAY_PREFIX.match(text)
    if found is None or not is_calendar_day(int(found[1]), int(found[2]), int(found[3])):
        return False
    return found.end() == len(text) or _TIME_OF_DAY.fullmatch(text, found.end()) is not None
