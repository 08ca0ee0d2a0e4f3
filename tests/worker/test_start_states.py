"""What an engine makes, refuses and reports when it opens a project (spec 03 §7.1, §7.6, §9.6)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from maadd.protocol.errors import MaadError


def tree(root: Path) -> dict[str, tuple[int, bytes | None]]:
    return {
        str(path.relative_to(root)): (
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else None,
        )
        for path in root.rglob("*")
    }


def test_an_empty_folder_becomes_an_empty_project_and_no_repository(
    tmp_path: Path, engine_class: Any
) -> None:
    project = engine_class(tmp_path, "feed")
    assert {path.name for path in tmp_path.iterdir()} == {"_backend", "_registry", "_schema"}
    assert (tmp_path / "_registry/object_types.yaml").read_text() == "types: {}\n"
    health = project.ok("maad_health")
    assert (health["emptyProject"], health["bootstrapHint"]) == (
        True, "_skills/architect-core.md",
    )  # fmt: skip
    assert (health["totalDocuments"], health["registeredTypes"]) == (0, 0)
    assert (health["indexExists"], health["lastIndexedAt"]) == (False, None)
    assert (health["gitAvailable"], health["gitClean"], health["repoSizeBytes"]) == (
        False, None, None,
    )  # fmt: skip
    project.close()


@pytest.mark.parametrize("mode", ["audit", "batch", "snapshot"])
def test_a_mode_that_commits_makes_no_repository_either(
    tmp_path: Path, engine_class: Any, mode: str
) -> None:
    with pytest.raises(MaadError) as refused:
        engine_class(tmp_path, mode)
    assert refused.value.code == "GIT_NOT_INITIALIZED"
    assert refused.value.details == {"historyMode": mode, "modeSource": "project"}
    assert not (tmp_path / ".git").exists()


@pytest.mark.parametrize("part", ["_registry", "_schema", "_backend", "_backend/maad.db"])
def test_reading_alone_needs_a_whole_project_and_makes_none(
    open_project: Any, project: Path, part: str
) -> None:
    open_project("feed").close()
    path = project / part
    if path.is_dir():
        shutil.rmtree(path)
    else:
        for file in path.parent.glob(f"{path.name}*"):
            file.unlink()
    before = tree(project)
    with pytest.raises(MaadError) as refused:
        open_project("read")
    assert refused.value.code == "READ_ONLY"
    assert tree(project) == before


def test_reading_alone_never_fills_an_index(open_project: Any, project: Path) -> None:
    open_project("feed").close()
    (project / "ships").mkdir()
    (project / "ships/shp-a.md").write_text(
        "---\ndoc_id: shp-a\ndoc_type: ship\nschema: ship.v1\nname: A\n---\n"
    )
    reader = open_project("read", boot_reindex=True)
    error = reader.error("maad_summary")
    assert (error["code"], error["details"]) == ("INDEX_EMPTY", {"onDiskMarkdownFiles": 1})
    assert reader.error("maad_reindex")["code"] == "PROJECT_READ_ONLY"
    assert reader.ok("maad_health")["totalDocuments"] == 0


def test_a_damaged_journal_keeps_the_project_closed_and_stays_as_it_is(
    open_project: Any, project: Path
) -> None:
    open_project("audit").close()
    journal = project / "_backend/journal.db"
    for file in journal.parent.glob("journal.db-*"):
        file.unlink()
    journal.write_bytes(b"not a database, but evidence" * 100)
    with pytest.raises(MaadError) as refused:
        open_project("audit")
    assert refused.value.code == "BACKEND_ERROR"
    assert journal.read_bytes() == b"not a database, but evidence" * 100


def test_a_second_engine_is_refused_and_told_of_the_first(open_project: Any) -> None:
    open_project("feed")
    with pytest.raises(MaadError) as refused:
        open_project("feed")
    assert refused.value.code == "PROJECT_LOCKED"


def test_a_lock_in_the_repository_stops_no_start(open_project: Any, project: Path) -> None:
    lock = project / ".git/index.lock"
    lock.write_text("theirs")
    opened = open_project("audit")
    assert opened.ok("maad_summary")["totalDocuments"] == 0
    assert opened.ok("maad_health")["recoveryActions"] == []
    assert lock.read_text() == "theirs"
