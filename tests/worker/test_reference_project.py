"""A project that the reference left behind opens unchanged, and keeps what its index knew
(spec 01 §1, §2, §12, §15.1; design §14)."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

# As the reference makes them (spec 01 §12), with the tables of its semantic index that need no
# extension.
LAYOUT = """
CREATE TABLE documents (
    doc_id TEXT PRIMARY KEY, doc_type TEXT NOT NULL, schema_ref TEXT NOT NULL,
    file_path TEXT NOT NULL UNIQUE, file_hash TEXT NOT NULL, version INTEGER NOT NULL DEFAULT 1,
    deleted INTEGER NOT NULL DEFAULT 0, indexed_at TEXT NOT NULL,
    updated_at TEXT NOT NULL DEFAULT '', created_at TEXT NOT NULL DEFAULT '',
    valid INTEGER NOT NULL DEFAULT 1, partial INTEGER NOT NULL DEFAULT 0);
CREATE INDEX idx_documents_type ON documents (doc_type);
CREATE TABLE objects (
    id INTEGER PRIMARY KEY AUTOINCREMENT, primitive TEXT NOT NULL, subtype TEXT NOT NULL,
    value TEXT NOT NULL, normalized_value TEXT, label TEXT NOT NULL, role TEXT,
    doc_id TEXT NOT NULL REFERENCES documents (doc_id) ON DELETE CASCADE,
    source_line INTEGER NOT NULL, block_id TEXT);
CREATE TABLE relationships (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    source_doc_id TEXT NOT NULL REFERENCES documents (doc_id) ON DELETE CASCADE,
    target_doc_id TEXT NOT NULL, field TEXT NOT NULL,
    relation_type TEXT NOT NULL CHECK (relation_type IN ('ref', 'mention')));
CREATE TABLE blocks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    doc_id TEXT NOT NULL REFERENCES documents (doc_id) ON DELETE CASCADE,
    block_id TEXT, heading TEXT NOT NULL, level INTEGER, start_line INTEGER, end_line INTEGER);
CREATE TABLE field_index (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    doc_id TEXT NOT NULL REFERENCES documents (doc_id) ON DELETE CASCADE,
    field_name TEXT NOT NULL, field_value TEXT, numeric_value REAL, field_type TEXT NOT NULL);
CREATE TABLE engine_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE VIRTUAL TABLE fts_blocks USING fts5 (text, heading, doc_id UNINDEXED, block_ord UNINDEXED);
"""

FILES = {
    "_registry/object_types.yaml": """\
---
# types of the yard
types:
  ship:
    path: ships/
    id_prefix: shp
    schema: ship.v1
    colour: blue
extraction:
  subtypes: {ticket: identifier}
owner: nobody
""",
    "_schema/ship.v1.yaml": """\
type: ship
version: 1
required: [doc_id, name]
fields:
  name: {type: string, index: true}
  tonnage: {type: number, index: true}
