"""`maad_reindex`, `maad_reload`, `maad_validate` and purges that meet an obstacle (spec 03 §4.3,
§5.5, §6.1, §6.2)."""

from __future__ import annotations

import shutil
from typing import Any

import msgspec
import pytest

from maadd_worker.write import reindex

SHIP = "---\ndoc_id: {0}\ndoc_type: ship\nschema: ship.v1\nname: {0}\n---\n"


def write_ships(project: Any, *doc_ids: str) -> None:
    folder = project.root / "ships"
    folder.mkdir(exist_ok=True)
    for doc_id in doc_ids:
        (folder / f"{doc_id}.md").write_text(SHIP.format(doc_id))


# Reindex


def test_a_reindex_reports_what_it_did(open_project: Any) -> None:
    project = open_project()
    write_ships(project, "shp-a", "shp-b")
    head = project.git("rev-parse", "HEAD")
    first = project.ok("maad_reindex")
    assert first == {
        "scanned": 2, "indexed": 2, "skipped": 0, "errors": [], "rebuiltTypes": ["ship", "voyage"],
    }  # fmt: skip
    assert project.ok("maad_reindex") == {"scanned": 2, "indexed": 0, "skipped": 2, "errors": []}
    assert project.ok("maad_reindex", force=True)["indexed"] == 2
    assert project.ok("maad_get", docId="shp-a")["version"] == 1
    (project.root / "ships/shp-a.md").unlink()
    assert project.ok("maad_reindex")["pruned"] == 1
    # Nothing of this is a matter for Git.
    assert project.git("rev-parse", "HEAD") == head


def test_a_file_that_cannot_be_taken_is_an_error_and_the_call_succeeds(open_project: Any) -> None:
    project = open_project(max_doc_bytes=400, max_doc_annotations=1)
    write_ships(project, "shp-a", "shp-two", "shp-many")
    ships = project.root / "ships"
    (ships / "copy.md").write_text(SHIP.format("shp-a"))
    (ships / "broken.md").write_text("---\nname: [\n---\n")
    (ships / "large.md").write_text(SHIP.format("shp-large") + "x" * 400)
    with (ships / "shp-many.md").open("a") as file:
        file.write("[[person:A|a]] [[person:B|b]]\n")
    data = project.ok("maad_reindex")
    assert (data["indexed"], data["partial"]) == (3, 1)
    errors = {error["code"]: error["details"] for error in data["errors"]}
    assert errors.keys() == {"DUPLICATE_DOC_ID", "PARSE_ERROR", "DOC_TOO_LARGE"}
    assert set(errors["DUPLICATE_DOC_ID"].values()) == {"ships/shp-a.md", "ships/copy.md"}
    assert errors["PARSE_ERROR"]["file"] == "ships/broken.md"
    assert str(project.root) not in msgspec.json.encode(data).decode()


