from __future__ import annotations

import pytest

from maadd_worker.extract.numbers import field_number, money_decimal


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("$100", 100.0),
        ("€ 1,500", 1500.0),
        ("USD 25.50", 25.5),
        ("USD 25", 25.0),
        ("Rs. 500", 500.0),
        ("1,234.56", 1234.56),
        ("1,250.00 USD", 1250.0),
        ("340.00 EUR", 340.0),
        (".5 EUR", 0.5),
        ("-5 USD", -5.0),
        ("$-5", -5.0),
        ("n/a", None),
        ("free", None),
        ("", None),
        (12, 12.0),
        (True, None),
        (None, None),
        (["5 EUR"], None),
        ("9" * 400, None),
    ],
)
def test_the_number_inside_an_amount(value: object, number: float | None) -> None:
    assert field_number("amount", value) == number


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (12, 12.0),
        (12.5, 12.5),
        ("12.5 kg", 12.5),
        ("heavy", None),
        (False, None),
        (float("nan"), None),
        (float("inf"), None),
        (10**400, None),
        ({"a": 1}, None),
    ],
)
def test_the_number_of_a_number_field(value: object, number: float | None) -> None:
    assert field_number("number", value) == number


@pytest.mark.parametrize("kind", ["string", "date", "enum", "ref", "boolean", "list"])
def test_other_fields_have_no_number(kind: str) -> None:
    assert field_number(kind, 5) is None
    assert field_number(kind, "5") is None


@pytest.mark.parametrize(
    ("text", "decimal"),
    [
        ("1,250.00 USD", "1250.00"),
        ("0.10 EUR", "0.10"),
        ("$ 3", "3"),
        ("123456789012345678901234567890.01 USD", "123456789012345678901234567890.01"),
        ("none", None),
    ],
)
def test_the_decimal_text_of_an_amount_is_kept_as_written(text: str, decimal: str | None) -> None:
    assert money_decimal(text) == decimal
