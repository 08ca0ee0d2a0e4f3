"""maad_verify and maad_find_orphans: claims, and files against the index (spec 02 §4.8, §4.9)."""

from __future__ import annotations

import os

import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.markdown.frontmatter import content_hash
from maadd_worker.read.verify import is_grounded


@pytest.mark.parametrize(
    ("expected", "actual", "grounded"),
    [
        (40, 40.0, True),
        ("40", 40, True),
        (40, "40.0", False),
        (True, "true", True),
        (True, 1, False),
        (None, None, True),
        ("", None, True),
        (None, "", True),
        (None, "null", False),
        (["a", "b"], ["a", "b"], True),
        (["a,b"], ["a", "b"], False),
        (["1"], [1], False),
        ("a", ["a"], False),
        ([], None, False),
        ({"x": 1}, {"x": 1.0}, True),
        ({"x": 1}, {"x": 2}, False),
        ({"x": 1}, '{"x":1}', False),
        ("a", "A", False),
    ],
)
def test_values_are_compared_by_their_type(expected, actual, grounded):
    assert is_grounded(expected, actual) is grounded
    assert is_grounded(actual, expected) is grounded


@pytest.fixture
def order(project):
    project.record("work_order", "wo-7", title="Seal", status="open", hours=4)
    project.reindex()
    return project


def test_a_field_claim_is_judged_by_the_file(order):
    claim = {"mode": "field", "docId": "wo-7", "field": "status"}

    assert order.call("verify", **claim, expected="open").data == {
        "grounded": True,
        "claim": "field",
        "expected": "open",
        "actual": "open",
        "source": {"docId": "wo-7", "filePath": "orders/wo-7.md"},
    }
    order.record("work_order", "wo-7", title="Seal", status="done")
    answer = order.call("verify", **claim, expected="open")
    assert answer.data["grounded"] is False
    assert answer.data["actual"] == "done"
    assert answer.codes == ["INDEX_STALE"]


def test_a_claim_about_an_unknown_record_is_not_grounded(order):
    answer = order.call("verify", mode="field", docId="wo-8", field="status", expected="open")
    assert answer.data["grounded"] is False
    assert answer.data["source"] == {"docId": "wo-8", "filePath": ""}


def test_a_claim_about_a_record_that_cannot_be_read_is_an_error(order):
    claim = {"mode": "field", "docId": "wo-7", "field": "status", "expected": "open"}
    (order.path / "orders/wo-7.md").unlink()
    with pytest.raises(MaadError) as refusal:
        order.call("verify", **claim)
    assert (refusal.value.code, refusal.value.details) == ("FILE_READ_ERROR", {"docId": "wo-7"})

    (order.path / "orders").rmdir()
    (order.path / "orders").symlink_to(order.path.parent)
    with pytest.raises(MaadError, match="PATH_OUTSIDE_PROJECT"):
        order.call("verify", **claim)


def test_null_can_be_expected(order):
    answer = order.call("verify", mode="field", docId="wo-7", field="cost", expected=None)
    assert answer.data["grounded"] is True


@pytest.mark.parametrize(
    ("doc_type", "filters", "expected", "grounded"),
    [
        ("work_order", None, 1, True),
        ("work_order", {"hours": {"op": "gt", "value": 4}}, 0, True),
        ("work_order", {"status": "open"}, 2, False),
        ("glider", None, 0, True),
    ],
)
def test_a_count_claim(order, doc_type, filters, expected, grounded):
    answer = order.call(
        "verify", mode="count", docType=doc_type, expectedCount=expected, filters=filters
    )
    assert answer.data["grounded"] is grounded
    assert answer.data["source"] == "query"


# The integrity sweep


CLEAN = {
    "missing_in_index": 0,
    "missing_on_disk": 0,
    "hash_drift": 0,
    "schema_drift": 0,
    "broken_refs": 0,
}


@pytest.fixture
def yard(project):
    for number in range(3):
        project.record("asset", f"ast-{number}", name="N")
    project.record("work_order", "wo-1", title="T", asset="ast-1")
    project.reindex()
    return project


def sweep(project, **arguments):
    return project.call("verify", mode="integrity", **arguments).data


def detail(data, finding):
    return [one for one in data["details"] if one["finding"] == finding]


