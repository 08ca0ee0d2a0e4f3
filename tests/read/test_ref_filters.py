"""Filters on a chain of refs, `asset->site` (spec 02 §9), wherever filters are taken."""

from __future__ import annotations

import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.index.pages import count_matches
from maadd_worker.index.scope import build_scope, candidates

ASSETS = {
    "ast-1": {"site": "north", "weight": 9, "tags": ["a", "b"], "vendor": "ven-1"},
    "ast-2": {"site": "south", "weight": 100, "tags": [], "parent": "ast-1"},
    "ast-3": {"parent": "ast-gone"},
}


@pytest.fixture(scope="module")
def yard(shared_project):
    shared_project.record("vendor", "ven-1", name="Northwind")
    for doc_id, fields in ASSETS.items():
        shared_project.record("asset", doc_id, name=doc_id, **fields)
    shared_project.record("asset", "ast-dead", name="Dead", site="north")
    shared_project.reindex()
    shared_project.soft_delete("ast-dead")
    for number, asset in enumerate(["ast-1", "ast-1", "ast-2", "ast-3", "ast-gone", "ast-dead"]):
        shared_project.record("work_order", f"wo-{number}", title="T", asset=asset, hours=number)
    shared_project.record("work_order", "wo-6", title="T", hours=6)
    shared_project.reindex()
    return shared_project


def numbers(project, filters, doc_type="work_order") -> str:
    found = project.call("query", docType=doc_type, filters=filters, sortBy="docId",
                         sortOrder="asc")  # fmt: skip
    assert found.data["total"] == len(found.data["results"])
    return " ".join(row["docId"].partition("-")[2] for row in found.data["results"])


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"asset->site": "north"}, "0 1"),
        ({"asset -> site": "north"}, "0 1"),
        ({"asset->site": {"op": "in", "value": ["north", "south"]}}, "0 1 2"),
        ({"asset->site": {"op": "contains", "value": "OUT"}}, "2"),
        # As for a field of its own: without a value neither equal nor unequal.
        ({"asset->site": {"op": "neq", "value": "north"}}, "2"),
        ({"asset->site": {"op": "neq", "value": "east"}}, "0 1 2"),
        ({"asset->weight": {"op": "gt", "value": "10"}}, "2"),
        ({"asset->weight": {"op": "between", "value": [9, 100]}}, "0 1 2"),
        ({"asset->tags": "b"}, "0 1"),
        ({"asset->tags": {"op": "neq", "value": "b"}}, ""),
        ({"asset->tags": ["a", "b"]}, ""),
        ({"asset->name": "Dead"}, ""),
        ({"asset->vendor->name": "Northwind"}, "0 1"),
        ({"asset->parent->site": "north"}, "2"),
        ({"asset->parent->vendor->name": {"op": "contains", "value": "wind"}}, "2"),
        ({"asset->parent": "ast-gone"}, "3"),
        ({"asset->site": "north", "hours": {"op": "gte", "value": 1}}, "1"),
        ({"asset->site": "north", "asset": "ast-2"}, ""),
        ({"asset->site": "north", "asset->weight": 9}, "0 1"),
    ],
)
def test_a_chain_filters_by_the_field_it_reaches(yard, filters, found):
    assert numbers(yard, filters) == found


@pytest.mark.parametrize("value", ["north", "south", "east"])
def test_counts_are_those_of_the_groups_by_the_same_chain(yard, value):
    groups = yard.call("aggregate", docType="work_order", groupBy="asset->site").data["groups"]
    counted = {group["value"]: group["count"] for group in groups}.get(value, 0)
    filters = {"asset->site": value}
    verified = yard.call(
        "verify", mode="count", docType="work_order", filters=filters, expectedCount=counted
    )
    assert verified.data["grounded"]
    summed = yard.call("aggregate", docType="work_order", groupBy="title", filters=filters).data
    assert summed["total"] == counted


def test_every_tool_that_filters_takes_chains(yard):
    filters = {"asset->site": "south"}
    joined = yard.call("join", docType="work_order", refs=["asset"], filters=filters).data
    assert [row["docId"] for row in joined["results"]] == ["wo-2"]
    orphans = yard.call(
        "find_orphans", docType="asset", filters={"parent->name": {"op": "neq", "value": "x"}}
    ).data
    assert orphans["details"] == []
    swept = yard.call(
        "verify", mode="integrity", docType="work_order", filters={"asset->site": "north"},
        categories=["broken_refs"],
    ).data  # fmt: skip
    assert swept["findings"]["broken_refs"] == 0
    sized = yard.call(
        "aggregate", docType="work_order", groupBy="asset->site", filters=filters,
        metric={"field": "hours", "op": "sum"},
    ).data  # fmt: skip
    assert sized["groups"] == [{"value": "south", "count": 1, "metric": 2}]


