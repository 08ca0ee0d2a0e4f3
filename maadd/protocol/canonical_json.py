"""The one JSON text of a value, which every digest of the host contracts is taken over.

Members sorted by UTF-16 code units, numbers as ECMAScript prints doubles, nothing escaped
that need not be (spec 05 §3). Own code, because the ready-made encoders of RFC 8785 refuse
what has to be accepted here: half surrogate pairs, and integers beyond 2⁵³.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any

import msgspec

from maadd.protocol.errors import MaadError
from maadd.protocol.es_text import number_text

_quote = json.encoder.encode_basestring
_SURROGATE = re.compile("[\ud800-\udfff]")
_SAFE = 2**53


class Limits(msgspec.Struct, frozen=True):
    """Bounds of a value (§3.4). Every value and every object key is a node; the root has depth
    0, an item and a key one more than what they are in; `scalar_bytes` is the UTF-8 size of
    all encoded scalars and keys, quotes included."""

    nodes: int
    depth: int
    scalar_bytes: int


STANDARD = Limits(nodes=65_536, depth=64, scalar_bytes=1_048_576)
DELIVERY = Limits(nodes=65_792, depth=68, scalar_bytes=2_097_152)
"""Wider, because a delivery wraps content that may itself stand at the standard bounds."""


def canonical_json(value: Any, limits: Limits = STANDARD) -> str:
    """The canonical text; encodable as UTF-8 whatever the value holds.

    Raises RECEIPT_CONTENT_INVALID (`cause`: `unsupported`, `non-finite`, `nodes`, `depth`) and
    RESPONSE_TOO_LARGE (scalar bytes). Exact `dict`, `list`, `str`, `bool`, `int`, `float` and
    None are values, nothing else is.
    """
    writer = _Writer(limits)
    writer.write(value, 0)
    return "".join(writer.parts)


def sha256_hex(text: str | bytes) -> str:
    """SHA-256 as 64 lower-case hex digits; of a text over its UTF-8 bytes."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def scalar_json(value: Any) -> str:
    """The canonical text of null, a boolean, a number or a string."""
    kind = type(value)
    if kind is str:
        return _string(value)
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if kind is int and -_SAFE <= value <= _SAFE:
        return str(value)
    if kind is int or kind is float:
        return _number(value)
    raise _invalid("unsupported", f"a value of type {kind.__name__} is no JSON")


def whole_characters(text: str) -> str:
    """`text` with both halves of a surrogate pair joined; lone halves stay."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def utf16_order(key: str) -> bytes:
    """What keys are sorted by."""
    return key.encode("utf-16-be", "surrogatepass")


def sorted_members(members: dict[str, Any]) -> list[tuple[str, Any]]:
    """The members in canonical order; of keys that are one text the last one counts.

    RECEIPT_CONTENT_INVALID for a key that is no string.
    """
    plain = True
    for key in members:
        if type(key) is not str:
            raise _invalid("unsupported", "an object key is no string")
        plain = plain and key.isascii()
    if plain:
        return sorted(members.items())
    whole = {whole_characters(key): value for key, value in members.items()}
    return sorted(whole.items(), key=lambda member: utf16_order(member[0]))


def utf8_size(text: str) -> int:
    """UTF-8 bytes of a text without half surrogate pairs."""
    return len(text) if text.isascii() else len(text.encode())


class _Writer:
    """Walks a value once, counting against the bounds before it goes deeper. A container that
    contains itself ends at one of them."""

    __slots__ = ("_bytes", "_limits", "_nodes", "parts")

    def __init__(self, limits: Limits) -> None:
        self.parts: list[str] = []
        self._limits = limits
        self._nodes = 0
        self._bytes = 0

    def write(self, value: Any, depth: int) -> None:
        kind = type(value)
        if kind is not dict and kind is not list:
            self._scalar(value, depth)
            return
        self._count(depth)
        parts = self.parts
        separator = ""
        if kind is list:
            parts.append("[")
            for item in value:
                parts.append(separator)
                self.write(item, depth + 1)
                separator = ","
            parts.append("]")
            return
        parts.append("{")
        for key, member in sorted_members(value):
            parts.append(separator)
            self._scalar(key, depth + 1)
            parts.append(":")
            self.write(member, depth + 1)
            separator = ","
        parts.append("}")

    def _scalar(self, value: Any, depth: int) -> None:
        self._count(depth)
        text = scalar_json(value)
        self._bytes += utf8_size(text)
        if self._bytes > self._limits.scalar_bytes:
            raise MaadError(
                "RESPONSE_TOO_LARGE",
                f"texts and numbers take more than {self._limits.scalar_bytes} bytes",
                {"capBytes": self._limits.scalar_bytes},
            )
        self.parts.append(text)

    def _count(self, depth: int) -> None:
        self._nodes += 1
        if self._nodes > self._limits.nodes:
            raise _invalid("nodes", f"more than {self._limits.nodes} values and keys")
        if depth > self._limits.depth:
            raise _invalid("depth", f"nested deeper than {self._limits.depth} levels")


def _string(text: str) -> str:
    if text.isascii() or not _SURROGATE.search(text):
        return _quote(text)
    return _SURROGATE.sub(
        lambda half: f"\\u{ord(half.group()):04x}", _quote(whole_characters(text))
    )


def _number(value: int | float) -> str:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _invalid("non-finite", "a number is infinite or none")
    return number_text(number)


def _invalid(cause: str, message: str) -> MaadError:
    return MaadError("RECEIPT_CONTENT_INVALID", message, {"cause": cause})
