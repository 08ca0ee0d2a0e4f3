"""What a start makes, what it refuses, and what stays inside the project (spec 01 §1, §16)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maadd.protocol.errors import MaadError, MaadErrors

SHIP = "---\ndoc_id: shp-a\ndoc_type: ship\nschema: ship.v1\nname: Ada\n---\n"


def tree(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_a_start_makes_what_is_missing_and_no_folder_of_a_type(
    tmp_path: Path, engine_class: Any
) -> None:
    empty = engine_class(tmp_path, "feed")
    assert (tmp_path / "_registry/object_types.yaml").read_text() == "types: {}\n"
    assert (tmp_path / "_schema").is_dir()
    assert empty.ok("maad_summary")["emptyProject"] is True
    empty.close()


def test_the_folder_of_a_type_is_made_by_its_first_record(open_project: Any) -> None:
    project = open_project("feed")
    assert not (project.root / "ships").exists()
    project.ok("maad_create", docType="ship", fields={"name": "Ada"})
    assert (project.root / "ships").is_dir()
    assert not (project.root / "voyages").exists()


def _registry(root: Path) -> None:
    (root / "_registry/object_types.yaml").unlink()


def _schemas(root: Path) -> None:
    (root / "_registry/object_types.yaml").write_text("types: {}\n")
    shutil.rmtree(root / "_schema")


LOSSES: dict[str, Callable[[Path], None]] = {
    "_backend/": lambda root: shutil.rmtree(root / "_backend"),
    "_registry/object_types.yaml": _registry,
    "_schema/": _schemas,
    "the index": lambda root: (root / "_backend/maad.db").unlink(),
}


@pytest.mark.parametrize("missing", LOSSES)
def test_a_read_only_start_names_what_it_would_have_to_make_and_makes_nothing(
    open_project: Any, engine_class: Any, missing: str
) -> None:
    project = open_project("feed")
    root = project.root
    project.close()
    LOSSES[missing](root)
    before = tree(root)
    with pytest.raises(MaadError) as refused:
        engine_class(root, "read")
    assert refused.value.code == "READ_ONLY"
    assert missing in refused.value.message
    assert tree(root) == before


@pytest.mark.parametrize("mode", ["feed", "read"])
def test_an_index_that_lost_everything_refuses_whatever_it_would_answer_wrongly(
    open_project: Any, project: Path, mode: str
) -> None:
    open_project("feed").close()
    (project / "ships").mkdir()
    (project / "ships/shp-a.md").write_text(SHIP)
    opened = open_project(mode)
    for tool, args in GUARDED:
        error = opened.error(tool, **args)
        assert (tool, error["code"]) == (tool, "INDEX_EMPTY")
        assert error["details"] == {"onDiskMarkdownFiles": 1}
        assert ("cannot rebuild" in error["message"]) is (mode == "read")
    assert opened.ok("maad_health")["initialized"] is True
    if mode == "feed":
        assert opened.ok("maad_reindex")["indexed"] == 1
        assert opened.ok("maad_summary")["totalDocuments"] == 1


GUARDED: list[tuple[str, dict[str, Any]]] = [
    ("maad_summary", {}),
    ("maad_describe", {}),
    ("maad_schema", {"docType": "ship"}),
    ("maad_scan", {"path": "."}),
    ("maad_get", {"docId": "shp-a"}),
    ("maad_query", {"docType": "ship"}),
    ("maad_changes_since", {}),
    ("maad_verify", {"mode": "integrity"}),
    ("maad_history", {"docId": "shp-a"}),
    ("maad_create", {"docType": "ship", "fields": {"name": "Bo"}}),
    ("maad_backup", {"mode": "list"}),
    ("maad_flush", {}),
    ("maad_reload", {}),
]


def test_a_schema_of_another_name_costs_its_type_alone(open_project: Any, project: Path) -> None:
    schema = project / "_schema/voyage.v1.yaml"
    schema.write_text(schema.read_text().replace("type: voyage", "type: trip"))
    opened = open_project("feed")
    assert {"SCHEMA_TYPE_MISMATCH", "voyage"} <= {
        value for one in opened.ok("maad_health")["advisories"] for value in one.values()
    }
    error = opened.error("maad_create", docType="voyage", fields={"ship": "shp-a"})
    assert error["code"] == "SCHEMA_NOT_FOUND"
    assert "trip" in error["message"]
    assert opened.ok("maad_create", docType="ship", fields={"name": "Ada"})["version"] == 1


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("maad_create", {"docType": "ship", "fields": {"name": "Bo"}}),
    ("maad_update", {"docId": "shp-a", "fields": {"name": "Bo"}}),
    ("maad_delete", {"docId": "shp-a"}),
    ("maad_delete", {"docId": "shp-a", "mode": "hard"}),
    ("maad_verify", {"mode": "field", "docId": "shp-a", "field": "name", "expected": "Ada"}),
]


def test_nothing_reaches_through_a_type_folder_that_leads_outside(
    open_project: Any, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "ships"
    (project / "ships").mkdir()
    (project / "ships/shp-a.md").write_text(SHIP)
    opened = open_project("feed")
    opened.ok("maad_reindex")
    (project / "ships").rename(outside)
    (project / "ships").symlink_to(outside)
    for tool, args in CALLS:
        assert opened.error(tool, **args)["code"] == "PATH_OUTSIDE_PROJECT", (tool, args)
    report = opened.ok("maad_reindex", force=True)
    assert report["indexed"] == 0
    assert any("not pruned" in warning for warning in report["warnings"])
    assert tree(outside) == {"shp-a.md": SHIP.encode()}


def test_a_record_that_is_a_link_to_the_outside_is_dropped_with_a_warning(
    open_project: Any, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    secret = tmp_path_factory.mktemp("outside") / "secret.md"
    secret.write_text(SHIP)
    (project / "ships").mkdir()
    (project / "ships/shp-a.md").symlink_to(secret)
    (project / "ships/shp-b.md").write_text(SHIP.replace("shp-a", "shp-b"))
    opened = open_project("feed")
    report = opened.ok("maad_reindex")
    assert report["indexed"] == 1
    assert any("ships/shp-a.md" in warning for warning in report["warnings"])
    assert opened.error("maad_get", docId="shp-a")["code"] == "FILE_NOT_FOUND"


def test_a_narrowed_reindex_looks_only_at_what_a_whole_one_comes_to(
    open_project: Any, project: Path
) -> None:
    registry = project / "_registry/object_types.yaml"
    registry.write_text(registry.read_text().replace("path: ships", "path: fleet/ships"))
    for folder in ("fleet", "fleet/ships/deep", "_import"):
        (project / folder).mkdir(parents=True)
        doc_id = f"shp-{folder.replace('/', '-').strip('_')}"
        (project / folder / "x.md").write_text(SHIP.replace("shp-a", doc_id))
    (project / "fleet/ships/link").symlink_to("deep")
    opened = open_project("feed")
    assert opened.ok("maad_reindex")["indexed"] == 1
    for path in ("fleet", "fleet/", "fleet/ships/deep", "fleet/ships/deep/x.md"):
        assert opened.ok("maad_reindex", path=path, force=True)["indexed"] == 1, path
    for path in ("fleet/x.md", "_import/x.md", "fleet/ships/link", "fleet/ships/link/x.md"):
        error = opened.error("maad_reindex", path=path)
        assert (error["code"], error["details"]) == ("INVALID_FIELDS", {"field": "path"})
        assert "fleet/ships, voyages" in error["message"]
    assert opened.ok("maad_query", docType="ship")["total"] == 1
    report = opened.ok("maad_reindex", path="voyages")
    assert report["scanned"] == 0
    assert "voyages" in report["warnings"][0]


def test_a_narrowed_reindex_flags_a_file_that_outgrew_the_cap_and_misses_none(
    open_project: Any,
) -> None:
    project = open_project("feed", max_doc_bytes=400)
    for doc_id in ("shp-a", "shp-b"):
        project.ok("maad_create", docType="ship", docId=doc_id, fields={"name": "Ada"}, body="x")
    file = project.root / "ships/shp-a.md"
    small = file.read_text()
    file.write_text(small + "y" * 500)
    assert project.ok("maad_reindex", docId="shp-a")["errors"][0]["code"] == "DOC_TOO_LARGE"
    assert project.ok("maad_summary")["warnings"]["partialDocs"] == 1
    assert project.ok("maad_query", docType="ship")["total"] == 2
    file.write_text(small)
    assert project.ok("maad_reindex", docType="ship") == {
        "scanned": 2, "indexed": 1, "skipped": 1, "errors": [],
    }  # fmt: skip
    assert project.ok("maad_summary")["warnings"]["partialDocs"] == 0
    file.unlink()
    [error] = project.ok("maad_reindex", docId="shp-a")["errors"]
    assert (error["code"], error["details"]["file"]) == ("FILE_READ_ERROR", "ships/shp-a.md")


def test_a_sweep_is_remembered_for_health(open_project: Any) -> None:
    project = open_project("feed")
    created = project.ok("maad_create", docType="ship", fields={"name": "Ada"})
    with (project.root / created["filePath"]).open("a") as file:
        file.write("\nby hand\n")
    swept = project.ok("maad_verify", mode="integrity")
    project.settle()
    health = project.ok("maad_health")
    assert health["lastIntegritySweepAt"] == swept["completedAt"]
    assert health["lastIntegrityFindings"]["hash_drift"] == 1


def test_a_read_only_engine_serves_sweeps_and_keeps_nothing(
    open_project: Any, engine_class: Any
) -> None:
    project = open_project("feed")
    project.ok("maad_create", docType="ship", fields={"name": "Ada"})
    project.close()
    before = tree(project.root)
    reading = engine_class(project.root, "read")
    assert reading.ok("maad_verify", mode="integrity")["healthy"] == 1
    assert reading.ok("maad_summary")["readOnly"] is True
    reading.settle()
    reading.close()
    assert tree(project.root) == before


def test_reading_records_in_changes_no_file(open_project: Any, project: Path) -> None:
    (project / "ships").mkdir()
    odd = {
        "a.md": "---\ndoc_id: shp-a\ndoc_type: ship\nname: 'A'   # kept\n---\nno newline",
        "b.md": "\ufeff---\r\nname:   B\r\ndoc_type: ship\r\ndoc_id: shp-b\r\n---\r\n\r\n\r\n",
        "c.md": "---\nname: [broken\n---\n",
    }
    for name, text in odd.items():
        (project / "ships" / name).write_bytes(text.encode())
    opened = open_project("feed")
    before = tree(project / "ships")
    for force in (False, True):
        opened.ok("maad_reindex", force=force)
    opened.ok("maad_verify", mode="integrity")
    assert tree(project / "ships") == before
    assert opened.ok("maad_summary")["totalDocuments"] == 2


@pytest.mark.parametrize("broken", ["_registry/object_types.yaml", "_schema/ship.v1.yaml"])
def test_a_start_that_fails_gives_everything_back(
    open_project: Any, project: Path, engine_class: Any, broken: str
) -> None:
    open_project("feed").close()
    good = (project / broken).read_text()
    (project / broken).write_text("types: [\n")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(MaadErrors) as refused:
            engine_class(project, "feed")
        assert {error.code for error in refused.value.errors} == {"PARSE_ERROR"}
    assert len(os.listdir("/proc/self/fd")) == before
    (project / broken).write_text(good)
    assert open_project("feed").ok("maad_summary")["emptyProject"] is False


def test_a_reload_that_fails_leaves_what_was_there_serving(
    open_project: Any, project: Path
) -> None:
    opened = open_project("feed")
    opened.ok("maad_create", docType="ship", docId="shp-a", fields={"name": "Ada"})
    registry = project / "_registry/object_types.yaml"
    good = registry.read_text()
    registry.write_text(good.replace("id_prefix: voy", "id_prefix: shp"))
    assert opened.error("maad_reload")["code"] == "DUPLICATE_PREFIX"
    assert opened.ok("maad_query", docType="ship")["total"] == 1
    assert opened.ok("maad_describe")["registryTypes"][1]["idPrefix"] == "voy"
    registry.write_text(good)
    assert opened.ok("maad_reload")["registeredTypes"] == 2


SURVIVORS = [
    "src/routes/[itemId]/route.ts", "src/a,b.ts", "a[b", "a]b", "a{b", "a}b", "a:b", "a: b",
    "a # b", "", " ", " padded ", "\t", "a\tb", "a\nb", "a\rb", "a\r\nb", "src\\[item]\\file.ts",
    "says \"hi\", then 'bye'", "true", "false", "null", "007", "-42", "3.5", "a\u2028b", "a\x85b",
]  # fmt: skip
MIXED = [True, False, None, 7, -42, 3.5, "true", "007", "null", [],
         ["a,b", "x[y]", "", False, 0, None]]  # fmt: skip


def test_values_survive_create_update_reindex_and_reopen_with_their_types(
    open_project: Any,
) -> None:
    project = open_project("feed")
    extras = {f"text{number}": text for number, text in enumerate(SURVIVORS)}
    extras |= {"mixed": MIXED, "map": {"a": 1, "b": [1.5, "x: y"]}}
    project.ok(
        "maad_create",
        docType="ship",
        docId="shp-a",
        fields={"name": "Ada", "tags": SURVIVORS, **extras},
    )

    def stored() -> Any:
        frontmatter = project.ok("maad_get", docId="shp-a")["frontmatter"]
        return repr({name: frontmatter[name] for name in ("tags", *extras)})

    wanted = repr({"tags": SURVIVORS, **extras})
    assert stored() == wanted
    project.ok("maad_update", docId="shp-a", fields={"tonnage": 5})
    written = project.text("ships/shp-a.md")
    assert stored() == wanted
    project.ok("maad_reindex", force=True)
    project.reopen()
    assert stored() == wanted
    project.ok("maad_update", docId="shp-a", fields={"tonnage": 5, **extras})
    assert project.text("ships/shp-a.md") == written
    assert project.ok("maad_get", docId="shp-a")["version"] == 2
