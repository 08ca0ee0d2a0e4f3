"""Opening, rebuilding and reading the index file (spec 01 §1, §12)."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import apsw
import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.disk import log_room
from maadd_worker.index import writer as writer_module
from maadd_worker.index.layout import LAYOUT_VERSION
from maadd_worker.index.rebuilt import EPOCH_KEY
from maadd_worker.index.stamps import VERSIONS_RESET_KEY
from maadd_worker.index.store import Index

REFERENCE_LAYOUT = """
CREATE TABLE documents (
    doc_id TEXT PRIMARY KEY, doc_type TEXT NOT NULL, schema_ref TEXT NOT NULL,
    file_path TEXT NOT NULL UNIQUE, file_hash TEXT NOT NULL, version INTEGER NOT NULL DEFAULT 1,
    deleted INTEGER NOT NULL DEFAULT 0, indexed_at TEXT NOT NULL{extra}
)
"""


def make_foreign(path: str, rows, extra: str = "") -> None:
    connection = apsw.Connection(path)
    connection.execute(REFERENCE_LAYOUT.format(extra=extra))
    marks = ", ".join("?" * len(rows[0]))
    connection.executemany(f"INSERT INTO documents VALUES ({marks})", rows)
    connection.close()


def replace_index(project, make) -> None:
    """Put another file in place of the project's index and open it."""
    project.index.close()
    for suffix in ("", "-wal", "-shm"):
        if os.path.exists(project.index_path + suffix):
            os.unlink(project.index_path + suffix)
    make()
    project.index = project.open_index()


def test_a_new_index_has_the_pragmas_and_a_layout_number(project):
    pragma = project.writer.connection.pragma
    assert pragma("journal_mode") == "wal"
    assert pragma("synchronous") == 1
    assert pragma("foreign_keys") == 1
    assert pragma("user_version") == LAYOUT_VERSION
    assert project.index.created is True
    project.reopen()
    assert project.index.created is False


def test_reopening_keeps_records_and_epoch(project):
    row = project.index_file(project.task("tsk-a")).row
    epoch = project.writer.meta_get(EPOCH_KEY)
    project.reopen()
    assert project.writer.find("tsk-a") == row
    assert project.writer.meta_get(EPOCH_KEY) == epoch


@pytest.mark.parametrize("version", [0, LAYOUT_VERSION + 1])
def test_another_layout_is_rebuilt_and_hands_its_versions_over(project, clock, version):
    for name in ("a", "b", "c"):
        project.index_file(project.task(f"tsk-{name}"))
        clock.advance()
    project.index_file(project.task("tsk-b", state="done"))
    old = {name: project.writer.find(f"tsk-{name}") for name in "abc"}
    epoch = project.writer.meta_get(EPOCH_KEY)
    project.writer.connection.pragma("user_version", version)
    clock.advance(3600)
    project.reopen()
    assert (project.index.created, project.index.carried) == (True, 3)
    assert os.path.exists(f"{project.index_path}.prev")
    assert project.ids() == []

    project.task("tsk-c", state="doing")
    project.task("tsk-d")
    project.run()
    found = {name: project.writer.find(f"tsk-{name}") for name in "abcd"}
    for name in "ab":
        assert found[name].version == old[name].version
        assert found[name].updated_at == old[name].updated_at
        assert found[name].created_at == old[name].created_at
    assert (found["c"].version, found["c"].created_at) == (2, old["c"].created_at)
    assert found["c"].updated_at > old["c"].updated_at
    assert found["d"].version == 1
    order = sorted(found, key=lambda name: found[name].change_seq)
    assert order == ["a", "b", "c", "d"]
    assert project.writer.meta_get(EPOCH_KEY) != epoch
    assert project.writer.meta_get(VERSIONS_RESET_KEY) is None


def feed(project) -> list[str]:
    """The ids of all changes in the order of their numbers, those of deletions in capitals."""
    rows = project.writer.connection.execute(
        "SELECT change_seq, doc_id FROM documents UNION ALL "
        "SELECT change_seq, upper(doc_id) FROM deletions ORDER BY change_seq"
    )
    return [doc_id for _, doc_id in rows]


