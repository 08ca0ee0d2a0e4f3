import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.disk.journal import (
    JOURNAL_PATH,
    REFERENCE_PATH,
    Journal,
    JournalEntry,
    begun_at_ms,
    new_entry_id,
)


def entry(entry_id: str, **changes: object) -> JournalEntry:
    fields: dict[str, object] = {
        "id": entry_id,
        "op": "create",
        "doc_id": "ven-northwind",
        "doc_type": "vendor",
        "path": "vendors/ven-northwind.md",
        "old_path": None,
        "temp_path": "vendors/ven-northwind.md.maad-tmp-1-x",
        "old_hash": None,
        "new_hash": "a" * 64,
        "status": "pending",
        "created_at": "2031-02-03T04:05:06.007Z",
        "commit": None,
    }
    return JournalEntry(**(fields | changes))


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path)


def test_a_missing_journal_is_empty(root):
    journal = Journal.open(root)
    assert journal.pending() == []
    assert journal.is_empty()
    journal.begin([entry("1")])
    assert not journal.is_empty()
    journal.complete(["1"])
    assert journal.is_empty()
    journal.close()


def test_a_boundary_is_kept_with_its_entries(root):
    journal = Journal.open(root)
    journal.begin([entry("1"), entry("2"), entry("3")])
    journal.set_boundary(["1", "3"], "ab" * 20, "maad-snapshot-x")
    journal.set_boundary(["2"], "cd" * 20, None)
    journal.close()
    reopened = Journal.open(root)
    assert [(found.boundary_sha, found.snapshot_tag) for found in reopened.pending()] == [
        ("ab" * 20, "maad-snapshot-x"),
        ("cd" * 20, None),
        ("ab" * 20, "maad-snapshot-x"),
    ]
    reopened.close()


def test_an_id_tells_when_its_entry_was_begun():
    before = time.time_ns() // 1_000_000
    begun = begun_at_ms(new_entry_id())
    assert begun is not None
    assert before <= begun <= time.time_ns() // 1_000_000
    assert begun_at_ms("1927857906007-abc123") == 1_927_857_906_007
    assert begun_at_ms("other") is None


def test_entries_come_back_in_the_order_of_their_begin(root):
    journal = Journal.open(root)
    journal.begin([entry("2"), entry("1", commit='{"a":1}')])
    journal.begin([entry("0", op="delete", old_path="vendors/x.md", temp_path=None)])
    assert [found.id for found in journal.pending()] == ["2", "1", "0"]
    assert journal.pending()[1] == entry("1", commit='{"a":1}')
    journal.close()
    reopened = Journal.open(root)
    reopened.begin([entry("3")])
    assert [found.id for found in reopened.pending()] == ["2", "1", "0", "3"]
    reopened.close()


def test_marking_and_completing(root):
    journal = Journal.open(root)
    journal.begin([entry("1"), entry("2"), entry("3")])
    journal.mark(["1", "2"], "file_written")
    journal.mark(["1"], "indexed")
    assert [found.status for found in journal.pending()] == ["indexed", "file_written", "pending"]
    journal.complete(["1", "3"])
    assert [found.id for found in journal.pending()] == ["2"]
    journal.complete(["2"])
    journal.complete([])
    journal.mark([], "indexed")
    assert journal.pending() == []
    journal.close()


def test_a_group_is_recorded_as_a_whole_or_not_at_all(root):
    journal = Journal.open(root)
    journal.begin([entry("1")])
    with pytest.raises(MaadError) as failure:
        journal.begin([entry("2"), entry("1")])
    assert failure.value.code == "BACKEND_ERROR"
    assert [found.id for found in journal.pending()] == ["1"]
    journal.close()


def test_what_was_begun_survives_a_kill(root):
    script = (
        "import os, signal, sys\n"
        "from maadd_worker.disk.journal import Journal, JournalEntry\n"
        "journal = Journal.open(sys.argv[1])\n"
        "rest = ('create', 'd', 't', 'p', None, None, None, None, 'pending', '', None)\n"
        "make = lambda name: JournalEntry(name, *rest)\n"
        "journal.begin([make('1'), make('2')])\n"
        "journal.mark(['1'], 'indexed')\n"
        "journal.complete(['2'])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    child = subprocess.run([sys.executable, "-c", script, root], check=False)
    assert child.returncode == -signal.SIGKILL
    journal = Journal.open(root)
    assert [(found.id, found.status) for found in journal.pending()] == [("1", "indexed")]
    journal.close()


def test_meta_values(root):
    journal = Journal.open(root)
    assert journal.meta_get("lock") is None
    journal.meta_set("lock", "a")
    journal.meta_set("lock", "b", durable=True)
    assert journal.meta_get("lock") == "b"
    journal.meta_set("lock", None)
    assert journal.meta_get("lock") is None
    journal.close()


def test_a_quiet_moment_folds_a_grown_log_back(root):
    journal = Journal.open(root)
    assert journal.checkpoint() is False
    for number in range(40):
        journal.begin([entry(str(number))])
        journal.complete([str(number)])
    log = os.path.getsize(os.path.join(root, JOURNAL_PATH + "-wal"))
    assert journal.checkpoint() is True
    assert journal.checkpoint() is False
    journal.begin([entry("last")])
    assert os.path.getsize(os.path.join(root, JOURNAL_PATH + "-wal")) == log
    assert [found.id for found in journal.pending()] == ["last"]
    journal.close()


def test_without_fsync_it_works_the_same(root):
    journal = Journal.open(root, fsync=False)
    journal.begin([entry("1")])
    journal.close()
    journal = Journal.open(root, fsync=False)
    assert [found.id for found in journal.pending()] == ["1"]
    journal.close()


def damage_head(path: Path) -> None:
    path.write_bytes(b"not a database at all, but long enough to be looked at" * 100)


def damage_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:8192] = b"\xff" * 4096
    path.write_bytes(data)


