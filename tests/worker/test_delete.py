"""`maad_delete` through an open project (spec 01 §11, 03 §5.1)."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest


@pytest.fixture
def ships(open_project: Any) -> Any:
    project = open_project()
    project.ok("maad_create", docType="ship", fields={"name": "One"})
    project.ok("maad_create", docType="voyage", fields={"ship": "shp-one"}, docId="voy-first")
    return project


def test_a_soft_delete_renames_the_file_and_hides_the_record(ships: Any) -> None:
    data = ships.ok("maad_delete", docId="shp-one")
    assert data["filePath"] == "ships/shp-one.md"
    assert data["tombstonePath"] == "ships/_deleted_shp-one.md"
    assert data["inboundRefs"] == {"count": 1, "sample": ["voy-first"]}
    assert (ships.root / "ships/_deleted_shp-one.md").exists()
    assert ships.error("maad_get", docId="shp-one")["code"] == "FILE_NOT_FOUND"
    assert ships.error("maad_delete", docId="shp-one")["code"] == "FILE_NOT_FOUND"
    assert ships.ok("maad_summary")["warnings"]["brokenRefs"] == 1


def test_a_hard_delete_removes_file_and_row(ships: Any) -> None:
    ships.ok("maad_delete", docId="shp-one", mode="hard")
    assert not (ships.root / "ships/shp-one.md").exists()
    ships.settle()
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ships.root, check=True, capture_output=True
    )
    assert status.stdout == b""
    ships.ok("maad_create", docType="ship", fields={"name": "One"})


def test_a_hard_delete_leaves_no_copy_of_the_text(ships: Any) -> None:
    ships.ok(
        "maad_update",
        docId="shp-one",
        fields={"name": "Xylophone secret"},
        idempotencyKey="k1",
    )
    ships.ok("maad_delete", docId="shp-one", mode="hard")
    ships.settle()
    ships.close()
    for path in (ships.root / "_backend").iterdir():
        assert b"Xylophone secret" not in path.read_bytes(), path.name


def test_a_second_tombstone_never_replaces_the_first(ships: Any) -> None:
    ships.ok("maad_delete", docId="shp-one")
    first = ships.root / "ships/_deleted_shp-one.md"
    first.rename(ships.root / "ships/shp-one.md")
    ships.ok("maad_reindex")
    (ships.root / "ships/_deleted_shp-one.md").write_text("older\n")
    data = ships.ok("maad_delete", docId="shp-one")
    assert data["tombstonePath"] == "ships/_deleted_shp-one.2.md"
    assert first.read_text() == "older\n"


def test_inbound_refs_can_refuse_a_delete(ships: Any) -> None:
    error = ships.error("maad_delete", docId="shp-one", onInboundRefs="refuse")
    assert error["code"] == "REFERENCED"
    assert error["details"]["inboundRefs"]["count"] == 1
    ships.ok("maad_delete", docId="voy-first", onInboundRefs="refuse")


def test_a_stale_version_refuses_a_delete(ships: Any) -> None:
    ships.ok("maad_update", docId="shp-one", fields={"tonnage": 2})
    error = ships.error("maad_delete", docId="shp-one", expectedVersion=1)
    assert error["code"] == "VERSION_CONFLICT"
    assert (ships.root / "ships/shp-one.md").exists()


def test_a_revived_record_goes_on_with_its_version(ships: Any) -> None:
    ships.ok("maad_update", docId="shp-one", fields={"tonnage": 2})
    created = ships.ok("maad_get", docId="shp-one")["createdAt"]
    ships.ok("maad_delete", docId="shp-one")
    (ships.root / "ships/_deleted_shp-one.md").rename(ships.root / "ships/shp-one.md")
    ships.ok("maad_reindex")
    again = ships.ok("maad_get", docId="shp-one")
    assert again["version"] == 3
    assert again["createdAt"] == created


def test_a_file_that_does_not_parse_is_not_deleted(ships: Any) -> None:
    path = ships.root / "ships/shp-one.md"
    path.write_text("---\nname: [\n---\n")
    error = ships.error("maad_delete", docId="shp-one", mode="hard")
    assert (error["code"], error["details"]) == ("FILE_READ_ERROR", {"docId": "shp-one"})
    assert path.exists()


def test_a_record_of_a_type_that_is_gone_can_be_deleted(ships: Any) -> None:
    registry = ships.root / "_registry/object_types.yaml"
    registry.write_text(registry.read_text().partition("  voyage:")[0])
    ships.ok("maad_delete", docId="voy-first", mode="hard")
    assert not (ships.root / "voyages/voy-first.md").exists()