note: other keys are ignored
""",
    "ships/shp-a.md": "---\ndoc_id: shp-a\ndoc_type: ship\nschema: ship.v1\nname: Ada\n"
    'built: 2031-02-03\nmade: &x "2030"\nagain: *x\n---\n\n# Ada\n\nSee [[ticket:T-1|one]].\n',
    "ships/deep/shp-b.md": "\ufeff---\r\ndoc_id: shp-b\r\ndoc_type: ship\r\nschema: ship.v1\r\n"
    "name:   'Bo'   # short\r\ntonnage: 0x10\r\n---\r\n\r\nText\r\n",
    "ships/shp-c.md": "--- \ndoc_id: shp-c\ndoc_type: ship\nschema: ship.v1\nname: Cy\n---",
    "ships/_deleted_shp-d.md": "---\ndoc_id: shp-d\ndoc_type: ship\nschema: ship.v1\n"
    "name: D\n---\n",
    "MAAD.md": "by hand\n",
}
STAMPS = {
    "shp-a": (7, "2020-01-02T03:04:05.006Z", "2019-01-01T00:00:00.000Z"),
    "shp-b": (3, "2020-01-03T00:00:00.000Z", "2019-02-01T00:00:00.000Z"),
    "shp-d": (4, "2020-01-04T00:00:00.000Z", "2019-03-01T00:00:00.000Z"),
}
PATHS = {
    "shp-a": "ships/shp-a.md",
    "shp-b": "ships\\deep\\shp-b.md",
    "shp-d": "ships/_deleted_shp-d.md",
}


def content(path: str) -> bytes:
    return FILES[path.replace("\\", "/")].encode()


def write_index(path: Path, *, in_log: bool) -> None:
    """The reference's index of all records but one; `in_log` leaves the rows in the -wal file,
    as a process that was killed does."""
    made = path.with_name("made.db")
    connection = apsw.Connection(str(made))
    connection.pragma("journal_mode", "wal")
    connection.execute(LAYOUT)
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    for doc_id, (version, updated, created) in STAMPS.items():
        digest = hashlib.sha256(content(PATHS[doc_id])).hexdigest()
        connection.execute(
            "INSERT INTO documents VALUES (?, 'ship', 'ship.v1', ?, ?, ?, ?, ?, ?, ?, 1, 0)",
            (doc_id, PATHS[doc_id], digest, version, doc_id == "shp-d", updated, updated, created),
        )
    meta = {
        "schema_index_fp:ship": "57dc7eb1c9baf600",
        "last_integrity_sweep_at": "2020-05-05T00:00:00.000Z",
        "last_integrity_findings": '{"broken_refs":1}',
        "embed_dim": "8",
    }
    connection.executemany("INSERT INTO engine_meta VALUES (?, ?)", list(meta.items()))
    if not in_log:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    for suffix in ("", "-wal"):
        shutil.copy(f"{made}{suffix}", f"{path}{suffix}")
    connection.close()
    made.unlink()


@pytest.fixture
def left_behind(tmp_path: Path, project: Path) -> Path:
    """The project, as bytes: nothing of it was written by this engine."""
    for entry in ("_registry", "_schema"):
        shutil.rmtree(project / entry)
    for name, text in FILES.items():
        file = project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
    (project / "_backend").mkdir()
    return project


def unchanged(root: Path) -> bool:
    return all((root / name).read_bytes() == text.encode() for name, text in FILES.items())


@pytest.mark.parametrize("in_log", [False, True], ids=["in the file", "in the log"])
def test_versions_and_times_pass_over_and_no_file_changes(
    left_behind: Path, open_project: Any, in_log: bool
) -> None:
    write_index(left_behind / "_backend/maad.db", in_log=in_log)
    project = open_project("feed", boot_reindex=True)
    for doc_id in ("shp-a", "shp-b"):
        found = project.ok("maad_get", docId=doc_id)
        assert (found["version"], found["updatedAt"], found["createdAt"]) == STAMPS[doc_id]
    row = project.engine._index.writer().find("shp-d", include_deleted=True)
    assert (row.version, row.updated_at, row.created_at) == STAMPS["shp-d"]
    # The old index did not know it, so it is new.
    assert project.ok("maad_get", docId="shp-c")["version"] == 1
    assert project.ok("maad_get", docId="shp-a")["frontmatter"]["again"] == "2030"
    assert project.ok("maad_query", docType="ship", filters={"tonnage": 16})["total"] == 1
    assert project.ok("maad_search", primitive="identifier", subtype="ticket")["total"] == 1
    changes = project.ok("maad_changes_since")["changes"]
    assert [change["docId"] for change in changes] == ["shp-a", "shp-b", "shp-c"]
    health = project.ok("maad_health")
    assert health["lastIntegrityFindings"] == {"broken_refs": 1}
    assert "versionsReset" not in health
    assert unchanged(left_behind)
    project.settle()
    assert unchanged(left_behind)


def test_cursors_of_the_reference_go_on_where_they_stood(
    left_behind: Path, open_project: Any
) -> None:
    write_index(left_behind / "_backend/maad.db", in_log=False)
    project = open_project("feed", boot_reindex=True)
    # {"u":"2020-01-02T03:04:05.006Z","d":"shp-a"}
    cursor = "eyJ1IjoiMjAyMC0wMS0wMlQwMzowNDowNS4wMDZaIiwiZCI6InNocC1hIn0"
    changes = project.ok("maad_changes_since", cursor=cursor)["changes"]
    assert [change["docId"] for change in changes] == ["shp-b", "shp-c"]


def test_a_write_continues_the_old_version_and_keeps_the_hand_formatting(
    left_behind: Path, open_project: Any
) -> None:
    write_index(left_behind / "_backend/maad.db", in_log=False)
    project = open_project("feed", boot_reindex=True)
    done = project.ok(
        "maad_update", docId="shp-b", fields={"tonnage": 17}, expectedVersion=STAMPS["shp-b"][0]
    )
    assert done["version"] == STAMPS["shp-b"][0] + 1
    path = "ships/deep/shp-b.md"
    before = FILES[path].encode()
    assert (left_behind / path).read_bytes() == before.replace(b"0x10", b"17")


def test_without_a_boot_reindex_nothing_is_served_and_nothing_lost(
    left_behind: Path, open_project: Any
) -> None:
    write_index(left_behind / "_backend/maad.db", in_log=True)
    project = open_project("feed")
    assert project.error("maad_get", docId="shp-a")["code"] == "INDEX_EMPTY"
    project.reopen()
    project.ok("maad_reindex")
    assert project.ok("maad_get", docId="shp-a")["version"] == STAMPS["shp-a"][0]


def test_a_rebuild_that_was_cut_short_goes_on_with_the_old_versions(
    left_behind: Path, open_project: Any
) -> None:
    write_index(left_behind / "_backend/maad.db", in_log=False)
    project = open_project("feed")
    project.close()
    # Whatever was made of it since is lost too.
    for file in (left_behind / "_backend").glob("maad.db*"):
        if ".prev" not in file.name:
            file.unlink()
    project.reopen()
    project.ok("maad_reindex")
    found = project.ok("maad_get", docId="shp-a")
    assert (found["version"], found["updatedAt"], found["createdAt"]) == STAMPS["shp-a"]


def test_a_read_only_engine_leaves_the_old_index_alone(
    left_behind: Path, open_project: Any
) -> None:
    index = left_behind / "_backend/maad.db"
    write_index(index, in_log=False)
    before = index.read_bytes()
    with pytest.raises(Exception, match="another layout") as refused:
        open_project("read")
    assert refused.value.code == "READ_ONLY"
    assert index.read_bytes() == before
    assert sorted(file.name for file in index.parent.iterdir()) == ["maad.db", "maad.db-wal"]


def test_what_waits_in_the_old_journal_is_finished(left_behind: Path, open_project: Any) -> None:
    write_index(left_behind / "_backend/maad.db", in_log=False)
    record = left_behind / "ships/shp-a.md"
    entry = {
        "id": "1900000000000-abc123", "op": "update", "docId": "shp-a",
        "filePath": str(record), "timestamp": "2020-01-02T03:04:05.006Z", "status": "indexed",
        "commit": {
            "action": "update", "docId": "shp-a", "docType": "ship", "detail": "fields:name",
            "summary": "name: Ada", "files": [str(record)],
        },
    }  # fmt: skip
    journal = left_behind / "_backend/journal.json"
    journal.write_text(json.dumps([entry]))
    project = open_project("audit", boot_reindex=True)
    project.settle()
    assert not journal.exists()
    subjects = project.git("log", "--format=%s").splitlines()
    assert "maad:recovery" in subjects[0] or "shp-a" in subjects[0]
    assert project.git("show", "HEAD:ships/shp-a.md") == FILES["ships/shp-a.md"]
    assert unchanged(left_behind)
    assert project.ok("maad_get", docId="shp-a")["version"] == STAMPS["shp-a"][0]
