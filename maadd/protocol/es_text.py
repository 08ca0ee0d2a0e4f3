"""Text rules that the formats take from ECMAScript: white space and numbers (spec 05 §3, §4.4)."""

from __future__ import annotations

WHITESPACE = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""The complete set that ES `trim()` removes and `\\s` matches."""

_EXPONENT_FROM = 1e21
_EXPONENT_BELOW = 1e-6


def trim(text: str) -> str:
    """`text` without ES white space at both ends (U+FEFF goes, U+001C and U+0085 stay)."""
    return text.strip(WHITESPACE)


def number_text(value: float) -> str:
    """The shortest decimal of a finite double as ES prints it: `3`, `0.5`, `1e+21`, `1e-7`.

    Negative zero is `0`.
    """
    magnitude = abs(value)
    if value.is_integer() and magnitude < 2**53:
        return str(int(value))
    if _EXPONENT_BELOW <= magnitude < _EXPONENT_FROM:
        shortest = repr(value)
        return _positional(shortest) if "e" in shortest else shortest.removesuffix(".0")
    mantissa, exponent = repr(value).split("e")
    mantissa = mantissa.removesuffix(".0")
    return f"{mantissa}e{exponent[0]}{exponent[1:].lstrip('0')}"


def _positional(shortest: str) -> str:
    """`1.5e+20` or `1e-06` written without an exponent."""
    sign = "-" if shortest[0] == "-" else ""
    mantissa, exponent = shortest.lstrip("-").split("e")
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    point = len(whole) + int(exponent)
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits.ljust(point, '0')}"