def test_a_file_that_goes_before_it_is_looked_at_is_no_error(
    open_project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = open_project()
    write_ships(project, "shp-a", "shp-b")
    project.ok("maad_reindex")
    portions = reindex.portions

    def go_away(files: Any) -> Any:
        (project.root / "ships/shp-a.md").unlink()
        return portions(files)

    monkeypatch.setattr(reindex, "portions", go_away)
    for scope in ({"docType": "ship"}, {"path": "ships"}):
        report = project.ok("maad_reindex", force=True, **scope)
        assert report == {"scanned": 1, "indexed": 1, "skipped": 0, "errors": []}
        write_ships(project, "shp-a")
    [error] = project.ok("maad_reindex", docId="shp-a")["errors"]
    assert error["code"] == "FILE_READ_ERROR"


def test_health_tells_once_and_where_what_refuses_writes(open_project: Any) -> None:
    project = open_project()
    registry, schema = (
        project.root / name for name in ("_registry/object_types.yaml", "_schema/ship.v1.yaml")
    )
    sound = registry.read_text(), schema.read_text()

    def told() -> list[dict[str, Any]]:
        project.reply("maad_create", docType="ship", fields={"name": "A"})
        advisories = project.ok("maad_health")["advisories"]
        return [one for one in advisories if one["code"].endswith("_INVALID")]

    registry.write_text(sound[0].replace("id_prefix: shp", "id_prefix: SHP"))
    [advisory] = told()
    line = 1 + registry.read_text()[: registry.read_text().index("SHP")].count("\n")
    assert (advisory["file"], advisory["line"]) == ("_registry/object_types.yaml", line)
    assert "type" not in advisory
    registry.write_text(sound[0])
    schema.write_text(sound[1].replace("fields:\n", "fields:\n  odd: {type: dat}\n"))
    [advisory] = told()
    assert (advisory["type"], advisory["file"]) == ("ship", "_schema/ship.v1.yaml")
    assert advisory["line"] == 5
    schema.write_text(sound[1])
    assert told() == []


def test_rows_of_a_lost_folder_are_kept_told_and_pruned_on_confirmation(open_project: Any) -> None:
    project = open_project()
    write_ships(project, "shp-a", "shp-b")
    project.ok("maad_reindex")
    shutil.rmtree(project.root / "ships")
    reply = project.reply("maad_reindex")
    data = msgspec.json.decode(reply.body)
    assert "pruned" not in data
    assert data["warnings"]
    assert reply.meta["warnings"] == [
        {"field": "", "message": text, "code": "REINDEX_WARNING", "location": None}
        for text in data["warnings"]
    ]
    listed = project.ok("maad_reindex", prune=True)
    assert listed["wouldPrune"] == {"count": 2, "ids": ["shp-a", "shp-b"]}
    assert project.ok("maad_query", docType="ship")["total"] == 2
    done = project.ok("maad_reindex", prune=True, confirm=True)
    assert (done["pruned"], "wouldPrune" in done) == (2, False)
    assert project.ok("maad_query", docType="ship")["total"] == 0


@pytest.mark.parametrize(
    ("scope", "code"),
    [
        ({"docId": "shp-a", "docType": "ship"}, "INVALID_FIELDS"),
        ({"docId": "shp-none"}, "FILE_NOT_FOUND"),
        ({"docType": "barge"}, "UNKNOWN_TYPE"),
        ({"path": "../elsewhere"}, "PATH_OUTSIDE_PROJECT"),
    ],
)
def test_a_scope_that_is_none_is_refused(shared: Any, scope: dict[str, Any], code: str) -> None:
    write_ships(shared, "shp-a")
    assert shared.error("maad_reindex", **scope)["code"] == code


def test_every_path_that_a_whole_run_looks_at_is_a_scope(shared: Any) -> None:
    places = ["my log.md", "Übersicht.md", "c#.md", "a&b.md", ".hidden.md", "my notes.md/a.md"]
    for number, place in enumerate(places):
        file = shared.root / "ships" / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(SHIP.format(f"shp-path-{number}"))
        assert shared.ok("maad_reindex", path=f"ships/{place}")["indexed"] == 1, place
    assert shared.ok("maad_reindex", path="ships/my notes.md")["scanned"] == 1
    for path in ("ships/.git", "ships/.hidden/a.md", "ships/.hidden.d/"):
        assert shared.error("maad_reindex", path=path)["code"] == "INVALID_FIELDS", path
    for path in ("ships/../ships", "/ships", "ships//a.md", "", "."):
        assert shared.error("maad_reindex", path=path)["code"] == "PATH_OUTSIDE_PROJECT", path
    two = shared.error("maad_reindex", docId="shp-path-0", docType="ship")
    assert two["details"] == {"field": "docType"}


def test_a_type_whose_indexed_fields_change_is_rebuilt(open_project: Any) -> None:
    project = open_project()
    write_ships(project, "shp-a")
    project.ok("maad_reindex")
    schema = project.root / "_schema/ship.v1.yaml"
    schema.write_text(schema.read_text().replace("date, index: true", "date, index: false"))
    data = project.ok("maad_reindex")
    assert (data["rebuiltTypes"], data["indexed"]) == (["ship"], 1)
    assert "rebuiltTypes" not in project.ok("maad_reindex")


# Reload


def test_a_reload_tells_what_is_different_now(open_project: Any) -> None:
    project = open_project()
    project.ok("maad_create", docType="ship", fields={"name": "Ada"})
    nothing = {
        "reloaded": True, "registeredTypes": 2, "typesAdded": [], "typesRemoved": [],
        "schemasChanged": [], "indexStaleTypes": [],
    }  # fmt: skip
    project.ok("maad_reindex")
    assert project.ok("maad_reload") == nothing
    registry = project.root / "_registry/object_types.yaml"
    harbour = "  harbour: {path: harbours, id_prefix: hbr, schema: harbour.v1}\n"
    registry.write_text(registry.read_text().partition("  voyage:")[0] + harbour)
    (project.root / "_schema/harbour.v1.yaml").write_text(
        "type: harbour\nrequired: [doc_id]\nfields:\n  name: {type: string}\n"
    )
    schema = project.root / "_schema/ship.v1.yaml"
    schema.write_text(schema.read_text().replace("date, index: true", "date, index: false"))
    assert project.ok("maad_reload") == {
        "reloaded": True, "registeredTypes": 2, "typesAdded": ["harbour"],
        "typesRemoved": ["voyage"], "schemasChanged": ["harbour.v1", "ship.v1"],
        "indexStaleTypes": ["ship"],
    }  # fmt: skip
    project.ok("maad_create", docType="harbour", fields={"name": "North"})


def test_a_reload_that_fails_leaves_all_as_it_was(open_project: Any) -> None:
    project = open_project()
    project.ok("maad_create", docType="ship", fields={"name": "Ada"})
    registry = project.root / "_registry/object_types.yaml"
    good = registry.read_text()
    registry.write_text("types: [")
    error = project.error("maad_reload")
    assert error["code"] == "PARSE_ERROR"
    assert project.ok("maad_query", docType="ship")["total"] == 1
    assert project.ok("maad_describe")["registryTypes"][0]["type"] == "ship"
    assert registry.read_text() == "types: ["
    assert project.error("maad_create", docType="ship", fields={"name": "Bo"})["code"] == (
        "PARSE_ERROR"
    )
    registry.write_text(good)
    assert project.ok("maad_reload")["reloaded"] is True
    project.ok("maad_create", docType="ship", fields={"name": "Bo"})


def test_a_backup_looks_for_hand_edits_where_records_lie_today(open_project: Any) -> None:
    project = open_project()
    registry = project.root / "_registry/object_types.yaml"
    registry.write_text(registry.read_text().replace("path: voyages", "path: journeys"))
    project.git("commit", "-qam", "elsewhere")
    (project.root / "journeys").mkdir()
    (project.root / "journeys/by-hand.md").write_text("text\n")
    assert project.error("maad_backup")["details"]["reason"] == "worktree-dirty"


# Validate

STRICTER = """\
type: voyage
version: 1
required: [doc_id]
fields:
  begun: {type: date, store_precision: day, format: loose}
  ended: {type: date, store_precision: day, on_finer: warn, format: loose}
  exact: {type: date, store_precision: day, format: loose}
  line: {type: string, multiline: false, max_length: 5, soft_max_length: 3}
  brief: {type: string, soft_max_length: 3}
"""
LOOSE = """\
---
doc_id: voy-1
doc_type: voyage
schema: voyage.v1
begun: "2031-02"
ended: 2031-02-03T10:00:00Z
exact: 2031-02-03T10:00:00Z
line: "ab\\ncdef"
brief: abcd
---
"""


@pytest.fixture
def voyages(open_project: Any) -> Any:
    project = open_project()
    (project.root / "_schema/voyage.v1.yaml").write_text(STRICTER)
    (project.root / "voyages").mkdir()
    (project.root / "voyages/voy-1.md").write_text(LOOSE)
    write_ships(project, "shp-a", "shp-b", "shp-c")
    project.ok("maad_reindex")
    return project


def test_an_audit_lists_drift_and_constraints_only_when_asked(voyages: Any) -> None:
    plain = {"total": 4, "valid": 4, "invalid": 0, "errors": []}
    assert voyages.ok("maad_validate") == plain
    common = {"docId": "voy-1", "declared": "day"}
    assert voyages.ok("maad_validate", includePrecision=True) == plain | {
        "precisionDrift": [
            {**common, "field": "begun", "actual": "month", "direction": "coarser"},
            {**common, "field": "ended", "actual": "second", "direction": "finer"},
        ]
    }
    line = {"docId": "voy-1", "field": "line"}
    assert voyages.ok("maad_validate", includeConstraints=True) == plain | {
        "constraintViolations": [
            {**line, "code": "FIELD_MULTILINE_NOT_ALLOWED", "actual": None, "limit": None,
             "severity": "error"},
            {**line, "code": "FIELD_MAX_LENGTH_EXCEEDED", "actual": 7, "limit": 5,
             "severity": "error"},
            {**line, "code": "FIELD_SOFT_MAX_LENGTH_EXCEEDED", "actual": 7, "limit": 3,
             "severity": "warning"},
            {"docId": "voy-1", "field": "brief", "code": "FIELD_SOFT_MAX_LENGTH_EXCEEDED",
             "actual": 4, "limit": 3, "severity": "warning"},
        ]
    }  # fmt: skip


def test_an_audit_pages_through_all_records(voyages: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maadd_worker.read.validate._PAGE", 2)
    assert voyages.ok("maad_validate")["total"] == 4


def test_a_record_of_a_type_that_is_gone_is_invalid(voyages: Any) -> None:
    registry = voyages.root / "_registry/object_types.yaml"
    registry.write_text(registry.read_text().partition("  voyage:")[0])
    voyages.ok("maad_reload")
    data = voyages.ok("maad_validate")
    assert (data["total"], data["invalid"]) == (4, 1)
    [found] = data["errors"]
    assert (found["docId"], [one["field"] for one in found["errors"]]) == ("voy-1", ["doc_type"])
    assert voyages.error("maad_validate", docId="voy-1")["code"] == "UNKNOWN_TYPE"


# Purges that cannot remove a file


def test_a_tombstone_that_cannot_be_removed_keeps_its_row(open_project: Any) -> None:
    project = open_project(purge_default_retention_days=0)
    for name in ("Ada", "Bo"):
        project.ok("maad_create", docType="ship", fields={"name": name})
        project.ok("maad_delete", docId=f"shp-{name.lower()}")
    project.engine._index.writer().connection.execute(
        "UPDATE documents SET updated_at = '2020-01-01T00:00:00.000Z' WHERE deleted = 1"
    )
    in_the_way = project.root / "ships/_deleted_shp-ada.md"
    in_the_way.unlink()
    in_the_way.mkdir()
    data = project.ok("maad_purge_soft_deleted", confirm=True)
    assert [one["docId"] for one in data["purged"]] == ["shp-bo"]
    [failed] = data["failed"]
    assert failed["docId"] == "shp-ada"
    assert failed["error"].startswith(f"{failed['code']}: ")
    assert project.ok("maad_purge_soft_deleted")["scanned"] == 1


@pytest.mark.parametrize("scope", [{"docId": "shp-b"}, {"docType": "ship"}, {"force": True}])
def test_a_record_whose_file_was_overwritten_with_another_is_let_go(
    open_project: Any, scope: dict[str, Any]
) -> None:
    project = open_project()
    write_ships(project, "shp-a", "shp-b")
    project.ok("maad_reindex")
    ships = project.root / "ships"
    (ships / "shp-b.md").write_bytes((ships / "shp-a.md").read_bytes())
    data = project.ok("maad_reindex", **scope)
    assert [error["code"] for error in data["errors"]] == ["DUPLICATE_DOC_ID"]
    assert data["pruned"] == 1
    assert [row["docId"] for row in project.ok("maad_query", docType="ship")["results"]] == [
        "shp-a"
    ]
    assert project.error("maad_get", docId="shp-b")["code"] == "FILE_NOT_FOUND"
