"""maad_aggregate: groups, chains, periods, metrics (spec 02 §4.6, §9)."""

from __future__ import annotations

import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.index.reader import IndexReader
from maadd_worker.read import aggregate


@pytest.fixture(params=[-1, 300], ids=["columns", "rows"], autouse=True)
def _both_ways(request, monkeypatch):
    """Every answer is worked out by columns in memory, and by rows of the index."""
    monkeypatch.setattr(aggregate, "_FEW", request.param)
    monkeypatch.setattr(IndexReader, "recall", lambda *_: None)


def groups(answer):
    return [
        (group["value"], group["count"], *([group["metric"]] if "metric" in group else []))
        for group in answer.data["groups"]
    ]


@pytest.fixture(scope="module")
def yard(shared_project):
    return filled(shared_project)


@pytest.fixture
def changing_yard(project):
    return filled(project)


def filled(project):
    """Six orders on assets that lead to vendors, with gaps and dead ends at every hop."""
    project.record("vendor", "ven-n", name="Northern Seals", country="NO")
    project.record("vendor", "ven-d", name="Delta", country="NO")
    project.record("asset", "ast-1", name="Pump", site="north", vendor="ven-n", tags=["x", "y"])
    project.record("asset", "ast-2", name="Valve", site="south", vendor="ven-d", tags=["x", "x"])
    project.record("asset", "ast-3", name="Fan", site="south", vendor="ven-gone")
    project.record("asset", "ast-4", name="Rig")
    orders = [
        ("open", "ast-1", "10.10 EUR", 3, "2031-01-31"),
        ("open", "ast-2", "20.20 EUR", 4, "2031-02-01"),
        ("done", "ast-2", "n/a", 5, "2031-02"),
        ("done", "ast-3", None, 6, "2031"),
        ("blocked", "ast-gone", "0.70 EUR", 7, "2030-12-31"),
        (None, None, "5 EUR", None, None),
    ]
    for number, (status, asset, cost, hours, due) in enumerate(orders):
        given = {"status": status, "asset": asset, "cost": cost, "hours": hours, "due": due}
        fields = {name: value for name, value in given.items() if value is not None}
        project.record("work_order", f"wo-{number}", title="T", **fields)
    project.reindex()
    return project


def test_groups_are_counted_and_ties_ordered_by_value(yard):
    answer = yard.call("aggregate", docType="work_order", groupBy="status")

    assert groups(answer) == [("done", 2), ("open", 2), ("blocked", 1)]
    assert answer.data["total"] == 5
    assert answer.data["groupCount"] == 3
    assert answer.data["missing"] == 1
    assert "totalMetric" not in answer.data


@pytest.mark.parametrize(
    ("op", "expected", "total"),
    [
        ("sum", [("open", 2, 30.3), ("blocked", 1, 0.7), ("done", 1, None)], 31),
        ("avg", [("open", 2, 15.15), ("blocked", 1, 0.7), ("done", 1, None)], None),
        ("min", [("open", 2, 10.1), ("blocked", 1, 0.7), ("done", 1, None)], None),
        ("max", [("open", 2, 20.2), ("blocked", 1, 0.7), ("done", 1, None)], None),
        ("countDistinct", [("open", 2, 2), ("blocked", 1, 1), ("done", 1, 1)], None),
        ("count", [("done", 2, 2), ("open", 2, 2), ("blocked", 1, 1)], 5),
    ],
)
def test_metrics_count_the_records_that_have_the_field(yard, op, expected, total):
    answer = yard.call(
        "aggregate", docType="work_order", groupBy="status", metric={"field": "cost", "op": op}
    )

    assert groups(answer) == expected
    assert answer.data.get("totalMetric") == total


def test_amounts_add_up_without_binary_rounding(project):
    for number in range(3):
        project.record("work_order", f"wo-{number}", title="T", status="open", cost="0.10 EUR")
    project.reindex()

    answer = project.call(
        "aggregate", docType="work_order", groupBy="status", metric={"field": "cost", "op": "sum"}
    )

    assert b'"metric":0.3,' in answer.raw or b'"metric":0.3}' in answer.raw
    assert b'"totalMetric":0.3' in answer.raw


def test_a_list_puts_a_record_into_one_group_per_item(yard):
    assert groups(yard.call("aggregate", docType="asset", groupBy="tags")) == [("x", 2), ("y", 1)]
    counted = yard.call(
        "aggregate", docType="asset", groupBy="tags", metric={"field": "", "op": "count"}
    )
    assert groups(counted) == [("x", 2, 3), ("y", 1, 1)]