def test_a_clean_project_has_no_findings(yard):
    data = sweep(yard)

    assert data["scanned"] == data["healthy"] == 4
    assert data["findings"] == CLEAN
    assert data["scopeFilters"] == {
        "docType": None, "docId": None, "filter": None, "categories": None,
    }  # fmt: skip
    assert "details" not in data
    assert sweep(yard, verbose=True)["details"] == []


def test_a_file_without_a_row_is_missing_in_the_index(yard):
    yard.record("asset", "ast-new", name="N")

    data = sweep(yard, verbose=True)

    assert data["findings"] == CLEAN | {"missing_in_index": 1}
    assert (data["scanned"], data["healthy"]) == (5, 4)
    assert data["details"] == [
        {"docId": "ast-new", "docType": "asset", "finding": "missing_in_index"}
    ]


def test_a_row_without_a_file_is_missing_on_disk(yard):
    (yard.path / "assets/ast-2.md").unlink()

    data = sweep(yard, verbose=True)

    assert data["findings"] == CLEAN | {"missing_on_disk": 1}
    assert (data["scanned"], data["healthy"]) == (3, 3)
    assert data["details"] == [{"docId": "ast-2", "docType": "asset", "finding": "missing_on_disk"}]


def test_changed_bytes_are_hash_drift(yard):
    before = (yard.path / "assets/ast-0.md").read_bytes()
    yard.write("assets/ast-0.md", before + b"\n")

    data = sweep(yard, verbose=True)

    assert data["findings"] == CLEAN | {"hash_drift": 1}
    assert data["healthy"] == 3
    assert data["details"] == [
        {
            "docId": "ast-0",
            "docType": "asset",
            "finding": "hash_drift",
            "expected": f"sha256:{content_hash(before)}",
            "actual": f"sha256:{content_hash(before + bytes([10]))}",
        }
    ]


def test_a_record_of_another_schema_version_is_schema_drift(yard):
    yard.write(
        "assets/ast-0.md", "---\ndoc_id: ast-0\ndoc_type: asset\nschema: asset.v1\nname: N\n---\n"
    )
    yard.reindex()

    data = sweep(yard, verbose=True)

    assert data["findings"] == CLEAN | {"schema_drift": 1}
    assert (
        detail(data, "schema_drift")[0] | {"expected": "asset.v2", "actual": "asset.v1"}
        == (detail(data, "schema_drift")[0])
    )


def test_refs_without_a_live_target_are_broken(yard):
    yard.record("work_order", "wo-2", title="T", asset="ast-0", assets=["ast-x", "ast-1", "ast-x"])
    yard.reindex()
    yard.soft_delete("ast-0")

    data = sweep(yard, verbose=True)

    assert data["findings"] == CLEAN | {"broken_refs": 1}
    assert data["details"] == [
        {
            "docId": "wo-2",
            "docType": "work_order",
            "finding": "broken_refs",
            "actual": {"asset": ["ast-0"], "assets": ["ast-x"]},
            "deletedTargets": {"asset": ["ast-0"]},
        }
    ]
    assert (data["scanned"], data["healthy"]) == (4, 3)


@pytest.mark.parametrize("kind", ["folder", "pipe", "link out", "dangling link"])
def test_what_is_no_record_stands_for_none(yard, kind, tmp_path_factory):
    place = yard.path / "assets/ast-2.md"
    place.unlink()
    if kind == "folder":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        outside = tmp_path_factory.mktemp("outside") / "a.md"
        if kind == "link out":
            outside.write_text("text")
        place.symlink_to(outside)

    data = sweep(yard)

    assert data["findings"] == CLEAN | {"missing_on_disk": 1}


def test_categories_limit_what_is_looked_for(yard):
    yard.record("asset", "ast-new", name="N")
    (yard.path / "assets/ast-2.md").unlink()

    data = sweep(yard, categories=["missing_on_disk"])

    assert data["findings"] == CLEAN | {"missing_on_disk": 1}
    assert data["scopeFilters"]["categories"] == ["missing_on_disk"]


def test_a_type_limits_the_sweep_to_its_folder_and_records(yard):
    yard.record("asset", "ast-new", name="N")
    (yard.path / "orders/wo-1.md").unlink()

    data = sweep(yard, docType="work_order")

    assert (data["scanned"], data["healthy"]) == (0, 0)
    assert data["findings"] == CLEAN | {"missing_on_disk": 1}