def test_hard_deletions_outlive_a_layout_in_their_place(project, clock):
    for name in ("a", "b", "c", "d"):
        project.index_file(project.task(f"tsk-{name}"))
        clock.advance()
    with project.writer.transaction():
        project.writer.remove_document("tsk-b")
        project.writer.let_go("tsk-d")
    (project.path / "work/tasks/tsk-b.md").unlink()
    clock.advance()
    project.index_file(project.task("tsk-c", state="done"))
    assert feed(project) == ["tsk-a", "TSK-B", "TSK-D", "tsk-c"]
    last = project.writer.stamps.last_seq
    project.writer.connection.pragma("user_version", LAYOUT_VERSION - 1)
    project.reopen()
    assert project.index.former_layout == LAYOUT_VERSION - 1
    assert project.writer.stamps.last_seq == last - 1
    # The file of the last one is back: no reader may take its deletion for the later change.
    project.run()
    assert feed(project) == ["tsk-a", "tsk-d", "TSK-B", "tsk-c"]
    project.reopen()
    assert project.index.former_layout is None


def test_a_reference_index_hands_over_what_it_has(project):
    hash_of_a = project.index_file(project.task("tsk-a")).row.file_hash
    stamps = ("2030-01-01T00:00:00.000Z", "2029-01-01T00:00:00.000Z")
    rows = [
        ("tsk-a", "task", "task.v1", "work/tasks/tsk-a.md", hash_of_a, 7, 0, stamps[0], *stamps),
        ("tsk-t", "task", "task.v1", "work/tasks/_deleted_tsk-t.md", "h", 3, 1, stamps[0], *stamps),
    ]
    columns = ", updated_at TEXT NOT NULL DEFAULT '', created_at TEXT NOT NULL DEFAULT ''"
    replace_index(project, lambda: make_foreign(project.index_path, rows, columns))
    project.task("tsk-t", path="work/tasks/_deleted_tsk-t.md")
    project.run()
    row = project.writer.find("tsk-a")
    assert (row.version, row.updated_at, row.created_at) == (7, *stamps)
    dead = project.writer.find("tsk-t", include_deleted=True)
    assert (dead.deleted, dead.version, dead.updated_at, dead.created_at) == (True, 3, *stamps)


def test_an_old_reference_index_without_stamps_hands_over_its_index_time(project):
    stamp = "2030-01-01T00:00:00.000Z"
    rows = [("tsk-a", "task", "task.v1", "work/tasks/tsk-a.md", "other", 4, 0, stamp)]
    replace_index(project, lambda: make_foreign(project.index_path, rows))
    row = project.index_file(project.task("tsk-a")).row
    assert (row.version, row.created_at) == (5, stamp)


def test_a_damaged_file_is_kept_and_rebuilt(project):
    def damage() -> None:
        with open(project.index_path, "wb") as file:
            file.write(b"this is no database" * 1000)

    replace_index(project, damage)
    assert (project.index.created, project.index.carried) == (True, 0)
    assert os.path.exists(f"{project.index_path}.prev")
    project.index_file(project.task("tsk-a"))
    assert project.ids() == ["tsk-a"]


def test_a_lost_index_takes_over_from_the_copy_of_an_earlier_rebuild(project):
    project.index_file(project.task("tsk-a"))
    project.index_file(project.task("tsk-a", state="done"))
    project.index.close()
    os.rename(project.index_path, f"{project.index_path}.prev")
    project.index = project.open_index()
    project.run()
    assert project.writer.find("tsk-a").version == 2


def test_versions_that_are_lost_for_good_are_admitted(project):
    project.index_file(project.task("tsk-a"))
    replace_index(project, lambda: None)
    project.run()
    assert project.writer.meta_get(VERSIONS_RESET_KEY) == "1"


def test_what_no_record_claims_is_dropped_after_a_good_pass_only(project):
    project.index_file(project.task("tsk-a"))
    project.index_file(project.task("tsk-gone"))
    project.writer.connection.pragma("user_version", 0)
    project.reopen()
    os.unlink(project.path / "work/tasks/tsk-gone.md")
    aside = project.path / "aside"
    (project.path / "work").rename(aside)
    project.run()
    assert project.writer.stamps.carrying is True
    aside.rename(project.path / "work")
    project.run()
    assert project.writer.stamps.carrying is False
    assert project.index_file(project.task("tsk-gone")).row.version == 1


