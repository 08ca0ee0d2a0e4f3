"""Aggregations against a plain evaluation over the same records held in memory."""

from __future__ import annotations

import operator
import random
from collections import defaultdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maadd_worker.index.reader import IndexReader
from maadd_worker.read import aggregate

ASSETS = {
    "ast-0": {"site": "north", "tags": ["x", "y"], "parent": "ast-1"},
    "ast-1": {"site": "south", "tags": ["x", "x"], "parent": "ast-gone"},
    "ast-2": {"tags": []},
}
UNRESOLVED = "__unresolved__"
COLUMNS, ROWS = -1, 10**6
"""What `_FEW` is when everything is grouped by columns, by rows of the index."""


def draw_order(draw):
    fields = {
        "status": draw.choice(["open", "done", "blocked"]),
        "asset": draw.choice(["ast-0", "ast-1", "ast-2", "ast-gone"]),
        "due": draw.choice(["2031-01-31", "2031-02-01", "2030-02-28", "2031"]),
        "cost": draw.choice(["0.10 EUR", "0.20 EUR", "3 EUR", "1.125 EUR", "n/a"]),
        "hours": draw.choice([1, 2, 2.5, 10]),
        "labels": [draw.choice("abc") for _ in range(draw.randrange(4))],
        "sizes": [draw.choice([1, 5, 9]) for _ in range(draw.randrange(3))],
    }
    return {name: value for name, value in fields.items() if draw.random() < 0.8 and value != []}


@pytest.fixture(scope="module")
def orders(shared_project):
    """The index over 80 orders, and the same orders as dicts."""
    draw = random.Random(7)
    drawn = {f"wo-{number}": draw_order(draw) for number in range(80)}
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
    path, _, period = key.partition("::")
    first, *hops = path.split("->")
    texts = items(record, first)
    for hop in hops:
        texts = [
            leaf for text in texts for leaf in (items(ASSETS.get(text, {}), hop) or [UNRESOLVED])
        ]
    return [text[:7] if len(text) > 4 else "(null)" for text in texts] if period else texts


def reached(record, key):
    """The values that a filter looks at; a dead end has none."""
    first, *hops = key.split("->")
    found = items(record, first)
    for hop in hops:
        found = [leaf for text in found for leaf in items(ASSETS.get(text, {}), hop)]
    return found


HOLDS = {
    "eq": operator.eq,
    "gte": operator.ge,
    "between": lambda value, bounds: bounds[0] <= value <= bounds[1],
    "in": lambda value, texts: value in texts,
    "contains": lambda value, text: text in value,
}


def passes(record, filters):
    for field, (op, bound) in filters.items():
        found = reached(record, field)
        if op == "neq":
            if not found or bound in found:
                return False
        elif not any(HOLDS[op](value, bound) for value in found):
            return False
    return True


def number_of(value):
    """The number that is measured; None without one."""
    if not isinstance(value, str):
        return value
    return None if value == "n/a" else float(value.removesuffix(" EUR"))


def measure(op, values):
    if op == "countDistinct":
        return len(set(values))
    numbers = [number for number in map(number_of, values) if number is not None]
    if not numbers:
        return None
    return {
        "sum": sum(numbers),
        "avg": sum(numbers) / len(numbers),
        "min": min(numbers),
        "max": max(numbers),
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


KEYS = ["status", "labels", "asset", "asset->site", "asset->tags", "asset->parent->site",
        "due::month"]  # fmt: skip
FIELDS = ["hours", "sizes", "cost"]
OPS = ["count", "sum", "avg", "min", "max", "countDistinct"]
FILTERS = [
    {},
    {"hours": ("between", [1, 2])},
    {"hours": ("gte", 2), "status": ("neq", "open")},
    {"sizes": ("between", [2, 9])},
    {"sizes": ("between", [5, 5]), "hours": ("between", [2, 9])},
    {"labels": ("eq", "a")},
    {"labels": ("neq", "b"), "status": ("in", ["open", "done"])},
    {"asset->site": ("eq", "north")},
    {"asset->tags": ("neq", "y")},
    {"cost": ("contains", "EUR"), "labels": ("in", ["a", "c"])},
    {"status": ("eq", "lost")},
]


@st.composite
def questions(draw):
    keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True))
    measured = st.fixed_dictionaries({"field": st.sampled_from(FIELDS), "op": st.sampled_from(OPS)})
    metric = draw(st.none() | measured)
    orders = ["count", "value"] if metric is None else ["count", "value", "metric"]
    bounds = st.tuples(
        st.sampled_from(["eq", "neq", "gt", "gte", "lt", "lte"]), st.sampled_from([1, 2, 2.5, 20])
    )
    return {
        "keys": keys,
        "metric": metric,
        "filters": draw(st.sampled_from(FILTERS)),
        "having": draw(st.none() | bounds),
        "order_by": draw(st.none() | st.sampled_from(orders)),
        "order": draw(st.none() | st.sampled_from(["asc", "desc"])),
        "limit": draw(st.sampled_from([2, 2000])),
    }


