"""Arguments of the reading tools: needs, defaults and bounds (spec 02 §3, §4, §7)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from maadd.protocol.errors import MaadError
from maadd.protocol.tools import TOOLS
from maadd.protocol.validation import check_arguments


def checked(tool: str, args: dict[str, Any]) -> Any:
    return check_arguments(TOOLS[f"maad_{tool}"], args)


@pytest.mark.parametrize(
    ("tool", "needed", "defaults"),
    [
        ("get", {"docId": "x"}, {"depth": "hot", "block": None}),
        (
            "query",
            {"docType": "x"},
            {"filters": None, "sort_by": None, "sort_order": "desc", "limit": 50, "offset": 0,
             "depth": "hot", "depth_max_results": 50, "include_file_path": False},
        ),
        ("search", {"primitive": "date"}, {"limit": 50, "offset": 0, "query": None, "value": None}),
        ("related", {"docId": "x"}, {"direction": "both"}),
        (
            "relationship_paths",
            {"startDocId": "x"},
            {"direction": "outgoing", "max_depth": 2, "max_nodes": 50, "max_edges": 100,
             "max_paths": 25, "field_labels": None, "extraction_kinds": ("ref",)},
        ),
        ("aggregate", {"groupBy": "x"}, {"doc_type": None, "metric": None, "limit": 50}),
        ("join", {"docType": "x", "refs": []}, {"limit": 50, "offset": 0}),
        ("verify", {"mode": "integrity"}, {"verbose": False, "categories": None}),
        ("find_orphans", {}, {"doc_type": None, "doc_id": None, "filters": None}),
        ("changes_since", {}, {"cursor": None, "limit": 100}),
        ("history", {"docId": "x"}, {"limit": 100, "since": None}),
        ("audit", {}, {"limit": 200, "offset": 0, "since": None, "until": None}),
        ("semantic_search", {"query": "x"}, {"mode": "exact", "k": 10, "snippet": True}),
        ("schema", {"docType": "x"}, {}),
        ("scan", {"path": "x"}, {}),
        ("summary", {}, {}),
        ("describe", {}, {}),
    ],
)  # fmt: skip
def test_what_is_needed_and_what_is_taken_without_being_given(
    tool: str, needed: dict[str, Any], defaults: dict[str, Any]
) -> None:
    taken = checked(tool, needed)
    assert {name: getattr(taken, name) for name in defaults} == defaults
    for name in needed:
        with pytest.raises(MaadError) as refusal:
            checked(tool, {key: value for key, value in needed.items() if key != name})
        assert refusal.value.details is not None
        assert [issue["path"] for issue in refusal.value.details["issues"]] == [name]


@pytest.mark.parametrize(
    ("tool", "args", "path"),
    [
        ("get", {"docId": "x", "depth": "deep"}, "depth"),
        ("query", {"docType": "x", "limit": 0}, "limit"),
        ("query", {"docType": "x", "offset": -1}, "offset"),
        ("query", {"docType": "x", "depthMaxResults": 0}, "depthMaxResults"),
        ("query", {"docType": "x", "sortOrder": "up"}, "sortOrder"),
        ("query", {"docType": "x", "fields": "name"}, "fields"),
        ("search", {"primitive": "date", "limit": 0}, "limit"),
        ("search", {"primitive": "date", "offset": -1}, "offset"),
        ("related", {"docId": "x", "direction": "up"}, "direction"),
        ("relationship_paths", {"startDocId": "x", "maxDepth": 5}, "maxDepth"),
        ("relationship_paths", {"startDocId": "x", "maxNodes": 101}, "maxNodes"),
        ("relationship_paths", {"startDocId": "x", "maxEdges": 201}, "maxEdges"),
        ("relationship_paths", {"startDocId": "x", "maxPaths": 0}, "maxPaths"),
        ("relationship_paths", {"startDocId": "x", "fieldLabels": [""]}, "fieldLabels[0]"),
        ("relationship_paths", {"startDocId": "x", "extractionKinds": ["x"]}, "extractionKinds[0]"),
        ("aggregate", {"groupBy": "x", "limit": 0}, "limit"),
        ("aggregate", {"groupBy": ["x", 3]}, "groupBy[1]"),
        ("aggregate", {"groupBy": "x", "metric": {"field": "y", "op": "median"}}, "metric.op"),
        ("join", {"docType": "x", "refs": [], "limit": 0}, "limit"),
        ("verify", {"mode": "all"}, "mode"),
        ("verify", {"mode": "integrity", "categories": ["x"]}, "categories[0]"),
        ("verify", {"mode": "count", "docType": "x", "expectedCount": "1"}, "expectedCount"),
        ("verify", {"mode": "count", "docType": "x"}, "expectedCount"),
        ("verify", {"mode": "field", "docId": "x", "field": "y"}, "expected"),
        ("changes_since", {"limit": 0}, "limit"),
        ("history", {"docId": "x", "limit": 1001}, "limit"),
        ("history", {"docId": "x", "since": "--output=x"}, "since"),
        ("audit", {"limit": 0}, "limit"),
        ("audit", {"offset": -1}, "offset"),
        ("audit", {"until": "whenever"}, "until"),
        ("semantic_search", {"query": "x", "mode": "best"}, "mode"),
        ("semantic_search", {"query": "x", "k": 0}, "k"),
    ],
)
def test_what_is_out_of_bounds_is_named(tool: str, args: dict[str, Any], path: str) -> None:
    with pytest.raises(MaadError) as refusal:
        checked(tool, args)
    assert refusal.value.code == "INVALID_ARGS"
    assert refusal.value.details is not None
    assert refusal.value.details["tool"] == f"maad_{tool}"
    assert [issue["path"] for issue in refusal.value.details["issues"]] == [path]


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("query", {"docType": "x", "limit": 10**6, "depthMaxResults": 10**6, "offset": 10**6}),
        ("changes_since", {"limit": 10**6, "docTypes": ["x"], "cursor": ""}),
        ("relationship_paths", {"startDocId": "x", "maxDepth": 4, "maxNodes": 100,
                                "maxEdges": 200, "maxPaths": 50, "fieldLabels": [],
                                "extractionKinds": []}),
        ("verify", {"mode": "field", "docId": "x", "field": "y", "expected": None}),
        ("history", {"docId": "x", "limit": 1000}),
        ("get", {"docId": "x", "_client": {"a": 1}}),
    ],
)  # fmt: skip
def test_what_is_clamped_later_or_ignored_is_accepted(tool: str, args: dict[str, Any]) -> None:
    taken = msgspec.json.decode(msgspec.json.encode(checked(tool, args)))
    given = {name: value for name, value in args.items() if not name.startswith("_")}
    assert {name: taken[name] for name in given} == given
