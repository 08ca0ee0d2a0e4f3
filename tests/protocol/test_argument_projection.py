"""Logs show which arguments a call had, never what a record says (spec 03 §2.6)."""

from __future__ import annotations

from typing import Any

import pytest

from maadd.protocol.log_projection import project_arguments
from maadd.protocol.tools import TOOLS
from maadd.protocol.validation import check_arguments


def projected(tool: str, raw: dict[str, Any]) -> dict[str, Any]:
    return project_arguments(TOOLS[tool], check_arguments(TOOLS[tool], raw))


def test_bodies_become_byte_counts_and_fields_become_names() -> None:
    raw = {"docType": "memo", "fields": {"topic": "S€cret", "n": 1}, "body": "grün", "docId": "m-1"}
    assert projected("maad_create", raw) == {
        "docType": "memo",
        "docId": "m-1",
        "fieldNames": ["topic", "n"],
        "bodyBytes": 5,
    }


def test_an_update_shows_its_shape() -> None:
    raw = {"docId": "m-1", "appendBody": "ab", "unsetFields": ["x"], "expectedVersion": 3}
    assert projected("maad_update", raw) == {
        "docId": "m-1",
        "unsetFieldsCount": 1,
        "unsetFieldsBytes": 5,
        "appendBodyBytes": 2,
        "expectedVersion": 3,
    }


def test_bulk_items_become_counts_and_bytes() -> None:
    raw = {"records": [{"docType": "memo", "fields": {"a": 1}, "body": "x"}] * 2}
    item = len('{"docType":"memo","fields":{"a":1},"body":"x"}')
    assert projected("maad_bulk_create", raw) == {
        "recordsCount": 2,
        "recordsBytes": 2 * item + len("[,]"),
    }


@pytest.mark.parametrize(
    ("confirm", "mode"), [(True, "confirmed"), ("true", "dry_run"), (None, "dry_run")]
)
def test_cleanup_tells_whether_it_was_confirmed(confirm: Any, mode: str) -> None:
    raw = {"docType": "memo", "filters": {"owner": "lind"}, "confirm": confirm}
    assert projected("maad_delete_where", raw) == {
        "docType": "memo",
        "filterFields": ["owner"],
        "confirm_mode": mode,
    }


SECRET = "TOP-SECRET"


@pytest.mark.parametrize(
    ("tool", "raw"),
    [
        ("maad_create", {"docType": "a", "fields": f'{{"x":"{SECRET}"}}'}),
        ("maad_create", {"docType": "a", "fields": [SECRET]}),
        ("maad_create", {"docType": "a", "fields": {"x": {"y": SECRET}}, "body": SECRET}),
        ("maad_bulk_update", {"updates": [{"docId": "a", "fields": {"x": SECRET}}]}),
        ("maad_query", {"docType": "a", "filters": {"x": {"op": "eq", "value": SECRET}}}),
        ("maad_query", {"docType": "a", "filters": [SECRET]}),
        ("maad_search", {"primitive": "entity", "value": SECRET, "query": SECRET}),
        ("maad_verify", {"mode": "field", "docId": "a", "field": "x", "expected": SECRET}),
        ("maad_verify", {"mode": "field", "docId": "a", "field": "x", "expected": {"y": SECRET}}),
        ("maad_semantic_search", {"query": SECRET}),
        ("maad_backup", {"message": SECRET}),
    ],
)
def test_no_value_of_a_record_is_shown(tool: str, raw: dict[str, Any]) -> None:
    assert SECRET not in repr(projected(tool, raw))


def test_long_and_odd_values_make_short_lines() -> None:
    raw = {"docId": "x" * 10_000, "fields": {f"f{n}": n for n in range(1_000)}}
    assert len(repr(projected("maad_update", raw))) < 2_000
    odd = {"docType": "a", "fields": {"\ud83d": 1}, "body": "\ud83d", "docId": "b"}
    assert projected("maad_create", odd)["bodyBytes"] == 3
    huge = {"updates": [{"docId": "a", "fields": {"n": 2**70}}]}
    assert projected("maad_bulk_update", huge)["updatesCount"] == 1
