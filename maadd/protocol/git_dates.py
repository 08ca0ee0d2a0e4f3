"""Dates as Git understands them, judged before Git is asked (spec 02 §7).

Git takes any text for a date: what it does not know it leaves out, and a text of which nothing
is left means now. So a mistyped date would select nothing, or everything, without a word. Here
each piece of the text must be one that Git reads.
"""

from __future__ import annotations

import datetime as dt
import re

FORMS = (
    "2026-05-02, 2026-05-02T14:30:00Z, 'May 2 2026', 'yesterday', '2 weeks ago', 'last monday' "
    "or @1700000000"
)
"""The accepted forms, by example."""

_MAX_LENGTH = 100

_PIECE = re.compile(
    r"""
      (?P<iso>\d{4}-\d{1,2}-\d{1,2})(?:T(?=\d))?
    | (?P<basic>\d{8})T(?P<basic_time>\d{4}(?:\d\d)?)(?!\d)
    | (?P<date>\d{1,4}[/.]\d{1,2}[/.]\d{1,4}(?!\d))
    | (?P<time>\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?)(?!\d)
    | (?P<zone>[+-]\d{2}:?\d{2}(?!\d)|Z\b|UTC\b|GMT\b)
    | @?(?P<epoch>\d{9,11})(?!\d)
    | (?P<number>\d{1,8})(?:st|nd|rd|th)?(?![\d:/-])
    | (?P<word>[a-z]+)
    | (?P<gap>[\s.,]+)
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)

_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_WEEKDAYS = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"]
_MOMENTS = frozenset(("now", "today", "yesterday", "never", "noon", "midnight", "tea"))
_NUMBERS = frozenset(
    ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
)
_UNIT = re.compile(r"(?:second|minute|hour|day|week|month|year)s?")
_FILLERS = frozenset(("ago", "at", "on", "the", "of", "and"))
_YEARS = range(1970, 2100)


def git_date_fault(text: str) -> str | None:
    """What keeps a text from being a date that Git reads as it is meant; None for a good one."""
    if not text.strip() or len(text) > _MAX_LENGTH:
        return "is no date"
    pieces = _pieces(text.strip())
    if pieces is None:
        return "is no date"
    for kind, piece in pieces:
        if not _exists(kind, piece):
            return f"is no date that Git reads, {piece!r} is none"
    return None if _has_meaning(pieces) else "is no date"


def _pieces(text: str) -> list[tuple[str, str]] | None:
    """Kind and text of each piece; None when something in between is none."""
    pieces: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        found = _PIECE.match(text, at)
        if found is None:
            return None
        at = found.end()
        for kind, piece in found.groupdict().items():
            if piece is not None and kind != "gap":
                pieces.append((kind, piece.lower()))
    return pieces


def _exists(kind: str, piece: str) -> bool:
    """Whether a piece with numbers names a day, a time or an offset that there is."""
    numbers = [int(number) for number in re.findall(r"\d+", piece)]
    match kind:
        case "iso":
            return _is_day(*numbers)
        case "basic":
            return _is_day(int(piece[:4]), int(piece[4:6]), int(piece[6:]))
        case "basic_time":
            return _is_time(*(int(piece[at : at + 2]) for at in range(0, len(piece), 2)))
        case "date":
            first, second, third = numbers
            if first > 31:
                return _is_day(first, second, third)
            return _is_day(third, first, second) or _is_day(third, second, first)
        case "time":
            return _is_time(*numbers[:3])
        case "zone" if numbers:
            digits = "".join(re.findall(r"\d", piece))
            return int(digits[:2]) <= 14 and int(digits[2:]) <= 59
    return True


def _has_meaning(pieces: list[tuple[str, str]]) -> bool:
    """Whether every word is known, every number counts for something, and a date is left."""
    words = [piece if kind in ("word", "number", "time") else "" for kind, piece in pieces]
    months = any(map(_is_month, words))
    anchored = False
    for (kind, piece), before, after in zip(pieces, ["", *words], [*words[1:], ""], strict=False):
        counted = before == "last" or before in _NUMBERS or before.isdigit()
        if kind == "number":
            if not (_counts(after) or after in ("am", "pm") or (months and _is_in_date(piece))):
                return False
        elif kind == "word":
            if piece in _FILLERS:
                continue
            if not (
                piece in _MOMENTS
                or _is_month(piece)
                # Git takes a unit or a weekday alone for now.
                or (_counts(piece) and counted)
                or (_is_weekday(piece) and months)
                or (piece in ("am", "pm") and before[:1].isdigit())
                or ((piece == "last" or piece in _NUMBERS) and _counts(after))
            ):
                return False
        anchored = anchored or kind != "zone"
    return anchored


def _counts(word: str) -> bool:
    """Whether a number in front of the word, or `last`, makes a time of it."""
    return _UNIT.fullmatch(word) is not None or _is_weekday(word.removesuffix("s"))


def _is_in_date(number: str) -> bool:
    return 0 < int(number) <= 31 or int(number) in _YEARS


def _is_month(word: str) -> bool:
    return len(word) >= 3 and any(month.startswith(word) for month in _MONTHS)


def _is_weekday(word: str) -> bool:
    return len(word) >= 3 and any(day.startswith(word) for day in _WEEKDAYS)


def _is_day(year: int, month: int, day: int) -> bool:
    if year not in _YEARS:
        return False
    try:
        dt.date(year, month, day)
    except ValueError:
        return False
    return True


def _is_time(hour: int, minute: int, second: int = 0) -> bool:
    return hour < 24 and minute < 60 and second <= 60
