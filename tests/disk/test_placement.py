"""Files that are taken away under an engine, and the journal among them."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from maadd.protocol.ownership import LOCK_PATH
from maadd_worker.disk.journal import JOURNAL_PATH, Journal, JournalEntry
from maadd_worker.disk.owner_lock import OwnerLock
from maadd_worker.disk.placement import Placement
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.engine_placement import keep_entries, placement_of
from maadd_worker.index.layout import INDEX_PATH


def entry(entry_id: str) -> JournalEntry:
    path, at = f"notes/{entry_id}.md", "2031-02-03T04:05:06.007Z"
    return JournalEntry(
        entry_id, "create", entry_id, "note", path, None, None, None, "a" * 64, "indexed", at, None
    )


@pytest.fixture
def root(tmp_path: Path):
    folder = tmp_path / "project"
    (folder / "_backend").mkdir(parents=True)
    (folder / INDEX_PATH).write_text("index")
    held = ProjectRoot.open(str(folder))
    yield held
    held.close()


@pytest.fixture
def lock(root: ProjectRoot):
    lock = OwnerLock.acquire(root.path, None)
    yield lock
    lock.release()


@pytest.fixture
def journal(root: ProjectRoot, lock: OwnerLock):
    journal = Journal.open(root.path)
    journal.begin([entry("1"), entry("2")])
    yield journal
    journal.close()


@pytest.fixture
def placement(root: ProjectRoot, journal: Journal) -> Placement:
    return placement_of(root, read_only=False)


@pytest.mark.parametrize("path", [INDEX_PATH, JOURNAL_PATH, LOCK_PATH])
def test_a_deleted_or_exchanged_file_is_missed(root, placement, path):
    assert placement.lost() is None
    os.rename(f"{root.path}/{path}", f"{root.path}/aside")
    assert placement.lost() == path
    Path(root.path, path).touch()
    assert placement.lost() == path
    os.replace(f"{root.path}/aside", f"{root.path}/{path}")
    assert placement.lost() is None


def test_a_folder_that_was_moved_is_missed_whatever_stands_there_now(root, placement):
    os.rename(root.path, f"{root.path}-moved")
    assert placement.lost() == "."
    os.mkdir(root.path)
    assert placement.lost() == "."


def test_a_file_system_in_trouble_has_taken_nothing_away(root, placement, monkeypatch):
    def fail(_path: str) -> os.stat_result:
        raise OSError(errno.EIO, "trouble")

    monkeypatch.setattr(ProjectRoot, "stat", lambda _root, path: fail(path))
    assert placement.lost() is None


def test_a_reader_misses_nothing_before_there_is_another_index(root):
    placement = placement_of(root, read_only=True)
    # An engine has its files open, so that their inodes stay taken.
    os.rename(f"{root.path}/{INDEX_PATH}", f"{root.path}/aside")
    assert placement.lost() is None
    Path(root.path, INDEX_PATH).write_text("another")
    assert placement.lost() == INDEX_PATH


def test_the_pending_writes_of_a_deleted_journal_are_there_for_the_next_engine(
    root, lock, journal, placement
):
    shutil.rmtree(f"{root.path}/_backend")
    assert keep_entries(journal, root, placement)
    lock.release()
    successor = Journal.open(root.path)
    assert [one.id for one in successor.pending()] == ["1", "2"]
    # Those that it has already are not doubled.
    successor.close()
    assert keep_entries(journal, root, placement)
    successor = Journal.open(root.path)
    assert [one.id for one in successor.pending()] == ["1", "2"]
    successor.close()


def test_a_journal_that_is_deleted_alone_is_made_anew_under_the_lock(root, journal, placement):
    for name in os.listdir(f"{root.path}/_backend"):
        if name.startswith("journal"):
            os.unlink(f"{root.path}/_backend/{name}")
    assert keep_entries(journal, root, placement)
    successor = Journal.open(root.path)
    assert len(successor.pending()) == 2
    successor.close()


def test_the_project_of_another_owner_is_left_alone(root, journal, placement):
    shutil.rmtree(f"{root.path}/_backend")
    other = OwnerLock.acquire(root.path, None)
    assert not keep_entries(journal, root, placement)
    assert not Path(root.path, JOURNAL_PATH).exists()
    other.release()


def test_nothing_is_made_where_a_folder_was(root, journal, placement):
    moved = f"{root.path}-moved"
    os.rename(root.path, moved)
    assert keep_entries(journal, root, placement)
    assert not os.path.exists(root.path)
    shutil.rmtree(moved)


def test_a_journal_without_pending_writes_is_let_go(root, journal, placement):
    journal.complete(["1", "2"])
    shutil.rmtree(f"{root.path}/_backend")
    assert keep_entries(journal, root, placement)
    assert not os.path.exists(f"{root.path}/_backend")