def ask(project, keys, metric, filters, having, order_by, order, limit):
    arguments = {"metric": metric, "orderBy": order_by, "order": order}
    if having is not None:
        arguments["having"] = {"op": having[0], "value": having[1]}
    return project.call(
        "aggregate",
        docType="work_order",
        groupBy=keys,
        filters={name: {"op": op, "value": bound} for name, (op, bound) in filters.items()},
        limit=limit,
        **{name: value for name, value in arguments.items() if value is not None},
    ).data


def check(data, drawn, keys, metric, filters, having, order_by, order, limit):
    """The answer is that of the plain evaluation."""

    def measured(group):
        return group["count"] if metric is None else group["metric"]

    wanted = expected(drawn, keys, metric, filters)
    if having is not None:
        passing = {**HOLDS, "neq": operator.ne, "gt": operator.gt, "lt": operator.lt,
                   "lte": operator.le}[having[0]]  # fmt: skip
        figures = {place: one[0] if metric is None else one[1] for place, one in wanted.items()}
        wanted = {
            place: one
            for place, one in wanted.items()
            # Sums of decimals are not exact here.
            if figures[place] is not None and passing(round(figures[place], 9), having[1])
        }
    assert data["groupCount"] == len(wanted)
    groups = data["groups"]
    assert len(groups) == min(limit, len(wanted))
    for group in groups:
        count, figure = wanted[tuple(group["values"])]
        assert group["count"] == count
        assert group.get("metric") == (None if figure is None else pytest.approx(figure))
    if order_by == "value":
        places = sorted(wanted, reverse=order == "desc")
        assert [tuple(group["values"]) for group in groups] == places[:limit]
    else:
        of_group = operator.itemgetter("count") if order_by == "count" else measured
        sign = 1 if order == "asc" else -1
        positions = [
            (of_group(group) is None, sign * (of_group(group) or 0), group["values"])
            for group in groups
        ]
        assert positions == sorted(positions)
    in_scope = [record for record in drawn.values() if passes(record, filters)]
    without = [one for one in in_scope if not all(group_texts(one, key) for key in keys)]
    assert data["missing"] == len(without)


@given(question=questions())
@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_groups_are_those_of_a_plain_evaluation(orders, question):
    """By columns and by rows; both give the same answer."""
    project, drawn = orders
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(IndexReader, "recall", lambda *_: None)
        answers = []
        for few in (COLUMNS, ROWS):
            patched.setattr(aggregate, "_FEW", few)
            answers.append(ask(project, **question))
    check(answers[0], drawn, **question)
    assert answers[0] == answers[1]


def test_columns_follow_records_that_come_change_and_go(project, monkeypatch):
    monkeypatch.setattr(aggregate, "_FEW", COLUMNS)
    draw = random.Random(11)
    drawn = {}
    for doc_id, fields in ASSETS.items():
        project.record("asset", doc_id, name="N", **fields)
    for _ in range(60):
        doc_id = f"wo-{draw.randrange(8)}"
        if doc_id in drawn and draw.random() < 0.3:
            (project.path / f"orders/{doc_id}.md").unlink()
            del drawn[doc_id]
        else:
            drawn[doc_id] = draw_order(draw)
            project.record("work_order", doc_id, title="T", **drawn[doc_id])
        project.reindex()
        for key in ("labels", "status"):
            question = {
                "keys": [key],
                "metric": {"field": draw.choice(FIELDS), "op": draw.choice(OPS)},
                "filters": draw.choice(FILTERS),
                "having": None,
                "order_by": None,
                "order": None,
                "limit": 2000,
            }
            check(ask(project, **question), drawn, **question)
