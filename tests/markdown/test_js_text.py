"""Text of values, trimming and leading numbers follow ECMAScript (spec 01 §18, 02 §1.5)."""

from __future__ import annotations

import datetime as dt

import pytest

from maadd_worker.markdown.text import iso_milliseconds, js_number, js_text, js_trim, lead_float

TRIMMED = [
    *(0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x20, 0xA0, 0x1680, *range(0x2000, 0x200B)),
    *(0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF),
]
KEPT = [0x1C, 0x1D, 0x1E, 0x1F, 0x85, 0x180E, 0x200B, 0x2060, 0x00, 0x7F, 0xAD]


@pytest.mark.parametrize("code", TRIMMED)
def test_trim_removes_every_es_white_space_character(code: int) -> None:
    assert js_trim(f"{chr(code)} a b {chr(code)}") == "a b"


@pytest.mark.parametrize("code", KEPT)
def test_trim_keeps_what_only_python_takes_for_white_space(code: int) -> None:
    assert js_trim(f"{chr(code)}a{chr(code)}") == f"{chr(code)}a{chr(code)}"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (-0.0, "0"),
        (3.0, "3"),
        (1250.0, "1250"),
        (1234.5, "1234.5"),
        (0.1, "0.1"),
        (-3.5, "-3.5"),
        (1e20, "100000000000000000000"),
        (1.5e20, "150000000000000000000"),
        (1.2345678901234567e20, "123456789012345670000"),
        (9007199254740993.0, "9007199254740992"),
        (1e21, "1e+21"),
        (1.5e300, "1.5e+300"),
        (1e-6, "0.000001"),
        (-1.2e-6, "-0.0000012"),
        (2.5e-5, "0.000025"),
        (1e-7, "1e-7"),
        (5e-324, "5e-324"),
        (9007199254740993, "9007199254740993"),
        (10**25, "1" + "0" * 25),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_numbers_print_in_javascript_style(number: float, text: str) -> None:
    assert js_number(number) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is ", "as it is "),
        (True, "true"),
        (False, "false"),
        (None, "null"),
        (3.0, "3"),
        ([1, "a", None, True], "1,a,,true"),
        ([[1, 2], [3]], "1,2,3"),
        ([], ""),
        ({"b": [1.0, None], "a": 'x"\n'}, '{"a":"x\\"\\n","b":[1,null]}'),
        ([{"b": 1, "a": 2}], '{"a":2,"b":1}'),
        (dt.datetime(2026, 4, 16, 17, 20, 30, 500_000, dt.UTC), "2026-04-16T17:20:30.500Z"),
    ],
)
def test_text_form_of_values(value: object, text: str) -> None:
    assert js_text(value) == text


def test_moments_are_given_in_utc_with_milliseconds() -> None:
    east = dt.timezone(dt.timedelta(hours=2))
    assert (
        iso_milliseconds(dt.datetime(2026, 1, 1, 1, 0, tzinfo=east)) == "2025-12-31T23:00:00.000Z"
    )
    assert iso_milliseconds(dt.datetime(2026, 1, 1)) == "2026-01-01T00:00:00.000Z"  # noqa: DTZ001


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("42", 42.0),
        ("12 apples", 12.0),
        ("\ufeff 7", 7.0),
        ("-5", -5.0),
        ("+5", 5.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("1e", 1.0),
        ("0x10", 0.0),
        ("١", None),
        ("apples", None),
        ("", None),
        ("Infinity", None),
        ("nan", None),
        ("1e999", None),
    ],
)
def test_leading_number(text: str, number: float | None) -> None:
    assert lead_float(text) == number
