"""Queries against a hundred-line evaluator that keeps the records in memory."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maadd_worker.index import known_texts, pages, selections
from maadd_worker.index.pages import query_page
from maadd_worker.index.scope import build_scope
from maadd_worker.index.sorting import resolve_sort
from maadd_worker.markdown.text import js_text

TEXTS = ["a", "b", "B", "aa", "10", "9", "é", "%", "a_b", "Baaa_bé", "aAa_b", "é\0B"]
NUMBERS = [-1, 0, 2, 2.5, 9, 10, 100]
MEMBERS = ["mbr-1", "mbr-2", "mbr-gone"]

record = st.fixed_dictionaries(
    {},
    optional={
        "title": st.sampled_from(TEXTS),
        "points": st.sampled_from(NUMBERS),
        "labels": st.lists(st.sampled_from(TEXTS), max_size=3),
        "scores": st.lists(st.sampled_from([*NUMBERS, "word"]), max_size=3),
        "owner": st.sampled_from(MEMBERS),
    },
)
records = st.lists(record, max_size=8)
values = st.sampled_from([*TEXTS, *NUMBERS])
conditions = st.one_of(
    values,
    st.fixed_dictionaries(
        {
            "op": st.sampled_from(["eq", "neq", "gt", "gte", "lt", "lte", "contains"]),
            "value": values,
        }
    ),
    st.fixed_dictionaries({"op": st.just("in"), "value": st.lists(values, max_size=3)}),
    st.fixed_dictionaries({"op": st.just("between"), "value": st.tuples(values, values).map(list)}),
)
filters = st.dictionaries(
    st.sampled_from(["title", "points", "labels", "scores", "owner", "owner->name"]),
    st.one_of(conditions, st.lists(conditions, min_size=1, max_size=3)),
    max_size=2,
)
NUMERIC = {"points", "scores"}


def items(record: dict[str, Any], field: str) -> list[Any]:
    first, _, behind = field.partition("->")
    value = record.get(first)
    if behind:
        value = record["members"].get(value)
    return [] if value is None else value if isinstance(value, list) else [value]


def number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def flatten(condition: Any) -> list[tuple[str, Any]]:
    if isinstance(condition, list):
        return [part for item in condition for part in flatten(item)]
    if not isinstance(condition, dict):
        return [("eq", condition)]
    if condition["op"] == "between":
        low, high = condition["value"]
        return [("gte", low), ("lte", high)]
    return [(condition["op"], condition["value"])]


def holds(field: str, item: Any, op: str, value: Any) -> bool:
    text = js_text(item)
    if op == "eq":
        return text == js_text(value)
    if op == "in":
        return text in map(js_text, value)
    if op == "contains":
        return js_text(value).lower() in text.lower()
    bound = number(value)
    if bound is None and field in NUMERIC and value.isascii() and value.isdigit():
        bound = float(value)
    left, right = (text, js_text(value)) if bound is None else (number(item), bound)
    if left is None or (bound is not None and field not in NUMERIC):
        return False
    return {"gt": left > right, "gte": left >= right, "lt": left < right, "lte": left <= right}[op]


def passes(record: dict[str, Any], field: str, condition: Any) -> bool:
    found, parts = items(record, field), flatten(condition)
    positive = [part for part in parts if part[0] != "neq"]
    excluded = {js_text(value) for op, value in parts if op == "neq"}
    return any(all(holds(field, item, *part) for part in positive) for item in found) and not any(
        js_text(item) in excluded for item in found
    )


def position(record: dict[str, Any], field: str, descending: bool) -> tuple[Any, ...]:
    found = items(record, field)
    if not found:
        return (0,)
    choose = max if descending else min
    if field not in NUMERIC:
        return (1, choose(map(js_text, found)))
    numbers = [number(item) for item in found if number(item) is not None]
    return (2, choose(numbers)) if numbers else (1,)


def expected(stored: dict[str, Any], given_filters: Any, field: str, descending: bool) -> list[str]:
    chosen = [
        doc_id
        for doc_id, record in stored.items()
        if all(passes(record, name, condition) for name, condition in given_filters.items())
    ]
    chosen.sort(
        key=lambda doc_id: (*position(stored[doc_id], field, descending), doc_id),
        reverse=descending,
    )
    return chosen


def valid(given_filters: dict[str, Any]) -> bool:
    """Whether no `between` has its bounds the wrong way round."""
    for condition in given_filters.values():
        for one in condition if isinstance(condition, list) else [condition]:
            if isinstance(one, dict) and one["op"] == "between":
                low, high = one["value"]
                if isinstance(low, str) == isinstance(high, str) and low > high:
                    return False
    return True


@settings(max_examples=60, deadline=None)
@given(
    records,
    st.lists(
        st.tuples(
            filters.filter(valid),
            st.sampled_from(["title", "points", "labels", "scores"]),
            st.booleans(),
            st.integers(1, 4),
            st.integers(0, 4),
            st.sampled_from([-1, 500]),
            st.sampled_from([0, 1000]),
            st.sampled_from([(0, -1), (1000, 300)]),
            st.sampled_from([0, 10_000]),
            st.tuples(st.sampled_from([0, 25]), st.sampled_from([0, 10_000])),
            st.one_of(st.none(), st.tuples(st.integers(0, 8), st.one_of(st.none(), record))),
            st.one_of(st.none(), st.tuples(st.sampled_from(MEMBERS[:2]), st.sampled_from(TEXTS))),
        ),
        min_size=1,
        max_size=6,
    ),
)
def test_pages_equal_those_of_the_evaluator(make_project, found, queries):
    """Every way to a page, with and without columns, while records come, change and go."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(selections, "_ASKED", 0)
        project = make_project(Path(folder))
        reader = project.index.reader()
        try:
            stored: dict[str, Any] = {}
            members: dict[str, str] = {}
            for place, one in enumerate(found):
                store(project, stored, f"tsk-{place}", one)
            for (
                given_filters, field, descending, limit, offset, walk, length, (sample, few), texts,
                (sparse, many), change, named,
            ) in queries:  # fmt: skip
                patched.setattr(pages, "_SPARSE", sparse)
                patched.setattr(known_texts, "_MANY_RECORDS", many)
                patched.setattr(pages, "_SHORT_WALK", walk)
                patched.setattr(pages, "_LISTED", length)
                patched.setattr(pages, "_SAMPLE", sample)
                patched.setattr(pages, "_FEW", few)
                patched.setattr(selections, "_FEW_TEXTS", texts)
                if change is not None:
                    store(project, stored, f"tsk-{change[0]}", change[1])
                if named is not None:
                    project.index_file(project.member(named[0], name=json.dumps(named[1])))
                    members[named[0]] = named[1]
                for one in stored.values():
                    one["members"] = members
                wanted = expected(stored, given_filters, field, descending)
                scope = build_scope("task", given_filters, project.model)
                sort = resolve_sort("task", field, "desc" if descending else "asc", project.model)
                page = query_page(reader, scope, sort, project.plans, limit=limit, offset=offset)
                assert page.total == len(wanted)
                assert [row.doc_id for row in page.rows] == wanted[offset : offset + limit]
        finally:
            reader.close()
            project.index.close()
            project.root.close()


def store(project, stored: dict[str, Any], doc_id: str, one: dict[str, Any] | None) -> None:
    """Give a record these fields, or remove it."""
    if one is None:
        with project.writer.transaction():
            project.writer.remove_document(doc_id)
        stored.pop(doc_id, None)
        return
    fields = {name: js_yaml(value) for name, value in one.items() if name != "members"}
    project.index_file(project.task(doc_id, **{"title": "null", **fields}))
    stored[doc_id] = dict(one)


def js_yaml(value: Any) -> str:
    """The value as flow YAML; texts quoted."""
    if isinstance(value, list):
        return f"[{', '.join(map(js_yaml, value))}]"
    return json.dumps(value) if isinstance(value, str) else str(value)
