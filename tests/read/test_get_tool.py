"""maad_get: a record at each depth, from its file as it is now (spec 02 §4.1)."""

from __future__ import annotations

import os

import pytest

from maadd.protocol.errors import MaadError

BODY = """\
Seen from the road.

# Seal

Worn on the drive side.

## Cause {#cause}

Dry running.

## Cause

Wrong grease.
"""


@pytest.fixture
def order(project):
    project.record("asset", "ast-1", name="Pump")
    project.record(
        "work_order", "wo-7", BODY, title="Seal", status="open", asset="ast-1", due="2031-02-03"
    )
    project.reindex()
    return project


def test_hot_gives_the_frontmatter_as_it_stands_in_the_file(order):
    data = order.call("get", docId="wo-7").data

    assert list(data) == [
        "docId", "docType", "version", "updatedAt", "createdAt", "depth", "frontmatter",
        "contentHash",
    ]  # fmt: skip
    assert data["frontmatter"]["due"] == "2031-02-03"
    assert data["depth"] == "hot"
    assert data["version"] == 1


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("cause", {"id": "cause", "heading": "Cause", "content": "Dry running."}),
        ("cause~2", {"id": "cause", "heading": "Cause", "content": "Wrong grease."}),
        ("SEAL", {"id": "seal", "heading": "Seal", "content": "Worn on the drive side."}),
        ("_preamble", {"id": None, "heading": "", "content": "Seen from the road."}),
    ],
)
def test_warm_adds_one_block(order, selector, expected):
    assert order.call("get", docId="wo-7", depth="warm", block=selector).data["block"] == expected


def test_a_block_that_is_not_there_changes_nothing_but_a_warning(order):
    answer = order.call("get", docId="wo-7", depth="warm", block="costs")

    assert "block" not in answer.data
    assert answer.codes == ["BLOCK_NOT_FOUND"]
    assert "_preamble, seal, cause" in answer.outcome.warnings[0].message


@pytest.mark.parametrize("arguments", [{"depth": "warm"}, {"depth": "warm", "block": ""},
                                       {"depth": "hot", "block": "seal"}])  # fmt: skip
def test_without_a_selector_at_depth_warm_there_is_no_block(order, arguments):
    answer = order.call("get", docId="wo-7", **arguments)

    assert "block" not in answer.data
    assert answer.codes == []


def test_cold_gives_the_trimmed_body_of_a_file_with_bom_and_crlf(project):
    text = (
        "\ufeff---\r\ndoc_id: wo-1\r\ndoc_type: work_order\r\ntitle: A\r\n---\r\n\r\none\r\ntwo\r\n"
    )
    project.write("orders/wo-1.md", text)
    project.reindex()

    assert project.call("get", docId="wo-1", depth="cold").data["body"] == "one\ntwo"


def test_an_external_edit_is_served_fresh_and_announced(order):
    path = order.record("work_order", "wo-7", "# New\n\nfresh text\n", title="Seal")
    assert (order.path / path).exists()

    answer = order.call("get", docId="wo-7", depth="warm", block="new")

    assert answer.data["block"]["content"] == "fresh text"
    assert answer.codes == ["INDEX_STALE"]


@pytest.mark.parametrize("doc_id", ["wo-8", "", "wo-gone"])
def test_only_live_records_are_found(order, doc_id):
    order.record("work_order", "wo-gone", title="Gone")
    order.reindex()
    order.soft_delete("wo-gone")

    with pytest.raises(MaadError, match="FILE_NOT_FOUND"):
        order.call("get", docId=doc_id)


def test_a_file_that_now_holds_another_record_is_not_served(order):
    order.write("orders/wo-7.md", "---\ndoc_id: wo-8\ndoc_type: work_order\ntitle: B\n---\n")

    with pytest.raises(MaadError, match="FRONTMATTER_GUARD"):
        order.call("get", docId="wo-7")


def test_a_missing_file_is_named_by_its_record(order):
    (order.path / "orders/wo-7.md").unlink()

    with pytest.raises(MaadError) as refusal:
        order.call("get", docId="wo-7")
    assert refusal.value.code == "FILE_READ_ERROR"
    assert refusal.value.details == {"docId": "wo-7"}


def test_a_file_that_no_longer_parses_says_so(order):
    order.write("orders/wo-7.md", "---\ntitle: [open\n---\n")

    with pytest.raises(MaadError, match="PARSE_ERROR"):
        order.call("get", docId="wo-7")

    order.write("orders/wo-7.md", "")
    with pytest.raises(MaadError, match=r"PARSE_ERROR: .*empty file"):
        order.call("get", docId="wo-7")

    order.write("orders/wo-7.md", "no frontmatter")
    with pytest.raises(MaadError, match="has no doc_id, the index knows it as"):
        order.call("get", docId="wo-7")


