"""`maad_bulk_update` through an open project (spec 03 §4.5)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest


@pytest.fixture
def ships(open_project: Any) -> Any:
    project = open_project()
    for name in ("Ada", "Bo", "Cy"):
        project.ok("maad_create", docType="ship", fields={"name": name, "tonnage": 1})
    project.catch_up()
    project.engine.poll_events()
    return project


def last_message(project: Any) -> str:
    return str(project.git("log", "-1", "--format=%B")).strip()


def test_each_update_is_judged_alone(ships: Any) -> None:
    data = ships.ok(
        "maad_bulk_update",
        updates=[
            {"docId": "shp-ada", "fields": {"tonnage": 2}},
            {"docId": "shp-bo", "appendBody": "More."},
            {"docId": "shp-none", "fields": {"tonnage": 2}},
            {"docId": "shp-cy", "fields": {"tonnage": "heavy"}},
            {"docId": "shp-cy", "body": "a", "appendBody": "b"},
        ],
    )
    assert [(one["docId"], one["version"]) for one in data["succeeded"]] == [
        ("shp-ada", 2),
        ("shp-bo", 2),
    ]
    assert data["succeeded"][0]["filePath"] == "ships/shp-ada.md"
    assert [(one["index"], one["docId"], one["code"]) for one in data["failed"]] == [
        (2, "shp-none", "FILE_NOT_FOUND"),
        (3, "shp-cy", "VALIDATION_FAILED"),
        (4, "shp-cy", "INVALID_FIELDS"),
    ]
    assert data["verification"]["passed"] == 2
    ships.catch_up()
    assert last_message(ships) == (
        "maad:update shp-ada [ship] bulk:2 — 2 records updated\n\n"
        "Maad-Write: update shp-ada [ship] fields:tonnage\n"
        "Maad-Write: update shp-bo [ship] body:append"
    )


def test_a_stale_version_or_hash_fails_its_item_only(ships: Any) -> None:
    current = ships.ok("maad_get", docId="shp-bo")
    data = ships.ok(
        "maad_bulk_update",
        updates=[
            {"docId": "shp-ada", "fields": {"tonnage": 2}, "expectedVersion": 7},
            {"docId": "shp-bo", "fields": {"tonnage": 2}, "expectedVersion": current["version"]},
            {"docId": "shp-cy", "fields": {"tonnage": 2}, "expectedHash": "0" * 64},
        ],
    )
    assert [one["docId"] for one in data["succeeded"]] == ["shp-bo"]
    assert {one["code"] for one in data["failed"]} == {"VERSION_CONFLICT"}
    assert data["failed"][0]["details"] == {"expected": 7, "actual": 1}


def test_an_edit_made_outside_is_noticed_first(ships: Any) -> None:
    path = ships.root / "ships/shp-ada.md"
    path.write_text(path.read_text().replace("tonnage: 1", "tonnage: 5"))
    update = {"docId": "shp-ada", "fields": {"name": "A"}, "expectedVersion": 1}
    [failed] = ships.ok("maad_bulk_update", updates=[update])["failed"]
    assert failed["details"] == {"expected": 1, "actual": 2}
    assert "tonnage: 5" in path.read_text()


def test_a_record_named_twice_is_changed_twice(ships: Any) -> None:
    data = ships.ok(
        "maad_bulk_update",
        updates=[
            {"docId": "shp-ada", "fields": {"tonnage": 2}},
            {"docId": "shp-bo", "fields": {"tonnage": 9}},
            {"docId": "shp-ada", "fields": {"tonnage": 3, "name": "Ada II"}},
        ],
    )
    assert [(one["docId"], one["version"]) for one in data["succeeded"]] == [
        ("shp-ada", 2),
        ("shp-bo", 2),
        ("shp-ada", 3),
    ]
    assert data["verification"] == {
        "sampledIds": ["shp-ada", "shp-bo"],
        "sampled": 2,
        "passed": 2,
        "mismatches": [],
    }
    ships.catch_up()
    assert "bulk:3" in last_message(ships)
    assert "tonnage: 3" in ships.git("show", "HEAD:ships/shp-ada.md")
    assert ships.git("status", "--porcelain") == ""
    assert len(ships.git("log", "--format=%h").split()) == 5


def test_unset_fields_are_verified_as_gone(ships: Any) -> None:
    data = ships.ok("maad_bulk_update", updates=[{"docId": "shp-ada", "unsetFields": ["tonnage"]}])
    assert data["verification"]["passed"] == 1
    assert "tonnage" not in ships.text("ships/shp-ada.md")


def test_updates_that_change_nothing_make_no_commit(ships: Any) -> None:
    before = ships.text("ships/shp-ada.md")
    reply = ships.reply(
        "maad_bulk_update", updates=[{"docId": "shp-ada", "fields": {"tonnage": 1}}]
    )
    data = msgspec.json.decode(reply.body)
    assert data["succeeded"][0]["version"] == 1
    assert data["succeeded"][0]["filePath"] == "ships/shp-ada.md"
    assert reply.meta["history"]["outcome"] == "none"
    assert ships.text("ships/shp-ada.md") == before
    assert ships.engine.poll_events() == []


def test_given_fields_only_change_and_the_body_stays(ships: Any) -> None:
    before = ships.text("ships/shp-ada.md")
    ships.ok("maad_bulk_update", updates=[{"docId": "shp-ada", "fields": {"tonnage": 2}}])
    assert ships.text("ships/shp-ada.md") == before.replace("tonnage: 1", "tonnage: 2")


def test_a_record_that_cannot_be_indexed_gets_its_old_bytes_back(ships: Any) -> None:
    before = ships.text("ships/shp-bo.md")
    ships.index_trigger(
        "BEFORE UPDATE ON documents WHEN new.doc_id = 'shp-bo' BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    data = ships.ok(
        "maad_bulk_update",
        updates=[
            {"docId": "shp-ada", "fields": {"tonnage": 2}},
            {"docId": "shp-bo", "fields": {"tonnage": 2}},
        ],
    )
    assert [one["docId"] for one in data["succeeded"]] == ["shp-ada"]
    assert data["failed"][0]["details"]["fileWritten"] is False
    assert ships.text("ships/shp-bo.md") == before


def test_a_type_with_a_broken_schema_fails_its_items_only(ships: Any) -> None:
    ships.ok("maad_create", docType="voyage", fields={"ship": "shp-ada"}, docId="voy-a")
    (ships.root / "_schema/ship.v1.yaml").write_text("type: ship\nversion: [\n")
    data = ships.ok(
        "maad_bulk_update",
        updates=[
            {"docId": "shp-ada", "fields": {"tonnage": 2}},
            {"docId": "voy-a", "fields": {"ship": "shp-bo"}},
        ],
    )
    assert [one["docId"] for one in data["succeeded"]] == ["voy-a"]
    assert data["failed"][0]["docId"] == "shp-ada"


def test_a_held_index_lock_costs_the_commit_not_the_writes(ships: Any) -> None:
    lock = ships.root / ".git/index.lock"
    lock.write_bytes(b"")
    reply = ships.reply(
        "maad_bulk_update",
        updates=[
            {"docId": "shp-ada", "fields": {"tonnage": 2}},
            {"docId": "shp-bo", "fields": {"tonnage": 2}},
        ],
    )
    data = msgspec.json.decode(reply.body)
    assert data["writeDurable"] is False
    assert data["commitFailure"]["code"] == "GIT_COMMIT_FAILED"
    assert set(data["commitFailure"]) == {"code", "message", "action", "details"}
    assert data["commitFailure"]["action"] == "update"
    assert reply.meta["commit_failure"] == data["commitFailure"]
    assert reply.meta["write_durable"] is False
    assert reply.meta["history"]["pendingWrites"] == 2
    assert ships.engine.poll_events() == []
    assert ships.ok("maad_get", docId="shp-ada")["version"] == 2
    lock.unlink()
    ships.settle()
    assert "bulk:2" in last_message(ships)
    assert ships.git("status", "--porcelain") == ""