def foreign_tables(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE something (x)")


def newer_layout(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version=99")


@pytest.mark.parametrize("damage", [damage_head, damage_page, foreign_tables, newer_layout])
def test_a_damaged_journal_is_an_error_and_stays_as_it_is(tmp_path, damage):
    journal = Journal.open(str(tmp_path))
    journal.begin([entry("1")])
    journal.close()
    path = tmp_path / JOURNAL_PATH
    damage(path)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(MaadError) as failure:
            Journal.open(str(tmp_path))
        assert failure.value.code == "BACKEND_ERROR"
    assert path.read_bytes() == before


def reference_entry(root: Path, **changes: object) -> dict[str, object]:
    record = str(root / "vendors" / "ven-1.md")
    return {
        "id": "1700000000000-abc123",
        "op": "create",
        "docId": "ven-1",
        "filePath": record,
        "timestamp": "2031-02-03T04:05:06.007Z",
        "status": "indexed",
        "commit": {
            "action": "create",
            "docId": "ven-1",
            "docType": "vendor",
            "detail": "",
            "summary": "One",
            "files": [record],
            "identity": {"role": "writer", "tokenId": "tok-1"},
        },
    } | changes


def write_reference(root: Path, content: object) -> Path:
    path = root / REFERENCE_PATH
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content) if not isinstance(content, str) else content)
    return path


def test_the_journal_of_the_reference_is_taken_over_once(tmp_path):
    path = write_reference(tmp_path, [reference_entry(tmp_path)])
    journal = Journal.open(str(tmp_path))
    [found] = journal.pending()
    assert not path.exists()
    assert (found.path, found.doc_type, found.status) == ("vendors/ven-1.md", "vendor", "indexed")
    assert json.loads(found.commit or "") == {
        "action": "create",
        "docId": "ven-1",
        "docType": "vendor",
        "detail": "",
        "summary": "One",
        "paths": ["vendors/ven-1.md"],
        "identity": {"role": "writer", "tokenId": "tok-1"},
    }
    journal.close()


def test_a_boundary_of_the_reference_is_taken_over(tmp_path):
    given = {"gitBoundarySha": "ab" * 20, "snapshotTag": "maad-snapshot-x"}
    write_reference(tmp_path, [reference_entry(tmp_path, **given)])
    journal = Journal.open(str(tmp_path))
    [found] = journal.pending()
    assert (found.boundary_sha, found.snapshot_tag) == ("ab" * 20, "maad-snapshot-x")
    journal.close()


def test_an_interrupted_take_over_does_not_double_entries(tmp_path):
    for _ in range(2):
        write_reference(tmp_path, [reference_entry(tmp_path)])
        journal = Journal.open(str(tmp_path))
        assert len(journal.pending()) == 1
        journal.close()


def test_a_soft_delete_of_the_reference_keeps_both_paths(tmp_path):
    files = [str(tmp_path / "v" / "_deleted_a.md"), str(tmp_path / "v" / "a.md")]
    write_reference(
        tmp_path,
        [reference_entry(tmp_path, op="delete", filePath=files[1], files=files, commit=None)],
    )
    journal = Journal.open(str(tmp_path))
    [found] = journal.pending()
    assert (found.path, found.old_path) == ("v/_deleted_a.md", "v/a.md")
    assert (found.doc_type, found.commit) == ("unknown", None)
    journal.close()


@pytest.mark.parametrize(
    "content",
    ["{", "{}", "null", [1], [{"id": "1"}], "[] trailing"],
)
def test_a_malformed_reference_journal_is_kept(tmp_path, content):
    path = write_reference(tmp_path, content)
    before = path.read_bytes()
    with pytest.raises(MaadError) as failure:
        Journal.open(str(tmp_path))
    assert failure.value.code == "BACKEND_ERROR"
    assert path.read_bytes() == before


@pytest.mark.parametrize("changes", [{"op": "move"}, {"status": "done"}, {"filePath": "/etc/x"}])
def test_an_impossible_reference_entry_is_refused(tmp_path, changes):
    path = write_reference(tmp_path, [reference_entry(tmp_path, **changes)])
    with pytest.raises(MaadError):
        Journal.open(str(tmp_path))
    assert path.exists()


def test_ids_are_milliseconds_and_six_random_digits():
    ids = {new_entry_id() for _ in range(200)}
    assert len(ids) == 200
    head, _, tail = ids.pop().partition("-")
    assert head.isdigit()
    assert len(tail) == 6
