"""Filters (spec 02 §2.2, §2.3): every operator on text, number and list fields, and refusals."""

from __future__ import annotations

import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.index.pages import count_matches
from maadd_worker.index.scope import build_scope

RECORDS = {
    "tsk-1": {
        "title": "Alpha",
        "state": "todo",
        "due": "2031-01-10",
        "points": "9",
        "budget": "100 EUR",
        "labels": "[red, green]",
        "scores": "[1, 20]",
    },
    "tsk-2": {
        "title": "alphabet 50%",
        "state": "doing",
        "due": "2031-02-10",
        "points": "100",
        "budget": "2.50 EUR",
        "labels": "[red]",
        "scores": "[6]",
    },
    "tsk-3": {
        "title": "under_score",
        "state": "done",
        "points": "2.5",
        "labels": "[]",
        "scores": "[7, 7]",
    },
    "tsk-4": {"title": '"5"', "points": "-1", "budget": "lots", "labels": "[true, null, 10]"},
}


@pytest.fixture
def records(project):
    for doc_id, fields in RECORDS.items():
        project.index_file(project.task(doc_id, **fields))
    project.index_file(project.member("mbr-1", name="Alpha"))
    dead = project.index_file(project.task("tsk-dead", **RECORDS["tsk-1"])).row
    with project.writer.transaction():
        project.writer.tombstone(dead.doc_id, "work/tasks/_deleted_tsk-dead.md")
    return project


