"""maad_join: both sides of refs in one answer (spec 02 §4.7)."""

from __future__ import annotations

import pytest

from maadd.protocol.errors import MaadError


@pytest.fixture
def yard(project):
    project.record("vendor", "ven-1", name="Northwind")
    project.record("asset", "ast-1", name="Pump", site="north", tags=["a", "b"], vendor="ven-1")
    project.record("asset", "ast-2", name="Valve")
    project.record("asset", "ast-dead", name="Dead")
    project.record("work_order", "wo-1", title="A", asset="ast-1", assets=["ast-2", "ast-x"])
    project.record("work_order", "wo-2", title="B", asset="ast-dead", hours=2)
    project.record("work_order", "wo-3", title="C")
    project.reindex()
    project.soft_delete("ast-dead")
    return project


def join(project, **arguments):
    return project.call("join", docType="work_order", sortBy="docId", sortOrder="asc", **arguments)


def test_refs_are_followed_and_projected(yard):
    answer = join(yard, refs=["asset"], fields=["title"], refFields={"asset": ["site", "name"]})

    assert answer.data["total"] == 3
    assert answer.data["results"] == [
        {
            "docId": "wo-1",
            "fields": {"title": "A"},
            "refs": {"asset": {"docId": "ast-1", "fields": {"site": "north", "name": "Pump"}}},
        },
        {
            "docId": "wo-2",
            "fields": {"title": "B"},
            "refs": {"asset": {"docId": "ast-dead", "fields": {}, "state": "missing"}},
        },
        {"docId": "wo-3", "fields": {"title": "C"}, "refs": {"asset": None}},
    ]


def test_a_list_of_refs_gives_a_list_of_targets(yard):
    answer = join(yard, refs=["assets"], refFields={"assets": ["name"], "asset": ["site"]})

    assert answer.data["results"][0]["refs"] == {
        "assets": [
            {"docId": "ast-2", "fields": {"name": "Valve"}},
            {"docId": "ast-x", "fields": {}, "state": "missing"},
        ]
    }
    assert answer.data["results"][1]["refs"] == {"assets": None}


def test_lists_of_the_target_stay_lists(yard):
    answer = join(yard, refs=["asset"], refFields={"asset": ["tags"]}, limit=1)
    assert answer.data["results"][0]["refs"]["asset"]["fields"] == {"tags": ["a", "b"]}


def test_a_ref_shows_among_the_fields_only_when_asked_there(yard):
    plain = join(yard, refs=["asset"], limit=1).data["results"][0]
    asked = join(yard, refs=["asset"], fields=["asset"], limit=1).data["results"][0]

    assert plain["fields"] == {}
    assert asked["fields"] == {"asset": "ast-1"}


def test_refs_may_be_empty_and_filters_narrow(yard):
    answer = join(yard, refs=[], fields=["title"], filters={"hours": {"op": "gt", "value": 1}})
    assert answer.data == {
        "total": 1, "results": [{"docId": "wo-2", "fields": {"title": "B"}, "refs": {}}],
    }  # fmt: skip


def test_the_default_order_is_newest_index_stamp_first(yard):
    answer = yard.call("join", docType="work_order", refs=[], limit=2, offset=1)
    assert [row["docId"] for row in answer.data["results"]] == ["wo-2", "wo-1"]


@pytest.mark.parametrize(("asked", "clamped"), [(500, False), (501, True)])
def test_the_limit_is_capped_at_500(yard, asked, clamped):
    answer = join(yard, refs=[], limit=asked)
    assert ("limitClamped" in answer.data) is clamped


def test_unindexed_names_and_unknown_types_are_pointed_out(yard):
    assert join(yard, refs=["owner"], fields=["serial"]).codes == ["FIELD_NOT_INDEXED"] * 2
    answer = yard.call("join", docType="glider", refs=["asset"])
    assert answer.data == {"total": 0, "results": []}
    assert answer.codes == ["UNKNOWN_TYPE"]


def test_bad_filters_are_refused(yard):
    with pytest.raises(MaadError, match="FILTER_EMPTY_ARRAY"):
        join(yard, refs=[], filters={"title": []})
