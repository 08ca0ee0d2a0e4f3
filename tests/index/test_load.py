"""Loading a new index: rows first, indexes after them (spec 01 §14.2)."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.index import full_pass
from maadd_worker.index.full_pass import index_all
from maadd_worker.index.layout import CHILD_INDEXES
from maadd_worker.index.pass_report import ReindexReport
from maadd_worker.index.writer import LOADING_KEY

RECORDS = 23
TABLES = (
    *("objects", "relationships", "blocks", "field_values"),
    *("type_counts", "subtype_counts", "fingerprint_counts"),
)


@pytest.fixture(autouse=True)
def _small_loads(monkeypatch):
    monkeypatch.setattr(full_pass, "_WORTH_A_LOAD", 5)
    monkeypatch.setattr(full_pass, "_BATCH_FILES", 4)


def fill(project) -> None:
    for number in range(RECORDS - 1):
        project.task(
            f"tsk-{number:02}",
            owner="mbr-a" if number % 3 else "mbr-none",
            labels="[b, a]",
            points=str(number),
            body=f"# Log\n\n[[person:Ana {number % 5}|Ana]] and [[person:tsk-00|it]].\n",
        )
    project.member("mbr-a")
    project.task("tsk-t", path="work/tasks/_deleted_tsk-t.md")


def load_all(project, **options) -> ReindexReport:
    return index_all(
        project.writer, project.model, project.root, project.settings, unread=True, **options
    )


def state(project) -> dict[str, object]:
    """Everything that readers see, without times and numbers of changes."""
    execute = project.writer.connection.execute
    found: dict[str, object] = {
        table: execute(f"SELECT * FROM {table}").fetchall() for table in TABLES[:4]
    }
    found["type_counts"] = execute(
        "SELECT doc_type, documents, objects, relationships, broken_refs, invalid, partial "
        "FROM type_counts"
    ).fetchall()
    found["subtype_counts"] = execute("SELECT * FROM subtype_counts").fetchall()
    found["values"] = execute(
        "SELECT primitive, subtype, value, objects FROM object_values ORDER BY 1, 2, 3"
    ).fetchall()
    project.writer.fold_values()
    found["short_texts"] = execute("SELECT * FROM short_texts").fetchall()
    found["text"] = execute(
        "SELECT v.value FROM object_text t JOIN object_values v ON v.id = t.rowid "
        "WHERE object_text MATCH '\"ana\"' ORDER BY v.value"
    ).fetchall()
    found["indexes"] = execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'index' ORDER BY name"
    ).fetchall()
    found["documents"] = execute(
        "SELECT doc_id, doc_type, file_path, file_hash, version, deleted, valid FROM documents"
    ).fetchall()
    return found


def present_indexes(project) -> set[str]:
    rows = project.writer.connection.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")
    return {name for (name,) in rows} & set(CHILD_INDEXES)


def test_a_load_ends_with_what_an_ordinary_pass_makes(project, make_project, tmp_path_factory):
    other = make_project(Path(tmp_path_factory.mktemp("other")))
    try:
        for one in (project, other):
            fill(one)
        seen: list[set[str]] = []
        report = load_all(project, between_chunks=lambda: seen.append(present_indexes(project)))
        assert report.view() == other.run().view()
        assert set() in seen
        assert state(project) == state(other)
        assert project.writer.meta_get(LOADING_KEY) is None
        assert project.writer.connection.pragma("foreign_keys") == 1
        assert project.writer.connection.execute("PRAGMA foreign_key_check").fetchall() == []
        assert project.writer.connection.pragma("integrity_check") == "ok"
    finally:
        other.index.close()
        other.root.close()


def test_an_index_that_others_read_is_never_loaded(project):
    fill(project)
    seen: list[set[str]] = []
    index_all(
        project.writer,
        project.model,
        project.root,
        project.settings,
        between_chunks=lambda: seen.append(present_indexes(project)),
    )
    assert all(found == set(CHILD_INDEXES) for found in seen)


def test_an_index_with_records_is_not_loaded_again(project):
    fill(project)
    load_all(project)
    before = state(project)
    seen: list[set[str]] = []
    load_all(project, force=True, between_chunks=lambda: seen.append(present_indexes(project)))
    assert all(found == set(CHILD_INDEXES) for found in seen)
    assert state(project) == before


def test_a_load_that_is_stopped_leaves_a_usable_index_and_goes_on_later(project):
    fill(project)
    calls: list[None] = []

    def stop() -> None:
        calls.append(None)
        if len(calls) == 3:
            raise MaadError("SHUTTING_DOWN", "the worker drains")

    with pytest.raises(MaadError, match="drains"):
        load_all(project, between_chunks=stop)
    assert len(project.ids()) == 12
    assert present_indexes(project) == set(CHILD_INDEXES)
    report = load_all(project)
    assert (report.indexed, report.skipped) == (RECORDS - 12, 12)


_KILLED = """
import os, signal, sys
from maadd.protocol.messages import WorkerSettings
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.index import full_pass
from maadd_worker.index.store import Index
from maadd_worker.schema.model import load_model

full_pass._WORTH_A_LOAD, full_pass._BATCH_FILES = 5, 4
root = ProjectRoot.open(sys.argv[1])
index = Index.open(sys.argv[2], read_only=False)
left = int(sys.argv[3])

def count_down():
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

full_pass.index_all(
    index.writer(), load_model(root), root, WorkerSettings(max_doc_annotations=20), unread=True,
    force=len(sys.argv) > 4, between_chunks=count_down,
)
"""


def run_and_kill(project, after_batches: int, *more: str) -> None:
    project.index.close()
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, project.path, project.index_path, str(after_batches), *more]
    )
    assert done.returncode == -signal.SIGKILL
    project.index = project.open_index()


def test_after_a_kill_the_next_open_finishes_and_the_next_pass_goes_on(
    project, make_project, tmp_path_factory
):
    other = make_project(Path(tmp_path_factory.mktemp("other")))
    try:
        for one in (project, other):
            fill(one)
        run_and_kill(project, 3)
        assert project.writer.meta_get(LOADING_KEY) is None
        assert present_indexes(project) == set(CHILD_INDEXES)
        assert len(project.ids()) == 12
        assert project.index.reader().counters().documents == 12
        report = load_all(project)
        assert (report.indexed, report.skipped, report.errors) == (RECORDS - 12, 12, ())
        other.run()
        assert state(project) == state(other)
    finally:
        other.index.close()
        other.root.close()


def test_a_killed_forced_pass_leaves_every_record_readable(project):
    fill(project)
    project.run()
    before = state(project)
    run_and_kill(project, 2, "force")
    assert state(project) == before
    report = project.run()
    assert (report.indexed, report.skipped) == (0, RECORDS)


def test_the_log_of_a_load_is_written_back_afterwards(project):
    fill(project)
    load_all(project)
    assert project.writer.log_held
    project.writer.write_log_back()
    pages, written_back = project.writer.connection.wal_checkpoint()
    assert pages == written_back > 0
    assert not project.writer.log_held
    assert project.writer.connection.pragma("wal_autocheckpoint") == 4000
    load_all(project)
    assert not project.writer.log_held
