"""`maad_repair_where` (spec 03 §5.6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

SHIP_V2 = """\
type: ship
version: 2
required: [doc_id, name]
fields:
  name: {type: string, index: true}
  tonnage: {type: number, index: true}
  flag: {type: string, index: true, default: none}
  class: {type: string, default: plain}
"""


@pytest.fixture
def fleet(open_project: Any) -> Any:
    project = open_project()
    project.ok("maad_create", docType="ship", fields={"name": "Ada", "tonnage": 1})
    project.ok("maad_create", docType="ship", fields={"name": "Bo"})
    return project


def use_second_version(root: Path) -> None:
    registry = root / "_registry/object_types.yaml"
    registry.write_text(registry.read_text().replace("ship.v1", "ship.v2"))
    (root / "_schema/ship.v2.yaml").write_text(SHIP_V2)


def voyage(project: Any, doc_id: str, ship: str, stops: list[Any] | None = None) -> None:
    fields: dict[str, Any] = {"ship": ship}
    if stops is not None:
        fields["stops"] = stops
    project.ok("maad_create", docType="voyage", fields=fields, docId=doc_id)


def repair(project: Any, *types: str, confirm: bool = True, **more: Any) -> Any:
    args = {"docType": "voyage", "repairTypes": list(types), **more}
    return project.ok("maad_repair_where", confirm=confirm, **args)


class TestOrphanRefs:
    def test_refs_to_nothing_leave_lists_and_stay_elsewhere(self, fleet: Any) -> None:
        voyage(fleet, "voy-a", "shp-ada", ["shp-bo", "shp-gone", "shp-ada"])
        voyage(fleet, "voy-clean", "shp-ada", ["shp-bo"])
        fleet.catch_up()
        before = fleet.text("voyages/voy-a.md")
        data = repair(fleet, "prune_orphan_refs")
        assert data["succeeded"] == [
            {
                "docId": "voy-a",
                "docType": "voyage",
                "appliedRepairs": [{"strategy": "prune_orphan_refs", "changedFields": ["stops"]}],
            }
        ]
        assert (data["failed"], data["totalRequested"], data["unchanged"]) == ([], 2, 1)
        assert fleet.text("voyages/voy-a.md") == before.replace(
            "[shp-bo, shp-gone, shp-ada]", "[shp-bo, shp-ada]"
        )
        fleet.catch_up()
        assert fleet.git("log", "-1", "--format=%B").strip() == (
            "maad:update voy-a [voyage] repair:prune_orphan_refs:1 — "
            "1 record repaired (prune_orphan_refs)\n\n"
            "Maad-Write: update voy-a [voyage] repair:prune_orphan_refs"
        )
        assert fleet.ok("maad_get", docId="voy-a")["version"] == 2

    def test_an_optional_ref_becomes_null(self, fleet: Any, project: Path) -> None:
        schema = (project / "_schema/voyage.v1.yaml").read_text()
        (project / "_schema/voyage.v1.yaml").write_text(
            schema.replace("required: [doc_id, ship]", "required: [doc_id]")
        )
        voyage(fleet, "voy-a", "shp-gone")
        assert len(repair(fleet, "prune_orphan_refs")["succeeded"]) == 1
        assert "ship: null" in fleet.text("voyages/voy-a.md")

    def test_a_required_ref_keeps_its_file_untouched(self, fleet: Any) -> None:
        voyage(fleet, "voy-a", "shp-gone", ["shp-gone"])
        before = fleet.text("voyages/voy-a.md")
        data = repair(fleet, "prune_orphan_refs")
        assert data["succeeded"] == []
        [failed] = data["failed"]
        assert (failed["docId"], failed["strategy"], failed["code"]) == (
            "voy-a",
            "prune_orphan_refs",
            "VALIDATION_FAILED",
        )
        assert fleet.text("voyages/voy-a.md") == before

    def test_a_tombstone_is_no_live_target(self, fleet: Any) -> None:
        voyage(fleet, "voy-a", "shp-ada", ["shp-bo"])
        fleet.ok("maad_delete", docId="shp-bo")
        assert len(repair(fleet, "prune_orphan_refs")["succeeded"]) == 1
        assert "stops: []" in fleet.text("voyages/voy-a.md")

    def test_list_items_that_are_no_refs_are_kept_and_told(self, fleet: Any) -> None:
        path = fleet.root / "voyages"
        path.mkdir()
        (path / "voy-a.md").write_text(
            "---\ndoc_id: voy-a\ndoc_type: voyage\nschema: voyage.v1\nship: shp-ada\n"
            "stops: [7, shp-ada]\n---\n"
        )
        fleet.ok("maad_reindex")
        reply = fleet.reply(
            "maad_repair_where", docType="voyage", repairTypes=["prune_orphan_refs"], confirm=True
        )
        assert [one["field"] for one in reply.meta["warnings"]] == ["voy-a.stops"]
        assert "[7, shp-ada]" in fleet.text("voyages/voy-a.md")


class TestSchemaDrift:
    def drifted(self, fleet: Any) -> None:
        fleet.ok("maad_update", docId="shp-ada", fields={"tags": ["x"], "colour": "red"})
        use_second_version(fleet.root)

    def run(self, fleet: Any, *types: str, confirm: bool = True, **more: Any) -> Any:
        args = {"docType": "ship", "repairTypes": list(types or ("fix_schema_drift",)), **more}
        return fleet.ok("maad_repair_where", confirm=confirm, **args)

    def test_a_record_comes_to_the_present_schema(self, fleet: Any) -> None:
        self.drifted(fleet)
        data = self.run(fleet)
        changed = {one["docId"]: one["appliedRepairs"][0] for one in data["succeeded"]}
        assert changed["shp-ada"] == {
            "strategy": "fix_schema_drift",
            "changedFields": ["tags", "colour", "flag", "class", "schema"],
        }
        assert changed["shp-bo"]["changedFields"] == ["flag", "class", "schema"]
        assert fleet.text("ships/shp-ada.md").startswith(
            "---\ndoc_id: shp-ada\ndoc_type: ship\nschema: ship.v2\nname: Ada\ntonnage: 1\n"
            "flag: none\nclass: plain\n---\n"
        )
        again = self.run(fleet)
        assert (again["succeeded"], again["unchanged"]) == ([], 2)
        updated = fleet.reply("maad_update", docId="shp-ada", fields={"tonnage": 2})
        assert "warnings" not in updated.meta

    def test_drift_is_seen_in_the_file_after_a_forced_reindex(self, fleet: Any) -> None:
        self.drifted(fleet)
        fleet.ok("maad_reindex", force=True)
        assert len(self.run(fleet)["succeeded"]) == 2

    def test_a_value_of_another_shape_is_never_coerced(self, fleet: Any) -> None:
        self.drifted(fleet)
        path = fleet.root / "ships/shp-ada.md"
        path.write_text(path.read_text().replace("tonnage: 1", "tonnage: heavy"))
        fleet.ok("maad_reindex")
        before = fleet.text("ships/shp-ada.md")
        data = self.run(fleet)
        assert [one["docId"] for one in data["succeeded"]] == ["shp-bo"]
        [failed] = data["failed"]
        assert (failed["docId"], failed["code"]) == ("shp-ada", "REPAIR_REQUIRES_MIGRATION")
        assert "tonnage" in failed["message"]
        assert fleet.text("ships/shp-ada.md") == before

    def test_one_failed_repair_does_not_stop_the_next(self, fleet: Any) -> None:
        (fleet.root / "voyages").mkdir()
        (fleet.root / "voyages/voy-a.md").write_text(
            "---\ndoc_id: voy-a\ndoc_type: voyage\nschema: voyage.v0\nship: shp-gone\n"
            "stops: shp-ada\n---\n"
        )
        fleet.ok("maad_reindex")
        data = repair(fleet, "fix_schema_drift", "prune_orphan_refs")
        assert [(one["strategy"], one["code"]) for one in data["failed"]] == [
            ("fix_schema_drift", "REPAIR_REQUIRES_MIGRATION"),
            ("prune_orphan_refs", "VALIDATION_FAILED"),
        ]

    def test_an_unreadable_record_fails_once_per_repair(self, fleet: Any) -> None:
        self.drifted(fleet)
        (fleet.root / "ships/shp-bo.md").write_text("---\nname: [\n---\n")
        data = self.run(fleet, "prune_orphan_refs", "fix_schema_drift")
        assert [(one["docId"], one["strategy"], one["code"]) for one in data["failed"]] == [
            ("shp-bo", "prune_orphan_refs", "FILE_READ_ERROR"),
            ("shp-bo", "fix_schema_drift", "FILE_READ_ERROR"),
        ]
        assert [one["docId"] for one in data["succeeded"]] == ["shp-ada"]

    def test_another_identity_on_disk_asks_for_a_migration(self, fleet: Any) -> None:
        self.drifted(fleet)
        path = fleet.root / "ships/shp-bo.md"
        path.write_text(path.read_text().replace("doc_type: ship", "doc_type: boat"))
        [failed] = self.run(fleet)["failed"]
        assert failed["code"] == "REPAIR_REQUIRES_MIGRATION"
        assert "doc_type: boat" in path.read_text()


def test_a_preview_runs_the_repairs_and_touches_nothing(fleet: Any) -> None:
    voyage(fleet, "voy-a", "shp-ada", ["shp-gone"])
    voyage(fleet, "voy-b", "shp-gone")
    voyage(fleet, "voy-c", "shp-ada")
    fleet.catch_up()
    before = {path: path.read_bytes() for path in (fleet.root / "voyages").iterdir()}
    data = repair(fleet, "prune_orphan_refs", confirm=False)
    assert data["totalAffected"] == 3
    assert data["affected"][0] == {"docId": "voy-a", "docType": "voyage"}
    assert (data["docType"], data["repairTypes"]) == ("voyage", ["prune_orphan_refs"])
    assert data["changes"][0] == {
        "docId": "voy-a",
        "appliedRepairs": [{"strategy": "prune_orphan_refs", "changedFields": ["stops"]}],
        "failures": [],
    }
    assert data["changes"][1]["docId"] == "voy-b"
    assert data["changes"][1]["failures"][0]["code"] == "VALIDATION_FAILED"
    assert data["unchanged"] == 1
    assert {path: path.read_bytes() for path in (fleet.root / "voyages").iterdir()} == before
    done = repair(fleet, "prune_orphan_refs", expectPreview=data["previewToken"])
    assert [one["docId"] for one in done["succeeded"]] == ["voy-a"]


def test_a_preview_takes_no_edit_over(fleet: Any) -> None:
    voyage(fleet, "voy-a", "shp-ada", ["shp-gone"])
    path = fleet.root / "voyages/voy-a.md"
    path.write_text(path.read_text() + "More\n")
    repair(fleet, "prune_orphan_refs", confirm=False)
    assert fleet.ok("maad_get", docId="voy-a")["version"] == 1
    [failed] = repair(fleet, "prune_orphan_refs")["failed"]
    assert failed["code"] == "VERSION_CONFLICT"
    assert len(repair(fleet, "prune_orphan_refs")["succeeded"]) == 1
    assert path.read_text().endswith("More\n")


def test_filters_narrow_the_scope(fleet: Any) -> None:
    voyage(fleet, "voy-a", "shp-ada", ["shp-gone"])
    voyage(fleet, "voy-b", "shp-bo", ["shp-gone"])
    data = repair(fleet, "prune_orphan_refs", filters={"ship": "shp-bo"})
    assert [one["docId"] for one in data["succeeded"]] == ["voy-b"]
    error = fleet.error(
        "maad_repair_where", docType="voyage", repairTypes=["prune_orphan_refs"], maxRecords=1
    )
    assert error["code"] == "BULK_LIMIT_EXCEEDED"


def test_a_record_that_cannot_be_indexed_keeps_its_bytes(fleet: Any) -> None:
    voyage(fleet, "voy-a", "shp-ada", ["shp-gone"])
    before = fleet.text("voyages/voy-a.md")
    fleet.index_trigger(
        "BEFORE UPDATE ON documents WHEN new.doc_id = 'voy-a' BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    [failed] = repair(fleet, "prune_orphan_refs")["failed"]
    assert (failed["strategy"], failed["code"]) == ("prune_orphan_refs", "INDEX_FAILED")
    assert fleet.text("voyages/voy-a.md") == before
