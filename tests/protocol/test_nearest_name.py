"""A mistyped name finds the one that was meant."""

from __future__ import annotations

import pytest

from maadd.protocol.suggestion import nearest

KNOWN = ("docId", "docType", "fields", "body", "idempotencyKey")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("doc_id", "docId"),
        ("DOCTYPE", "docType"),
        ("field", "fields"),
        ("bodie", "body"),
        ("idempotency-key", "idempotencyKey"),
        ("quux", None),
        ("", None),
        ("docId" * 100, None),
    ],
)
def test_nearest(name: str, meant: str | None) -> None:
    assert nearest(name, KNOWN) == meant


def test_nothing_is_near_when_nothing_is_known() -> None:
    assert nearest("docId", ()) is None
