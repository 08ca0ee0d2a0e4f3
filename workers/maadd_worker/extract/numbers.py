"""Numbers inside text: money, measures, quantities, percentages (spec 01 §6.2, §12).

Amounts and measures normalize to compact JSON with numbers in JavaScript style.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal

from maadd_worker.markdown.text import JS_WHITESPACE, js_number, js_trim, lead_float

_SPACE = f"[{JS_WHITESPACE}]"
_CODE_AMOUNT = re.compile(rf"(,*[0-9][0-9,]*(?:\.[0-9]+)?){_SPACE}+([A-Z]{{3}})")
_MEASURE = re.compile(rf"([0-9,]++(?:\.[0-9]++)?+){_SPACE}*+([^0-9{JS_WHITESPACE}].*)", re.DOTALL)
_PERCENT = re.compile(rf"([0-9.]++){_SPACE}*+(?:%|percent)")
_INTEGER = re.compile(r"[+-]?[0-9]{1,300}")
_MONEY_NUMBER = re.compile(
    rf"(?:[^0-9+\-{JS_WHITESPACE}]{{1,3}}?)??{_SPACE}*"
    r"([+-]?(?:[0-9][0-9,]*(?:\.[0-9]+)?|\.[0-9]+))"
)

_SYMBOLS = (
    ("C$", "CAD"),
    ("A$", "AUD"),
    ("$", "USD"),
    ("€", "EUR"),
    ("£", "GBP"),
    ("¥", "JPY"),
    ("₹", "INR"),
    ("₩", "KRW"),
)


def normalize_amount(text: str) -> str | None:
    """`1,250.00 USD` or `$1,250` as `{"amount":1250,"currency":"USD"}`."""
    text = js_trim(text)
    coded = _CODE_AMOUNT.fullmatch(text)
    if coded is not None:
        return _amount_json(_finite(float(coded[1].replace(",", ""))), coded[2])
    for symbol, currency in _SYMBOLS:
        if text.startswith(symbol):
            return _amount_json(lead_float(text.removeprefix(symbol).replace(",", "")), currency)
    return None


def normalize_measure(text: str) -> str | None:
    """`500mg` as `{"value":500,"unit":"mg"}`; no sign, no leading point."""
    found = _MEASURE.fullmatch(js_trim(text))
    number = lead_float(found[1].replace(",", "")) if found else None
    if found is None or number is None:
        return None
    return f'{{"value":{js_number(number)},"unit":{json.dumps(found[2], ensure_ascii=False)}}}'


def normalize_quantity(text: str) -> str | None:
    """The number that the text starts with, commas left out; integers stay exact."""
    digits = js_trim(text).replace(",", "")
    if _INTEGER.fullmatch(digits):
        return js_number(int(digits))
    number = lead_float(digits)
    return None if number is None else js_number(number)


def normalize_percentage(text: str) -> str | None:
    """A fraction: `15%` and `15 percent` as `0.15`; a bare number counts from 0 to 1 only."""
    text = js_trim(text).lower()
    found = _PERCENT.fullmatch(text)
    if found is not None:
        number = lead_float(found[1])
        return None if number is None else js_number(float(Decimal(repr(number)) / 100))
    number = lead_float(text)
    return js_number(number) if number is not None and 0 <= number <= 1 else None


def field_number(kind: str, value: object) -> float | None:
    """What a field value of type `kind` counts in numeric comparison: numbers and amounts only.

    A text in a number field gives its leading number; an amount may carry a marker of up to
    three characters before it (`$100`, `EUR 5`).
    """
    if isinstance(value, bool):
        return None
    if kind == "number":
        return lead_float(value) if isinstance(value, str) else _finite(value)
    if kind == "amount":
        text = money_decimal(value) if isinstance(value, str) else None
        return _finite(float(text)) if text is not None else _finite(value)
    return None


def money_decimal(text: str) -> str | None:
    """The number inside an amount as it is written, commas left out: `1,250.00 USD` gives
    `1250.00`, for sums that must not round."""
    found = _MONEY_NUMBER.match(js_trim(text))
    return found[1].replace(",", "") if found else None


def _amount_json(number: float | None, currency: str) -> str | None:
    if number is None:
        return None
    return f'{{"amount":{js_number(number)},"currency":"{currency}"}}'


def _finite(value: object) -> float | None:
    if not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
