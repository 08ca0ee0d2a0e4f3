"""What a start makes of an interrupted write (spec 01 §15.1): the disk decides."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import Any

from maadd_worker.disk.journal import Journal, JournalEntry
from maadd_worker.history.outcome import CommitRequest, encode_request

OLD = b"---\ndoc_id: shp-one\ndoc_type: ship\nschema: ship.v1\nname: One\n---\n"
NEW = b"---\ndoc_id: shp-one\ndoc_type: ship\nschema: ship.v1\nname: Two\n---\n"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def interrupt(
    root: Path, op: str, path: str, old_path: str | None, old: bytes | None, new: bytes | None
) -> None:
    """Leave the journal as a process that died in the middle of a write would."""
    request = CommitRequest(
        op, "shp-one", "ship", "", "interrupted", tuple(p for p in (path, old_path) if p)
    )
    journal = Journal.open(str(root), fsync=False)
    journal.begin(
        [
            JournalEntry(
                id="1-aaaaaa",
                op=op,
                doc_id="shp-one",
                doc_type="ship",
                path=path,
                old_path=old_path,
                temp_path=None,
                old_hash=None if old is None else sha(old),
                new_hash=None if new is None else sha(new),
                status="pending",
                created_at="2031-02-03T04:05:06.789Z",
                commit=encode_request(request),
            )
        ]
    )
    journal.close()


def log(root: Path) -> list[str]:
    out = subprocess.run(
        ["git", "log", "--reverse", "--format=%s"], cwd=root, check=True, capture_output=True
    )
    return out.stdout.decode().splitlines()


def status(root: Path) -> str:
    out = subprocess.run(
        ["git", "status", "--porcelain"], cwd=root, check=True, capture_output=True
    )
    return out.stdout.decode()


def one_ship(open_project: Any) -> Path:
    project = open_project()
    project.ok("maad_create", docType="ship", fields={"name": "One"}, body="")
    project.settle()
    project.close()
    root: Path = project.root
    assert (root / "ships/shp-one.md").read_bytes() == OLD
    return root


def journal_is_empty(root: Path) -> bool:
    journal = Journal.open(str(root), fsync=False)
    try:
        return journal.pending() == []
    finally:
        journal.close()


def test_a_create_that_reached_the_disk_is_indexed_and_committed(open_project: Any) -> None:
    first = open_project()
    first.close()
    root: Path = first.root
    (root / "ships").mkdir()
    (root / "ships/shp-one.md").write_bytes(OLD)
    interrupt(root, "create", "ships/shp-one.md", None, None, OLD)
    project = open_project()
    assert project.ok("maad_get", docId="shp-one")["version"] == 1
    assert log(root)[-1] == "maad:create shp-one [ship] — interrupted"
    assert "write_indexed:create:shp-one" in project.engine.recovery_actions
    assert "history_recovery_completed:audit" in project.engine.recovery_actions
    project.settle()
    assert status(root) == ""
    project.close()
    assert journal_is_empty(root)


def test_a_create_that_never_reached_the_disk_is_forgotten(open_project: Any) -> None:
    first = open_project()
    first.close()
    interrupt(first.root, "create", "ships/shp-one.md", None, None, OLD)
    project = open_project()
    assert project.error("maad_get", docId="shp-one")["code"] == "FILE_NOT_FOUND"
    assert log(project.root) == ["fixture"]
    project.close()
    assert journal_is_empty(project.root)


def test_an_update_is_wholly_there_or_wholly_absent(open_project: Any) -> None:
    root = one_ship(open_project)
    interrupt(root, "update", "ships/shp-one.md", None, OLD, NEW)
    project = open_project()
    assert project.ok("maad_get", docId="shp-one")["version"] == 1
    project.close()
    assert journal_is_empty(root)
    (root / "ships/shp-one.md").write_bytes(NEW)
    interrupt(root, "update", "ships/shp-one.md", None, OLD, NEW)
    project = open_project()
    record = project.ok("maad_get", docId="shp-one")
    assert record["version"] == 2
    assert record["frontmatter"]["name"] == "Two"
    project.settle()
    assert len(log(root)) == 3
    assert status(root) == ""


def test_a_soft_delete_that_renamed_the_file_is_finished(open_project: Any) -> None:
    root = one_ship(open_project)
    tombstone = "ships/_deleted_shp-one.md"
    (root / "ships/shp-one.md").rename(root / tombstone)
    interrupt(root, "delete", tombstone, "ships/shp-one.md", OLD, None)
    project = open_project()
    assert project.error("maad_get", docId="shp-one")["code"] == "FILE_NOT_FOUND"
    assert "delete_finished:shp-one" in project.engine.recovery_actions
    project.settle()
    assert status(root) == ""


def test_a_hard_delete_that_removed_the_file_is_finished(open_project: Any) -> None:
    root = one_ship(open_project)
    (root / "ships/shp-one.md").unlink()
    interrupt(root, "delete", "ships/shp-one.md", None, OLD, None)
    project = open_project()
    assert project.ok("maad_summary")["totalDocuments"] == 0
    project.settle()
    assert status(root) == ""


def test_a_delete_that_changed_nothing_is_forgotten(open_project: Any) -> None:
    root = one_ship(open_project)
    interrupt(root, "delete", "ships/_deleted_shp-one.md", "ships/shp-one.md", OLD, None)
    project = open_project()
    assert project.ok("maad_get", docId="shp-one")["version"] == 1


def test_temporary_files_of_a_dead_process_are_removed(open_project: Any) -> None:
    root = one_ship(open_project)
    child = subprocess.Popen(["true"])
    child.wait()
    left = root / f"ships/shp-two.md.maad-tmp-{child.pid}-0f4c1d52-4d3a-4a7c-9a33-6d2f6f1c2b1a"
    left.write_bytes(b"half")
    project = open_project()
    assert not left.exists()
    assert any("temp_file_removed" in note for note in project.engine.recovery_actions)
