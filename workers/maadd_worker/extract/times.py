"""Dates and durations as ISO text (spec 01 §6.2)."""

from __future__ import annotations

import re

from maadd_worker.markdown.text import JS_WHITESPACE, js_trim
from maadd_worker.schema.precision import is_calendar_day, starts_with_day

_SPACE = f"[{JS_WHITESPACE}]"
_MONTH_FIRST = re.compile(rf"([A-Za-z]+){_SPACE}+([0-9]{{1,2}}),?{_SPACE}+([0-9]{{4}})")
_DAY_FIRST = re.compile(rf"([0-9]{{1,2}}){_SPACE}+([A-Za-z]+){_SPACE}+([0-9]{{4}})")
_US_NUMERIC = re.compile(r"([0-9]{1,2})[-/]([0-9]{1,2})[-/]([0-9]{4}|[0-9]{2})")
_FIRST_YEAR_OF_1900 = 50

_MONTH_NAMES = (
    "january february march april may june july august september october november december"
)
_MONTHS = {
    spelling: number
    for number, name in enumerate(_MONTH_NAMES.split(), start=1)
    for spelling in (name, name[:3])
}

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_PLAIN_ISO_DURATION = re.compile(r"p[0-9thmswy.]+")
_ISO_DURATION = re.compile(
    rf"p(?=[0-9t])(?:{_NUMBER}y)?(?:{_NUMBER}m)?(?:{_NUMBER}w)?(?:{_NUMBER}d)?"
    rf"(?:t(?=[0-9])(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s)?)?"
)
_NUMBER_WITH_UNIT = re.compile(rf"(?<![0-9])([0-9]++(?:\.[0-9]++)?+){_SPACE}*+([a-z]+)")

_DATE_UNITS = {"day": "D", "week": "W", "month": "M", "year": "Y"}
_TIME_UNITS = {"second": "S", "minute": "M", "hour": "H"}
_UNIT_SPELLINGS = {
    "second": "second seconds sec secs s",
    "minute": "minute minutes min mins",
    "hour": "hour hours hr hrs h",
    "day": "day days d",
    "week": "week weeks wk wks w",
    "month": "month months mo",
    "year": "year years yr yrs y",
}
_UNITS = {
    spelling: unit for unit, spellings in _UNIT_SPELLINGS.items() for spelling in spellings.split()
}


def normalize_date(text: str) -> str | None:
    """A day as `YYYY-MM-DD`; a text that already begins so is given back whole, unjudged.

    English month names and US numeric order are read, and must name a day that exists.
    """
    text = js_trim(text)
    if starts_with_day(text):
        return text
    if found := _MONTH_FIRST.fullmatch(text):
        return _day(int(found[3]), _MONTHS.get(found[1].lower(), 0), int(found[2]))
    if found := _DAY_FIRST.fullmatch(text):
        return _day(int(found[3]), _MONTHS.get(found[2].lower(), 0), int(found[1]))
    if found := _US_NUMERIC.fullmatch(text):
        return _day(_full_year(found[3]), int(found[1]), int(found[2]))
    return None


def normalize_duration(text: str) -> str | None:
    """An ISO-8601 duration; `1 hour 30 minutes` as `PT1H30M`. An unknown unit gives None."""
    text = js_trim(text).lower()
    if _PLAIN_ISO_DURATION.fullmatch(text) or _ISO_DURATION.fullmatch(text):
        return text.upper()
    date_part, time_part = "", ""
    for number, spelling in _NUMBER_WITH_UNIT.findall(text):
        unit = _UNITS.get(spelling)
        if unit is None:
            return None
        if unit in _DATE_UNITS:
            date_part += number + _DATE_UNITS[unit]
        else:
            time_part += number + _TIME_UNITS[unit]
    if time_part:
        return f"P{date_part}T{time_part}"
    return f"P{date_part}" if date_part else None


def _day(year: int, month: int, day: int) -> str | None:
    return f"{year:04d}-{month:02d}-{day:02d}" if is_calendar_day(year, month, day) else None


def _full_year(digits: str) -> int:
    year = int(digits)
    if len(digits) == len("YYYY"):
        return year
    return year + (1900 if year >= _FIRST_YEAR_OF_1900 else 2000)