def test_an_answer_follows_the_record_that_is_referred_to(project):
    project.record("asset", "ast-1", name="One", site="north")
    project.record("work_order", "wo-1", title="T", asset="ast-1")
    project.reindex()
    filters = {"asset->site": "north"}
    assert numbers(project, filters) == "1"
    project.record("asset", "ast-1", name="One", site="south")
    project.reindex()
    assert numbers(project, filters) == ""
    assert numbers(project, {"asset->site": "south"}) == "1"
    project.hard_delete("ast-1")
    assert numbers(project, {"asset->site": "south"}) == ""


@pytest.mark.parametrize(
    ("doc_type", "key", "why"),
    [
        ("work_order", "asset->", "segment is empty"),
        ("work_order", "->site", "segment is empty"),
        ("work_order", "asset->->site", "segment is empty"),
        ("work_order", "asset->nope", 'no field "nope"'),
        ("work_order", "nope->site", 'no field "nope"'),
        ("work_order", "assets->site", "no single ref"),
        ("work_order", "title->site", "no single ref"),
        ("work_order", "asset->site->name", "no single ref"),
        ("ghost", "asset->site", "ghost"),
        (None, "asset->site", "needs docType"),
    ],
)
def test_a_chain_that_leads_nowhere_is_refused(yard, doc_type, key, why):
    arguments = {"filters": {key: "x"}} | ({} if doc_type is None else {"docType": doc_type})
    for tool, more in (("aggregate", {"groupBy": "name"}), ("find_orphans", {})):
        with pytest.raises(MaadError) as refused:
            yard.call(tool, **arguments, **more)
        assert refused.value.code == "SCHEMA_REF_CHAIN_INVALID"
        assert why in refused.value.message
        assert refused.value.details == {"field": key}


def test_chains_are_followed_as_far_as_twenty_fields(project):
    for number in range(24):
        project.record(
            "asset",
            f"ast-{number:02}",
            name=f"N{number}",
            site="north",
            weight=number,
            parent=f"ast-{number + 1:02}",
        )
    project.reindex()

    def chain(hops, leaf="name"):
        return "->".join(["parent"] * hops + [leaf])

    every_length = {chain(hops): f"N{hops}" for hops in range(20)}
    for sort in ("name", "docId"):
        found = project.call("query", docType="asset", filters=every_length, sortBy=sort).data
        assert [one["docId"] for one in found["results"]] == ["ast-00"]
    groups = [chain(19, leaf) for leaf in ("name", "site", "weight")]
    grouped = project.call(
        "aggregate",
        docType="asset",
        groupBy=groups,
        filters=every_length,
        metric={"field": "weight", "op": "sum"},
    ).data
    assert (grouped["total"], len(grouped["groups"])) == (1, 1)
    for arguments in ({"groupBy": chain(20)}, {"groupBy": "name", "filters": {chain(20): "x"}}):
        with pytest.raises(MaadError) as refused:
            project.call("aggregate", docType="asset", **arguments)
        assert refused.value.code == "SCHEMA_REF_CHAIN_INVALID"
        assert "at most 20 fields" in refused.value.message


def test_the_condition_behind_a_chain_is_judged_as_any(yard):
    with pytest.raises(MaadError) as refused:
        numbers(yard, {"asset->site": []})
    assert refused.value.code == "FILTER_EMPTY_ARRAY"
    assert refused.value.details == {"field": "asset->site"}


def test_an_unindexed_field_on_the_way_is_advised(yard):
    found = yard.call("query", docType="asset", filters={"backup->name": "x"})
    assert (found.data["total"], found.codes) == (0, ["FILTER_FIELD_NOT_INDEXED"])
    leaf = yard.call("query", docType="work_order", filters={"asset->serial": "x"})
    assert (leaf.data["total"], leaf.codes) == (0, ["FILTER_FIELD_NOT_INDEXED"])


def test_matches_are_found_from_the_end_of_the_chain_by_index(yard):
    scope = build_scope("work_order", {"asset->parent->site": "north"}, yard.plans.model)
    sql, params = candidates(scope.conditions[0], "work_order")
    plan = yard.reader.connection.execute(f"EXPLAIN QUERY PLAN SELECT v.doc_id {sql}", params)
    steps = [row[3] for row in plan]
    assert sum("USING COVERING INDEX field_values_by_text" in step for step in steps) == 3
    assert not [step for step in steps if step.startswith("SCAN") and "type_counts" not in step]
    assert count_matches(yard.reader, scope, "") == 1