def test_lists_on_both_sides_multiply_nothing(project):
    project.record("work_order", "wo-1", title="T", labels=["a", "a", "b"], sizes=[1, 2])
    project.reindex()

    answer = project.call(
        "aggregate", docType="work_order", groupBy="labels", metric={"field": "sizes", "op": "sum"}
    )

    assert groups(answer) == [("a", 1, 3), ("b", 1, 3)]


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        ("asset->name", [("Valve", 2), ("Fan", 1), ("Pump", 1), ("__unresolved__", 1)]),
        ("asset->vendor", [("ven-d", 2), ("__unresolved__", 1), ("ven-gone", 1), ("ven-n", 1)]),
        ("asset -> vendor -> name", [("Delta", 2), ("__unresolved__", 2), ("Northern Seals", 1)]),
        ("asset->vendor->country", [("NO", 3), ("__unresolved__", 2)]),
        ("asset->tags", [("x", 3), ("__unresolved__", 2), ("y", 1)]),
    ],
)
def test_chains_follow_refs_to_a_value(yard, chain, expected):
    answer = yard.call("aggregate", docType="work_order", groupBy=chain)

    assert groups(answer) == expected
    assert answer.data["missing"] == 1


def test_a_chain_with_a_metric_merges_what_leads_to_one_value(yard):
    answer = yard.call(
        "aggregate",
        docType="work_order",
        groupBy="asset->vendor->country",
        metric={"field": "hours", "op": "avg"},
        filters={"hours": {"op": "between", "value": [3, 6]}},
    )

    assert groups(answer) == [("__unresolved__", 1, 6), ("NO", 3, 4)]


def test_a_chain_does_not_lead_through_a_tombstone(changing_yard):
    changing_yard.soft_delete("ast-2")

    answer = changing_yard.call("aggregate", docType="work_order", groupBy="asset->name")

    assert groups(answer) == [("__unresolved__", 3), ("Fan", 1), ("Pump", 1)]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"groupBy": "asset->name"}, "docType"),
        ({"docType": "work_order", "groupBy": "asset->"}, "empty"),
        ({"docType": "work_order", "groupBy": "asset->->name"}, "empty"),
        ({"docType": "work_order", "groupBy": "title->name"}, "title"),
        ({"docType": "work_order", "groupBy": "assets->name"}, "assets"),
        ({"docType": "work_order", "groupBy": "asset->wings"}, "wings"),
        ({"docType": "work_order", "groupBy": "owner->name"}, "owner"),
        ({"docType": "glider", "groupBy": "asset->name"}, "glider"),
        ({"docType": "work_order", "groupBy": "due::decade"}, "decade"),
        ({"docType": "work_order", "groupBy": "status::month"}, "status"),
        ({"docType": "work_order", "groupBy": "asset->name::month"}, "name"),
    ],
)
def test_bad_chains_and_periods_are_refused(yard, arguments, reason):
    with pytest.raises(MaadError) as refusal:
        yard.call("aggregate", **arguments)

    assert refusal.value.code == "SCHEMA_REF_CHAIN_INVALID"
    assert reason in refusal.value.message


@pytest.mark.parametrize(
    ("period", "expected"),
    [
        ("year", [("2030", 1), ("2031", 4)]),
        ("quarter", [("(null)", 1), ("2030-Q4", 1), ("2031-Q1", 3)]),
        ("month", [("(null)", 1), ("2030-12", 1), ("2031-01", 1), ("2031-02", 2)]),
        ("week", [("(null)", 2), ("2031-W01", 1), ("2031-W05", 2)]),
        ("day", [("(null)", 2), ("2030-12-31", 1), ("2031-01-31", 1), ("2031-02-01", 1)]),
    ],
)
def test_dates_are_grouped_by_period(yard, period, expected):
    answer = yard.call("aggregate", docType="work_order", groupBy=f"due::{period}", orderBy="value")
    assert groups(answer) == expected


def test_up_to_three_keys_group_together(yard):
    answer = yard.call(
        "aggregate", docType="work_order", groupBy=["status", "asset->site"], orderBy="value"
    )

    assert answer.data["groups"][0] == {
        "value": '["blocked","__unresolved__"]',
        "values": ["blocked", "__unresolved__"],
        "count": 1,
    }
    assert [group["values"] for group in answer.data["groups"]] == [
        ["blocked", "__unresolved__"], ["done", "south"], ["open", "north"], ["open", "south"],
    ]  # fmt: skip


@pytest.mark.parametrize("group_by", [[], ["a", "b", "c", "d"], [1], 5, None, {"field": "a"}])
def test_group_keys_of_another_form_are_invalid_arguments(yard, group_by):
    with pytest.raises(MaadError, match="INVALID_ARGS"):
        yard.call("aggregate", docType="work_order", groupBy=group_by)


def test_having_keeps_groups_by_metric_or_count(yard):
    by_count = yard.call(
        "aggregate", docType="work_order", groupBy="status", having={"op": "gt", "value": 1}
    )
    by_metric = yard.call(
        "aggregate",
        docType="work_order",
        groupBy="status",
        metric={"field": "hours", "op": "sum"},
        having={"op": "lte", "value": 7},
    )

    assert groups(by_count) == [("done", 2), ("open", 2)]
    assert groups(by_metric) == [("blocked", 1, 7), ("open", 2, 7)]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"orderBy": "value"}, "blocked done open"),
        ({"orderBy": "value", "order": "desc"}, "open done blocked"),
        ({"orderBy": "count", "order": "asc"}, "blocked done open"),
        ({"orderBy": "metric", "order": "asc"}, "blocked open done"),
        ({"order": "asc"}, "blocked open done"),
    ],
)
def test_groups_can_be_ordered_otherwise(yard, arguments, expected):
    answer = yard.call(
        "aggregate",
        docType="work_order",
        groupBy="status",
        metric={"field": "cost", "op": "sum"},
        **arguments,
    )
    assert " ".join(group["value"] for group in answer.data["groups"]) == expected