@pytest.mark.parametrize("depth", ["hot", "warm", "cold", "full"])
def test_no_depth_follows_a_folder_that_leads_out_of_the_project(order, tmp_path, depth):
    outside = tmp_path / "outside"
    (order.path / "orders").rename(outside)
    (order.path / "orders").symlink_to(outside)

    with pytest.raises(MaadError, match="PATH_OUTSIDE_PROJECT"):
        order.call("get", docId="wo-7", depth=depth)


def test_links_inside_the_project_work(order):
    (order.path / "orders").rename(order.path / "elsewhere")
    (order.path / "orders").symlink_to("elsewhere")

    assert order.call("get", docId="wo-7").data["docId"] == "wo-7"


def test_full_resolves_refs_to_the_names_of_live_records(project):
    project.record("asset", "ast-1", name="Pump", vendor="ven-1", parent="ast-2", backup="ast-9")
    project.record("asset", "ast-2", title="Line two", name="")
    project.record("vendor", "ven-1", name="Northwind")
    project.record("work_order", "wo-1", title="T", asset="ast-1", assets=["ast-1"])
    project.reindex()
    project.soft_delete("ast-2")

    data = project.call("get", docId="ast-1", depth="full").data

    assert data["resolvedRefs"] == {"vendor": {"docId": "ven-1", "name": "Northwind"}}
    assert data["related"]["outgoing"] == [
        {"docId": "ast-9", "docType": "unknown", "field": "backup", "relationType": "ref"},
        {"docId": "ven-1", "docType": "vendor", "field": "vendor", "relationType": "ref"},
    ]
    assert [edge["docId"] for edge in data["related"]["incoming"]] == ["wo-1", "wo-1"]
    assert data["latestNote"] is None
    assert not data.keys() & {"body", "createdAt", "depth"}


def test_full_shows_fifty_objects_and_counts_all(project):
    body = "\n".join(f"[[person:Lind {number:02}|x]]" for number in range(70))
    project.record("work_order", "wo-1", body, title="T")
    project.reindex()

    data = project.call("get", docId="wo-1", depth="full").data

    assert list(data) == [
        "docId", "docType", "version", "updatedAt", "frontmatter", "resolvedRefs", "objects",
        "objectsTotal", "related", "latestNote", "contentHash",
    ]  # fmt: skip
    assert data["objectsTotal"] == 71
    assert len(data["objects"]) == 50
    assert data["objects"][1]["value"] == "Lind 00"


def test_full_does_not_read_a_referenced_record_outside_the_project(project, tmp_path):
    project.record("vendor", "ven-1", name="Northwind")
    project.record("asset", "ast-1", name="Pump", vendor="ven-1")
    project.reindex()
    secret = tmp_path / "secret.md"
    secret.write_text("---\nname: secret\n---\n")
    os.replace(secret, tmp_path / "kept.md")
    (project.path / "vendors/ven-1.md").unlink()
    (project.path / "vendors/ven-1.md").symlink_to(tmp_path / "kept.md")

    with pytest.raises(MaadError, match="PATH_OUTSIDE_PROJECT"):
        project.call("get", docId="ast-1", depth="full")


def test_a_referenced_record_that_is_broken_is_left_unresolved(project):
    project.record("vendor", "ven-1", name="Northwind")
    project.record("asset", "ast-1", name="Pump", vendor="ven-1")
    project.reindex()
    project.write("vendors/ven-1.md", "---\nname: [\n---\n")

    assert project.call("get", docId="ast-1", depth="full").data["resolvedRefs"] == {}


def test_full_says_when_the_file_has_changed_since(order):
    order.record("work_order", "wo-7", title="Other", status="open")

    answer = order.call("get", docId="wo-7", depth="full")

    assert answer.data["frontmatter"]["title"] == "Other"
    assert answer.codes == ["INDEX_STALE"]


def test_the_latest_note_is_the_one_committed_last(repository):
    project = repository
    project.record("asset", "ast-1", name="Pump")
    for note in ("nte-a", "nte-b", "nte-c"):
        project.record("note", note, about="ast-1")
    project.reindex()
    project.commit("maad:create nte-b [note] — first look", "notes/nte-b.md")
    project.commit("maad:create nte-a [note] — second look", "notes/nte-a.md")
    project.commit("by hand", "notes/nte-c.md")

    note = project.call("get", docId="ast-1", depth="full").data["latestNote"]

    assert note["docId"] == "nte-a"
    assert note["summary"] == "second look"