def test_stored_answers_survive_a_rebuild_and_go_with_their_record(project):
    project.index_file(project.task("tsk-a"))
    execute = project.writer.connection.execute
    execute("INSERT INTO idempotency VALUES ('', 'maad_create', 'k', 'f', 'r', 1, 1, x'7b7d')")
    execute("INSERT INTO idempotency_records VALUES ('tsk-a', '', 'maad_create', 'k')")
    project.writer.connection.pragma("user_version", 0)
    project.reopen()
    project.run()
    execute = project.writer.connection.execute
    assert execute("SELECT key FROM idempotency").fetchall() == [("k",)]
    with project.writer.transaction():
        project.writer.remove_document("tsk-a")
    assert execute("SELECT count(*) FROM idempotency").get == 0
    assert execute("SELECT count(*) FROM idempotency_records").get == 0


def test_two_rebuilds_in_a_row_lose_no_version(project):
    project.index_file(project.task("tsk-a"))
    project.index_file(project.task("tsk-a", state="done"))
    for _ in range(2):
        project.writer.connection.pragma("user_version", 0)
        project.reopen()
        assert project.index.carried == 1
    project.run()
    assert project.writer.find("tsk-a").version == 2


def test_a_rebuild_that_was_cut_short_does_not_cost_the_older_file(project):
    project.index_file(project.task("tsk-a"))
    project.index_file(project.task("tsk-a", state="done"))
    project.writer.connection.pragma("user_version", 0)
    project.reopen()

    def cut_short() -> None:
        apsw.Connection(project.index_path).pragma("journal_mode", "wal")

    replace_index(project, cut_short)
    project.run()
    assert project.writer.find("tsk-a").version == 2


def test_what_the_index_says_of_the_project_survives_a_rebuild(project):
    with project.writer.transaction():
        project.writer.meta_set("last_backup_tag", '{"tag": "t"}')
        project.writer.meta_set("schema_index_fp:task", "old")
    project.index_file(project.task("tsk-a"))
    project.writer.connection.pragma("user_version", 0)
    project.reopen()
    assert project.writer.meta_get("last_backup_tag") == '{"tag": "t"}'
    assert project.writer.meta_get("schema_index_fp:task") is None


def test_the_deletion_log_is_trimmed_but_keeps_its_newest_numbers(project, monkeypatch):
    monkeypatch.setattr(writer_module, "KEPT_DELETIONS", 2)
    for place in range(5):
        project.index_file(project.member(f"mbr-{place}"))
        with project.writer.transaction():
            project.writer.remove_document(f"mbr-{place}")
    project.run()
    rows = project.writer.connection.execute("SELECT doc_id FROM deletions ORDER BY change_seq")
    assert rows.fetchall() == [("mbr-3",), ("mbr-4",)]


def test_a_write_on_a_full_disk_first_gives_the_space_of_the_log_back(project, monkeypatch):
    project.index_file(project.task("tsk-a"))
    project.index_file(project.task("tsk-b"))
    before = project.index.log_bytes
    monkeypatch.setattr(log_room, "_free", lambda _path: 0)
    project.index_file(project.task("tsk-c"))
    assert 0 < project.index.log_bytes < before
    assert project.ids() == ["tsk-a", "tsk-b", "tsk-c"]


def test_a_hard_delete_leaves_no_text_in_the_files(project):
    secret = "quite-unmistakable-words"
    project.task(
        "tsk-a", title=secret, labels=f"[{secret}]", body=f"# {secret}\n\n[[person:{secret}|x]]\n"
    )
    project.index_file("work/tasks/tsk-a.md")
    project.index_file(project.task("tsk-b"))
    with project.writer.transaction():
        project.writer.remove_document("tsk-a")
    assert project.index.forget_deleted() is True
    for name in os.listdir(project.path / "_backend"):
        data = (project.path / "_backend" / name).read_bytes()
        assert secret.encode() not in data, name
    assert project.ids() == ["tsk-b"]


def test_a_stop_leaves_no_text_of_a_removed_record(project):
    secret = "quite-unmistakable-words"
    project.index_file(project.task("tsk-a", title=secret))
    with project.writer.transaction():
        project.writer.remove_document("tsk-a")
    project.index.close()
    assert secret.encode() not in Path(project.index_path).read_bytes()