def test_a_cut_list_of_groups_says_so(yard):
    answer = yard.call("aggregate", docType="work_order", groupBy="status", limit=2)

    assert answer.data["total"] == 4
    assert answer.data["groupCount"] == 3
    assert answer.data["truncated"] is True
    assert answer.codes == ["AGGREGATE_GROUPS_TRUNCATED"]


@pytest.mark.parametrize(("asked", "clamped"), [(2000, False), (2001, True)])
def test_the_limit_is_capped_at_2000(yard, asked, clamped):
    answer = yard.call("aggregate", docType="work_order", groupBy="status", limit=asked)
    pair = {"requested": asked, "applied": 2000}
    assert answer.data.get("limitClamped") == (pair if clamped else None)
    assert answer.meta == ({"limit_clamped": pair} if clamped else None)


@pytest.mark.parametrize(
    ("arguments", "codes"),
    [
        ({"docType": "asset", "groupBy": "serial"}, ["FIELD_NOT_INDEXED"]),
        ({"docType": "asset", "groupBy": "wings"}, ["FIELD_NOT_INDEXED"]),
        ({"docType": "asset", "groupBy": "backup->name"}, ["FIELD_NOT_INDEXED"]),
        ({"docType": "work_order", "groupBy": "asset->serial"}, ["FIELD_NOT_INDEXED"]),
        ({"docType": "glider", "groupBy": "hull"}, ["UNKNOWN_TYPE"]),
        ({"groupBy": "wings"}, []),
    ],
)
def test_a_field_without_index_rows_is_pointed_out(yard, arguments, codes):
    assert yard.call("aggregate", **arguments).codes == codes


def test_without_a_type_all_types_with_the_field_count(yard):
    answer = yard.call("aggregate", groupBy="name")

    assert answer.data["total"] == 6
    assert answer.data["missing"] == 6


def test_adding_different_currencies_warns(changing_yard):
    changing_yard.record("work_order", "wo-usd", title="T", status="open", cost="$5")
    changing_yard.record("work_order", "wo-code", title="T", status="open", cost="7 USD")
    changing_yard.reindex()

    def codes(op, **filters):
        return changing_yard.call(
            "aggregate",
            docType="work_order",
            groupBy="status",
            metric={"field": "cost", "op": op},
            filters=filters,
        ).codes

    assert codes("sum") == ["MIXED_CURRENCY"]
    assert codes("count") == []
    assert codes("sum", cost={"op": "contains", "value": "EUR"}) == []
    assert codes("sum", cost=["7 USD"]) == []


def test_answers_follow_writes(changing_yard):
    arguments = {"docType": "work_order", "groupBy": "asset->site"}
    before = changing_yard.call("aggregate", **arguments)
    assert changing_yard.call("aggregate", **arguments).raw == before.raw

    changing_yard.record("asset", "ast-1", name="Pump", site="east")
    changing_yard.reindex()

    assert ("east", 1) in groups(changing_yard.call("aggregate", **arguments))


def test_what_a_chain_does_not_lead_to_is_logged_once_for_each_call(yard):
    yard.noted.clear()
    yard.call("aggregate", docType="work_order", groupBy="asset->vendor->name")
    assert yard.noted == [("aggregate_unresolved", {"groups": 1, "records": 2})]
    yard.call("aggregate", docType="work_order", groupBy="asset->vendor->name")
    assert len(yard.noted) == 2
    yard.call("aggregate", docType="work_order", groupBy=["status", "asset->site"])
    (last,) = yard.noted[2:]
    assert last[1]["groups"] >= 1
    yard.call("aggregate", docType="work_order", groupBy="status")
    assert len(yard.noted) == 3


@pytest.mark.parametrize("period", ["year", "quarter", "month", "week", "day"])
def test_a_day_that_no_calendar_has_is_in_no_period(changing_yard, period):
    dates = ["2025-02-30", "2026-13-45", "2025-02-28"]
    for number, due in enumerate(dates):
        changing_yard.record("work_order", f"wo-9{number}", title="T", due=due)
    changing_yard.reindex()
    answer = changing_yard.call(
        "aggregate", docType="work_order", groupBy=f"due::{period}", filters={"due": DAYS}
    )
    real = {"year": "2025", "quarter": "2025-Q1", "month": "2025-02"}
    real |= {"week": "2025-W09", "day": "2025-02-28"}
    assert groups(answer) == [("(null)", 2), (real[period], 1)]


DAYS = {"op": "in", "value": ["2025-02-30", "2026-13-45", "2025-02-28"]}
