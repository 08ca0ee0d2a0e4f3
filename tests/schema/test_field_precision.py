from __future__ import annotations

import pytest

from maadd_worker.schema.precision import is_calendar_date, literal_precision


@pytest.mark.parametrize(
    ("text", "precision"),
    [
        ("2026", "year"),
        ("2026-04", "month"),
        ("2026-04-16", "day"),
        ("2026-04-16T17", "hour"),
        ("2026-04-16T17Z", "hour"),
        ("2026-04-16T17:20", "minute"),
        ("2026-04-16T17:20+02:00", "minute"),
        ("2026-04-16T17:20:30", "second"),
        ("2026-04-16T17:20:30-05:00", "second"),
        ("2026-04-16T17:20:30.5", "millisecond"),
        ("2026-04-16T17:20:30.123456789Z", "millisecond"),
        ("2026-04-16T10-05:00", "hour"),
        ("2026-04-16+02:00", None),
        ("2026-04-05:00", None),
        ("2026Z", None),
        ("2026-04-16Z", None),
        ("2026-04-16T17:20:30.", None),
        ("2026-04-16 17:20", None),
        ("2026-04-16\n", None),
        ("٢٠٢٦", None),
        ("26-04", None),
        ("", None),
        ("spring 2026", None),
    ],
)
def test_the_precision_of_a_date_is_read_from_its_text(text: str, precision: str | None) -> None:
    assert literal_precision(text) == precision


@pytest.mark.parametrize(
    "text",
    [
        "2026-04-01",
        "2024-02-29",
        "2000-02-29",
        "0001-01-01",
        "9999-12-31",
        "2026-04-01T10",
        "2026-04-01T23:59:60Z",
        "2026-04-01 10:30",
        "2026-04-01 10:30:00 +02:00",
        "2026-04-01T10:30:00.250+0200",
    ],
)
def test_existing_days_are_calendar_dates(text: str) -> None:
    assert is_calendar_date(text)


@pytest.mark.parametrize(
    "text",
    [
        "2026-13-45",
        "2026-02-29",
        "1900-02-29",
        "2026-04-31",
        "2026-00-10",
        "2026-01-00",
        "0000-01-01",
        "2026-04-01 garbage",
        "2026-04-01T24:00",
        "2026-04-01T10:61",
        "2026-04-01x",
        "2026-04-01T",
        "2026-04-01 ",
        "2026-04-01\n",
        "2026-04",
        "",
    ],
)
def test_impossible_days_and_trailing_text_are_not(text: str) -> None:
    assert not is_calendar_date(text)