def test_the_start_after_a_crash_leaves_none_either(project, tmp_path):
    secret = "quite-unmistakable-words"
    project.index_file(project.task("tsk-a", title=secret))
    with project.writer.transaction():
        project.writer.remove_document("tsk-a")
    crashed = tmp_path / "crashed"
    shutil.copytree(project.path / "_backend", crashed)
    assert any(secret.encode() in file.read_bytes() for file in crashed.iterdir())
    index = Index.open(str(crashed / "maad.db"), read_only=False)
    try:
        assert not any(secret.encode() in file.read_bytes() for file in crashed.iterdir())
    finally:
        index.close()


def test_text_in_the_log_waits_for_a_reader_that_needs_it(project, reader):
    project.index_file(project.task("tsk-a"))
    with reader.snapshot():
        assert reader.find("tsk-a") is not None
        with project.writer.transaction():
            project.writer.remove_document("tsk-a")
        assert project.index.forget_deleted() is False
    assert project.index.forget_deleted() is True


class TestReadOnly:
    def closed(self, project) -> str:
        project.index_file(project.task("tsk-a"))
        project.index.close()
        return project.index_path

    def test_reads_without_touching_anything(self, project):
        path = self.closed(project)
        before = {
            name: os.stat(project.path / "_backend" / name).st_mtime_ns
            for name in os.listdir(project.path / "_backend")
        }
        index = Index.open(path, read_only=True)
        reader = index.reader()
        with reader.snapshot():
            assert reader.find("tsk-a").version == 1
            assert reader.counters().documents == 1
        reader.close()
        index.close()
        assert before == {
            name: os.stat(project.path / "_backend" / name).st_mtime_ns
            for name in os.listdir(project.path / "_backend")
        }

    def test_has_no_writer(self, project):
        index = Index.open(self.closed(project), read_only=True)
        with pytest.raises(MaadError) as caught:
            index.writer()
        assert caught.value.code == "READ_ONLY"

    @pytest.mark.parametrize("state", ["absent", "log", "layout"])
    def test_refuses_what_it_would_have_to_change(self, project, state):
        path = self.closed(project)
        if state == "absent":
            os.unlink(path)
        elif state == "log":
            with open(f"{path}-wal", "wb") as file:
                file.write(b"x")
        else:
            os.unlink(path)
            make_foreign(path, [("a", "t", "t.v1", "a.md", "h", 1, 0, "2030")])
        with pytest.raises(MaadError) as caught:
            Index.open(path, read_only=True)
        assert caught.value.code == "READ_ONLY"
        if state == "layout":
            assert "missing: " in caught.value.message


class TestReaders:
    def test_a_snapshot_sees_one_state(self, project, reader):
        project.index_file(project.task("tsk-a"))
        with reader.snapshot(), reader.snapshot():
            assert reader.counters().documents == 1
            project.index_file(project.task("tsk-b"))
            assert reader.counters().documents == 1
        assert reader.counters().documents == 2

    def test_cannot_write(self, reader):
        with pytest.raises(apsw.ReadOnlyError):
            reader.connection.execute("DELETE FROM documents")

    def test_reads_while_a_write_holds_the_lock(self, project, reader):
        project.index_file(project.task("tsk-a"))
        with project.writer.transaction():
            project.writer.remove_document("tsk-a")
            assert reader.find("tsk-a") is not None

    ENDLESS = """
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n
    """

    def test_a_deadline_ends_a_statement(self, reader):
        with (
            pytest.raises(apsw.InterruptError),
            reader.snapshot(),
            reader.deadline(0.01),
        ):
            reader.connection.execute(self.ENDLESS).fetchall()
        assert reader.connection.execute("SELECT 1").get == 1

    def test_an_interrupt_from_another_thread_ends_a_statement(self, reader):
        running = threading.Event()
        reader.connection.create_scalar_function("started", lambda: running.set())

        def interrupt() -> None:
            running.wait()
            reader.interrupt()

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(apsw.InterruptError), reader.deadline(60):
            reader.connection.execute(
                "WITH RECURSIVE n(i) AS (SELECT started() UNION ALL SELECT 1 FROM n) "
                "SELECT count(*) FROM n"
            ).fetchall()
        thread.join()
        with reader.deadline(60):
            assert reader.connection.execute("SELECT 1").get == 1

    def test_closing_twice_is_harmless(self, project):
        reader = project.index.reader()
        reader.close()
        reader.close()
        project.index.close()
        project.index.close()
