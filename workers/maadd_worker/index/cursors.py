"""Cursors of query pages: the sort values of the last row (spec 02 §4.2)."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.index.scope import Scope
from maadd_worker.index.sorting import Sort


class _Cursor(msgspec.Struct, frozen=True, array_like=True):
    key: str
    descending: bool
    scope: str
    position: tuple[str | float | int, ...]


_decoder = msgspec.json.Decoder(_Cursor)


def scope_digest(scope: Scope) -> str:
    """A short digest that tells cursors of different filters apart."""
    parts = msgspec.json.encode((scope.sql, scope.params))
    return hashlib.sha256(parts).hexdigest()[:12]


def encode_cursor(sort: Sort, digest: str, position: tuple[Any, ...]) -> str:
    """Unpadded base64url of a row's sort values and id."""
    cursor = _Cursor(sort.key, sort.descending, digest, position)
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")


def decode_cursor(text: str, sort: Sort, digest: str) -> tuple[Any, ...]:
    """Sort values and id of the last row; INVALID_FIELDS when it is not of this query."""
    try:
        padded = text + "=" * (-len(text) % 4)
        cursor = _decoder.decode(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise _invalid("is not one that a query returned") from error
    same = (cursor.key, cursor.descending, cursor.scope) == (sort.key, sort.descending, digest)
    if not same or len(cursor.position) != len(sort.key_columns) + 1:
        raise _invalid("belongs to a query with other filters or another order")
    return cursor.position


def _invalid(why: str) -> MaadError:
    return MaadError(
        "INVALID_FIELDS",
        f"the cursor {why}; start again without it",
        {"field": "cursor"},
    )
