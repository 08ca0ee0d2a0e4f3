"""Aggregations against a plain evaluation over the same records held in memory."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ASSETS = {
    "ast-0": {"site": "north", "tags": ["x", "y"], "parent": "ast-1"},
    "ast-1": {"site": "south", "tags": ["x", "x"], "parent": "ast-gone"},
    "ast-2": {"tags": []},
}
UNRESOLVED = "__unresolved__"


@pytest.fixture(scope="module")
def orders(shared_project):
    """The index over 80 orders, and the same orders as dicts."""
    draw = random.Random(7)
    drawn = {}
    for number in range(80):
        fields = {
            "status": draw.choice(["open", "done", "blocked"]),
            "asset": draw.choice(["ast-0", "ast-1", "ast-2", "ast-gone"]),
            "hours": draw.choice([1, 2, 2.5, 10]),
            "labels": [draw.choice("abc") for _ in range(draw.randrange(4))],
            "sizes": [draw.choice([1, 5, 9]) for _ in range(draw.randrange(3))],
        }
        drawn[f"wo-{number}"] = {
            name: value for name, value in fields.items() if draw.random() < 0.8 and value != []
        }
    for doc_id, fields in ASSETS.items():
        shared_project.record("asset", doc_id, name="N", **fields)
    for doc_id, fields in drawn.items():
        shared_project.record("work_order", doc_id, title="T", **fields)
    shared_project.reindex()
    return shared_project, drawn


def items(record, field):
    value = record.get(field, [])
    return value if isinstance(value, list) else [value]


def group_texts(record, key):
    """The groups that a record belongs to, repeated as its rows are."""
    first, *hops = key.split("->")
    texts = items(record, first)
    for hop in hops:
        texts = [
            leaf for text in texts for leaf in (items(ASSETS.get(text, {}), hop) or [UNRESOLVED])
        ]
    return texts


def passes(record, filters):
    return all(
        any(low <= item <= high for item in items(record, field))
        for field, (low, high) in filters.items()
    )


def measure(op, values):
    if op == "countDistinct":
        return len(set(values))
    return {
        "sum": sum(values),
        "avg": sum(values) / len(values),
        "min": min(values),
        "max": max(values),
    }[op]


def expected(drawn, keys, metric, filters):
    rows = defaultdict(list)
    for doc_id, record in drawn.items():
        if not passes(record, filters):
            continue
        places = [()]
        for key in keys:
            places = [(*place, text) for place in places for text in group_texts(record, key)]
        for place in places:
            rows[place].append(doc_id)
    groups = {}
    for place, members in rows.items():
        if metric is None or metric["op"] == "count":
            groups[place] = (len(set(members)), None if metric is None else len(members))
            continue
        measured = [one for one in set(members) if items(drawn[one], metric["field"])]
        if measured:
            values = [value for one in measured for value in items(drawn[one], metric["field"])]
            groups[place] = (len(measured), measure(metric["op"], values))
    return groups


keys = st.lists(
    st.sampled_from(["status", "labels", "asset", "asset->site", "asset->tags",
                     "asset->parent->site"]),
    min_size=1, max_size=2, unique=True,
)  # fmt: skip
metrics = st.none() | st.fixed_dictionaries(
    {
        "field": st.sampled_from(["hours", "sizes"]),
        "op": st.sampled_from(["count", "sum", "avg", "min", "max", "countDistinct"]),
    }
)
filters = st.dictionaries(
    st.sampled_from(["hours", "sizes"]), st.sampled_from([(1, 2), (2, 9), (5, 5)]), max_size=2
)


@given(keys=keys, metric=metrics, filters=filters)
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_groups_are_those_of_a_plain_evaluation(orders, keys, metric, filters):
    project, drawn = orders
    arguments = {"metric": metric} if metric is not None else {}

    data = project.call(
        "aggregate",
        docType="work_order",
        groupBy=keys,
        filters={name: {"op": "between", "value": list(pair)} for name, pair in filters.items()},
        limit=2000,
        **arguments,
    ).data

    found = {
        tuple(group["values"]): (group["count"], group.get("metric")) for group in data["groups"]
    }
    assert found.keys() == expected(drawn, keys, metric, filters).keys()
    for place, (count, figure) in expected(drawn, keys, metric, filters).items():
        assert found[place][0] == count
        assert found[place][1] == (None if figure is None else pytest.approx(figure))
    order = [group.get("metric", group["count"]) for group in data["groups"]]
    assert order == sorted(order, reverse=True)
    in_scope = [record for record in drawn.values() if passes(record, filters)]
    without = [one for one in in_scope if not all(group_texts(one, key) for key in keys)]
    assert data["missing"] == len(without)