def test_one_record_is_visited_alone(yard):
    yard.record("asset", "ast-new", name="N")
    yard.write("assets/ast-1.md", "changed")

    assert sweep(yard, docId="ast-0")["scanned"] == 1
    assert sweep(yard, docId="ast-1")["findings"] == CLEAN | {"hash_drift": 1}
    new = sweep(yard, docId="ast-new")
    assert (new["scanned"], new["findings"]["missing_in_index"]) == (1, 1)
    assert sweep(yard, docId="ast-none")["scanned"] == 0
    for tool, mode in (("verify", {"mode": "integrity"}), ("find_orphans", {})):
        assert yard.call(tool, docId="ast-0", **mode).codes == []
        (advice,) = yard.call(tool, docId="ast-none", **mode).outcome.warnings
        assert (advice.field, advice.code) == ("docId", "FILE_NOT_FOUND")
        assert '"ast-none"' in advice.message


def test_filters_take_every_match_and_leave_lone_files_out(project):
    for number in range(120):
        project.record("asset", f"ast-{number:03}", name="N", site="north", parent="ast-gone")
    project.reindex()
    project.record("asset", "ast-new", name="N")

    data = sweep(project, docType="asset", filters={"site": "north"})

    assert data["findings"] == CLEAN | {"broken_refs": 120}
    assert data["scanned"] == 121
    assert data["scopeFilters"]["filter"] == {"site": "north"}


def test_a_file_outside_every_registered_folder_is_told_apart(yard):
    row = yard.index.writer().find("ast-2")
    assert row is not None
    registry = (yard.path / "_registry/object_types.yaml").read_text()
    yard.write("_registry/object_types.yaml", registry.replace("path: assets", "path: gear"))
    yard.reload_model()

    data = sweep(yard, docType="asset", verbose=True)

    assert data["findings"] == CLEAN | {"unregistered_path": 3}
    assert data["scanned"] == 0


def test_a_folder_that_cannot_be_entered_hides_nothing_as_missing(yard, tmp_path):
    (yard.path / "assets").rename(tmp_path / "moved")
    (yard.path / "assets").symlink_to(tmp_path / "moved")

    answer = yard.call("verify", mode="integrity")

    assert answer.data["findings"] == CLEAN
    assert answer.codes == ["FILE_READ_ERROR"]


def test_details_are_capped_and_say_so(project):
    for number in range(1001):
        project.record("vendor", f"ven-{number:04}", name="N")

    data = sweep(project, verbose=True)

    assert data["findings"]["missing_in_index"] == 1001
    assert len(data["details"]) == 1000
    assert data["detailsTruncated"] is True
    assert data["details"][0]["docId"] == "ven-0000"


def test_a_sweep_changes_nothing_and_hands_its_result_over(yard):
    before = yard.index.writer().connection.total_changes()

    first, second = sweep(yard, verbose=True), sweep(yard, verbose=True)

    assert yard.index.writer().connection.total_changes() == before
    for data in (first, second):
        data.pop("completedAt")
        data.pop("durationMs")
    assert first == second
    assert [kept.findings for kept in yard.sweeps] == [CLEAN, CLEAN]


def test_find_orphans_is_the_sweep_for_broken_refs(yard):
    clean = yard.call("find_orphans").data
    assert clean["details"] == []
    assert clean["scanned"] == 4
    assert clean["scopeFilters"]["categories"] == ["broken_refs"]

    yard.record("asset", "ast-0", name="N", parent="ast-x")
    yard.reindex()

    assert yard.call("find_orphans", docType="asset").data["details"] == [
        {
            "docId": "ast-0",
            "docType": "asset",
            "finding": "broken_refs",
            "actual": {"parent": ["ast-x"]},
        }
    ]
    assert yard.call("find_orphans", docType="work_order").data["details"] == []
    assert yard.call("find_orphans", docId="ast-0").data["findings"]["broken_refs"] == 1


def test_bad_filters_are_refused(yard):
    with pytest.raises(MaadError, match="FILTER_OP_INVALID"):
        yard.call("find_orphans", docType="asset", filters={"site": {"op": "near", "value": 1}})