def matches(project, reader, filters, doc_type="task") -> str:
    """The numbers of the matching records, found by the condition and by the count."""
    scope = build_scope(doc_type, filters, project.model)
    sql = f"SELECT d.doc_id FROM documents d WHERE {scope.sql} ORDER BY d.doc_id"
    found = [doc_id for (doc_id,) in reader.connection.execute(sql, scope.params)]
    assert count_matches(reader, scope, "") == len(found)
    return " ".join(doc_id.removeprefix("tsk-") for doc_id in found)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (None, "1 2 3 4"),
        ({}, "1 2 3 4"),
        # text
        ({"title": "Alpha"}, "1"),
        ({"title": "alpha"}, ""),
        ({"title": 5}, "4"),
        ({"title": "5"}, "4"),
        ({"title": {"op": "eq", "value": "Alpha"}}, "1"),
        ({"state": {"op": "neq", "value": "todo"}}, "2 3"),
        ({"state": {"op": "neq", "value": "nothing"}}, "1 2 3"),
        ({"state": {"op": "in", "value": ["todo", "done", "x"]}}, "1 3"),
        ({"state": {"op": "in", "value": []}}, ""),
        ({"title": {"op": "contains", "value": "ALPHA"}}, "1 2"),
        ({"title": {"op": "contains", "value": "%"}}, "2"),
        ({"title": {"op": "contains", "value": "r_s"}}, "3"),
        ({"title": {"op": "contains", "value": "a_p"}}, ""),
        ({"title": {"op": "contains", "value": "\\"}}, ""),
        ({"due": {"op": "gt", "value": "2031-01-10"}}, "2"),
        ({"due": {"op": "gte", "value": "2031-01-10"}}, "1 2"),
        ({"due": {"op": "lt", "value": "2031-02"}}, "1"),
        ({"due": {"op": "lte", "value": "2031-02-10"}}, "1 2"),
        ({"due": {"op": "between", "value": ["2031-01-10", "2031-02-10"]}}, "1 2"),
        ({"due": {"op": "gt", "value": 5}}, ""),
        # number and amount
        ({"points": 9}, "1"),
        ({"points": "9"}, "1"),
        ({"points": 2.5}, "3"),
        ({"points": {"op": "neq", "value": 9}}, "2 3 4"),
        ({"points": {"op": "gt", "value": 9}}, "2"),
        ({"points": {"op": "gt", "value": "9"}}, "2"),
        ({"points": {"op": "gte", "value": "9.0"}}, "1 2"),
        ({"points": {"op": "lt", "value": 9}}, "3 4"),
        ({"points": {"op": "lte", "value": 2.5}}, "3 4"),
        ({"points": {"op": "gt", "value": -2}}, "1 2 3 4"),
        ({"points": {"op": "gt", "value": 10**400}}, ""),
        ({"points": {"op": "lt", "value": 10**400}}, "1 2 3 4"),
        ({"points": {"op": "between", "value": [2.5, 9]}}, "1 3"),
        ({"points": {"op": "between", "value": ["-1", "9"]}}, "1 3 4"),
        ({"points": {"op": "in", "value": [9, "100"]}}, "1 2"),
        ({"points": {"op": "contains", "value": "0"}}, "2"),
        ({"budget": {"op": "gte", "value": 2.5}}, "1 2"),
        ({"budget": {"op": "lt", "value": "100"}}, "2"),
        ({"budget": "100 EUR"}, "1"),
        ({"budget": {"op": "neq", "value": "lots"}}, "1 2"),
        # lists
        ({"labels": "red"}, "1 2"),
        ({"labels": {"op": "neq", "value": "red"}}, "4"),
        ({"labels": {"op": "neq", "value": "blue"}}, "1 2 4"),
        ({"labels": [{"op": "neq", "value": "green"}, {"op": "neq", "value": "10"}]}, "2"),
        ({"labels": True}, "4"),
        ({"labels": 10}, "4"),
        ({"labels": {"op": "in", "value": ["green", "red"]}}, "1 2"),
        ({"labels": {"op": "contains", "value": "re"}}, "1 2"),
        ({"labels": {"op": "gt", "value": "green"}}, "1 2 4"),
        ({"scores": {"op": "gt", "value": 6}}, "1 3"),
        ({"scores": {"op": "gte", "value": "6"}}, "1 2 3"),
        ({"scores": 7}, "3"),
        ({"scores": {"op": "between", "value": [5, 10]}}, "2 3"),
        # the same value must satisfy everything
        ({"scores": [{"op": "gte", "value": 10}, {"op": "lte", "value": 5}]}, ""),
        ({"scores": [{"op": "gte", "value": 10}, {"op": "neq", "value": 1}]}, ""),
        ({"scores": [{"op": "gte", "value": 10}, {"op": "neq", "value": 2}]}, "1"),
        ({"labels": ["red", "green"]}, ""),
        ({"labels": ["red"]}, "1 2"),
        # nesting, several fields, fields that are not there
        ({"points": [[{"op": "gte", "value": 2}], [[{"op": "between", "value": [1, 9]}]]]}, "1 3"),
        ({"labels": "red", "points": {"op": "gt", "value": 50}}, "2"),
        ({"labels": "red", "state": {"op": "neq", "value": "todo"}}, "2"),
        ({"note": "x"}, ""),
        ({"note": {"op": "neq", "value": "x"}}, ""),
        ({"doc_id": "tsk-1"}, ""),
        ({"state": None}, ""),
        ({"title": "'; DROP TABLE documents; --"}, ""),
    ],
)
def test_filter_matrix(records, reader, filters, expected):
    assert matches(records, reader, filters) == expected


def test_without_a_type_every_type_is_searched(records, reader):
    assert matches(records, reader, {}, None) == "mbr-1 1 2 3 4"
    assert matches(records, reader, {"name": "Alpha"}, None) == "mbr-1"
    assert matches(records, reader, {"points": {"op": "gt", "value": "9"}}, None) == "2"


def test_an_unknown_type_has_no_records(records, reader):
    assert matches(records, reader, {"title": "Alpha"}, "nothing") == ""
    assert matches(records, reader, {}, "nothing") == ""


def test_more_values_than_sqlite_takes_parameters(records, reader):
    values = [f"tsk-{number}" for number in range(40_000)] + ["Alpha"]
    assert matches(records, reader, {"title": {"op": "in", "value": values}}) == "1"
    assert matches(
        records, reader, {"title": [{"op": "neq", "value": value} for value in values[-100:]]}
    ) == ("2 3 4")


