"""maad_related: the neighbours on both sides, in one order (spec 02 §4.4)."""

from __future__ import annotations

import pytest

from maadd_worker.read import edges


def ends(side):
    return [f"{edge['docId']} {edge['docType']} {edge['field']}" for edge in side]


@pytest.fixture
def yard(project):
    project.record("asset", "ast-a", name="A", vendor="ven-1", parent="ast-a", backup="ast-gone")
    project.record(
        "asset", "ast-b", "[[pump:ast-a|a]] [[pump:ast-a|again]]", name="B", parent="ast-a"
    )
    project.record("asset", "ast-dead", name="D", parent="ast-b")
    project.record("asset", "ast-c", name="C", parent="ast-dead")
    project.record("vendor", "ven-1", name="N")
    project.reindex()
    project.soft_delete("ast-dead")
    return project


def test_both_sides_are_ordered_by_id_then_field(yard):
    data = yard.call("related", docId="ast-a").data

    assert ends(data["outgoing"]) == [
        "ast-a asset parent", "ast-gone unknown backup", "ven-1 vendor vendor",
    ]  # fmt: skip
    assert ends(data["incoming"]) == [
        "ast-a asset parent", "ast-b asset parent", "ast-b asset pump", "ast-b asset pump",
    ]  # fmt: skip
    assert data["incoming"][2]["relationType"] == "mention"
    assert "truncated" not in data


def test_one_side_leaves_the_other_empty(yard):
    data = yard.call("related", docId="ast-a", direction="outgoing").data
    assert data["incoming"] == []
    assert len(data["outgoing"]) == 3


def test_tombstones_are_neither_ends_nor_starts(yard):
    assert yard.call("related", docId="ast-c").data["outgoing"] == []
    assert yard.call("related", docId="ast-b").data["incoming"] == []


@pytest.mark.parametrize("doc_id", ["ast-gone", "ast-dead", "nothing"])
def test_an_id_that_is_not_live_has_no_neighbours(yard, doc_id):
    assert yard.call("related", docId=doc_id).data == {
        "docId": doc_id, "outgoing": [], "incoming": [],
    }  # fmt: skip


def test_a_side_with_too_many_edges_is_cut_and_says_so(project, monkeypatch):
    monkeypatch.setattr(edges, "EDGE_LIMIT", 3)
    project.record("asset", "ast-hub", name="H")
    for number in range(4):
        project.record("asset", f"ast-{number}", name="N", parent="ast-hub")
    project.reindex()

    data = project.call("related", docId="ast-hub").data

    assert len(data["incoming"]) == 3
    assert data["truncated"] is True
