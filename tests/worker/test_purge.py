"""`maad_purge_soft_deleted` (spec 01 §11, 03 §5.5)."""

from __future__ import annotations

import os
from typing import Any

import pytest


@pytest.fixture
def tombs(open_project: Any) -> Any:
    """Three tombstones, the oldest first, and one live record."""
    project = open_project(purge_default_retention_days=0)
    for name in ("Ada", "Bo", "Cy", "Dee"):
        project.ok("maad_create", docType="ship", fields={"name": name})
    for doc_id in ("shp-ada", "shp-bo", "shp-cy"):
        project.ok("maad_delete", docId=doc_id)
        age(project, doc_id)
    project.catch_up()
    project.engine.poll_events()
    return project


def age(project: Any, doc_id: str) -> None:
    """Make a tombstone an hour older than it is."""
    project.engine._index.writer().connection.execute(
        "UPDATE documents SET updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', updated_at, '-1 hour') "
        "WHERE doc_id = ?",
        (doc_id,),
    )


def test_a_preview_lists_the_tombstones(tombs: Any) -> None:
    data = tombs.ok("maad_purge_soft_deleted", maxRecords=2)
    assert data["totalAffected"] == 2
    assert data["scanned"] == 3
    assert data["affected"][0] | {"updatedAt": ""} == {
        "docId": "shp-ada",
        "docType": "ship",
        "filePath": "ships/_deleted_shp-ada.md",
        "updatedAt": "",
    }
    assert data["maxRecords"] == 2
    assert data["retentionThresholdIso"].endswith("Z")
    assert (tombs.root / "ships/_deleted_shp-ada.md").exists()


def test_the_oldest_go_first_and_the_rest_waits_for_the_next_call(tombs: Any) -> None:
    data = tombs.ok("maad_purge_soft_deleted", maxRecords=2, confirm=True)
    assert data["purged"] == [
        {"docId": doc_id, "docType": "ship", "filePath": f"ships/_deleted_{doc_id}.md"}
        for doc_id in ("shp-ada", "shp-bo")
    ]
    assert (data["failed"], data["scanned"], data["writeDurable"]) == ([], 3, True)
    assert [(one.action, one.doc_id) for one in tombs.engine.poll_events()] == [
        ("delete", "shp-ada"),
        ("delete", "shp-bo"),
    ]
    tombs.catch_up()
    subject, *_ = tombs.git("log", "-1", "--format=%B").splitlines()
    assert subject.startswith("maad:delete shp-ada [ship] purge:2 — 2 records purged")
    assert tombs.git("status", "--porcelain") == ""
    assert tombs.ok("maad_purge_soft_deleted", confirm=True)["scanned"] == 1
    assert [path.name for path in (tombs.root / "ships").iterdir()] == ["shp-dee.md"]
    tombs.ok("maad_create", docType="ship", fields={"name": "Ada"})


def test_a_tombstone_whose_file_is_gone_goes_too(tombs: Any) -> None:
    (tombs.root / "ships/_deleted_shp-bo.md").unlink()
    data = tombs.ok("maad_purge_soft_deleted", confirm=True)
    assert [one["docId"] for one in data["purged"]] == ["shp-ada", "shp-bo", "shp-cy"]
    tombs.catch_up()
    assert tombs.git("status", "--porcelain") == ""


def test_a_folder_that_leads_outside_keeps_its_tombstones(tombs: Any, tmp_path: Any) -> None:
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    (tombs.root / "ships").rename(elsewhere)
    (tombs.root / "ships").symlink_to(elsewhere)
    data = tombs.ok("maad_purge_soft_deleted", confirm=True)
    assert data["purged"] == []
    assert {one["code"] for one in data["failed"]} == {"PATH_OUTSIDE_PROJECT"}
    assert data["failed"][0]["error"].startswith("PATH_OUTSIDE_PROJECT: ")
    assert len(list(elsewhere.glob("_deleted_*"))) == 3
    (tombs.root / "ships").unlink()
    elsewhere.rename(tombs.root / "ships")
    assert len(tombs.ok("maad_purge_soft_deleted", confirm=True)["purged"]) == 3


def test_an_older_threshold_leaves_younger_tombstones(tombs: Any) -> None:
    assert tombs.ok("maad_purge_soft_deleted", olderThan="2020-01-01")["totalAffected"] == 0
    assert tombs.ok("maad_purge_soft_deleted", olderThan="2020-01-01t00:00:00z")["scanned"] == 0


def test_the_threshold_is_the_retention_time_ago(open_project: Any) -> None:
    project = open_project()
    project.ok("maad_create", docType="ship", fields={"name": "Ada"})
    project.ok("maad_delete", docId="shp-ada")
    age(project, "shp-ada")
    assert project.ok("maad_purge_soft_deleted")["totalAffected"] == 0


@pytest.mark.parametrize(
    "text",
    ["zz", "", "2031", "20310203", "2031-02-30", "yesterday", "2031-02-03T25:00:00Z", "2199-01-01"],
)
def test_what_is_no_time_of_the_past_is_refused(tombs: Any, text: str) -> None:
    error = tombs.error("maad_purge_soft_deleted", olderThan=text, confirm=True)
    assert error["code"] == "INVALID_FIELDS"
    assert error["details"] == {"field": "olderThan", "provided": text}
    assert (tombs.root / "ships/_deleted_shp-ada.md").exists()


def test_tombstones_survive_a_rebuilt_index_and_can_be_purged(tombs: Any) -> None:
    tombs.close()
    for path in (tombs.root / "_backend").glob("maad.db*"):
        path.unlink()
    for path in (tombs.root / "ships").glob("_deleted_*"):
        os.utime(path, (0, 0))  # an index built anew takes the time of the file
    tombs.engine = tombs.open()
    tombs._reader = tombs.engine.open_reader()
    tombs.ok("maad_reindex")
    data = tombs.ok("maad_purge_soft_deleted", confirm=True)
    assert len(data["purged"]) == 3


def test_a_key_replays_a_purge(tombs: Any) -> None:
    tombs.ok("maad_purge_soft_deleted", idempotencyKey="k")
    first = tombs.ok("maad_purge_soft_deleted", idempotencyKey="k", confirm=True)
    assert len(first["purged"]) == 3
    assert tombs.ok("maad_purge_soft_deleted", idempotencyKey="k", confirm=True) == first