@pytest.mark.parametrize(
    ("filters", "code", "details"),
    [
        ({"title": []}, "FILTER_EMPTY_ARRAY", {"field": "title"}),
        ({"title": ["a", []]}, "FILTER_EMPTY_ARRAY", {"field": "title"}),
        ({"title": {}}, "FILTER_OP_INVALID", {"field": "title", "op": None}),
        ({"title": {"op": 5, "value": 1}}, "FILTER_OP_INVALID", {"field": "title", "op": None}),
        (
            {"title": {"op": "like", "value": 1}},
            "FILTER_OP_INVALID",
            {"field": "title", "op": "like"},
        ),
        (
            {"title": {"op": "eq"}},
            "FILTER_OP_INVALID",
            {"field": "title", "op": "eq", "reason": "value_missing"},
        ),
        (
            {"title": {"op": "in", "value": "a"}},
            "FILTER_OP_INVALID",
            {"field": "title", "op": "in", "reason": "in_requires_array"},
        ),
        ("title", "FILTER_OP_INVALID", {"reason": "filters_not_object"}),
        (["title"], "FILTER_OP_INVALID", {"reason": "filters_not_object"}),
        (7, "FILTER_OP_INVALID", {"reason": "filters_not_object"}),
        *(
            (
                {"points": {"op": "between", "value": value}},
                "FILTER_BETWEEN_INVALID",
                {"field": "points"},
            )
            for value in (None, 5, [], [1], [1, 2, 3], [None, 1], [1, None], [2, 1], ["b", "a"])
        ),
        ({"points": {"op": "between"}}, "FILTER_BETWEEN_INVALID", {"field": "points"}),
        (
            {f"f{number}": 1 for number in range(101)},
            "FILTER_OP_INVALID",
            {"reason": "too_many_fields"},
        ),
        (
            {"title": [{"op": "neq", "value": number} for number in range(101)]},
            "FILTER_OP_INVALID",
            {"field": "title", "reason": "too_many_operators"},
        ),
    ],
)
def test_refused_filters(project, filters, code, details):
    with pytest.raises(MaadError) as caught:
        build_scope("task", filters, project.model)
    assert (caught.value.code, caught.value.details) == (code, details)


@pytest.mark.parametrize("bounds", [[1, "a"], ["a", 1], [1, 1], ["a", "a"], [True, False]])
def test_accepted_bounds(project, bounds):
    build_scope("task", {"points": {"op": "between", "value": bounds}}, project.model)


def test_bounds_compare_by_code_units(project):
    scope = {"title": {"op": "between", "value": ["\uffff", "\U0001f600"]}}
    with pytest.raises(MaadError):
        build_scope("task", scope, project.model)


@pytest.mark.parametrize(
    ("doc_type", "filters", "expected"),
    [
        ("task", {"note": "x"}, [("FILTER_FIELD_NOT_INDEXED", "note")]),
        ("task", {"nothing": "x"}, [("FILTER_FIELD_NOT_INDEXED", "nothing")]),
        (None, {"nothing": "x"}, []),
        ("unknown", {"nothing": "x"}, []),
        ("task", {"state": ["todo", "done"]}, [("FILTER_ARRAY_OF_SCALARS", "state")]),
        ("task", {"state": ["todo"]}, []),
        ("task", {"state": [{"op": "neq", "value": "a"}, "todo"]}, []),
        (
            "task",
            {"state": {"op": "neq", "value": "a", "or": "b"}},
            [("FILTER_MEMBER_IGNORED", "state")],
        ),
    ],
)
def test_warnings(project, doc_type, filters, expected):
    scope = build_scope(doc_type, filters, project.model)
    assert [(warning.code, warning.field) for warning in scope.warnings] == expected
