"""What a starting engine makes, and where it makes nothing."""

import os

import pytest

from maadd.protocol.errors import MaadError
from maadd.protocol.ownership import LOCK_PATH
from maadd_worker.disk.folders import make_folders
from maadd_worker.disk.journal import Journal
from maadd_worker.disk.owner_lock import OwnerLock
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.disk.scaffold import make_backend, make_model_files
from maadd_worker.engine_placement import staying
from maadd_worker.imports.ledger import Done, Ledger


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def root(folder):
    held = ProjectRoot.open(str(folder))
    yield held
    held.close()


def test_folders_are_made_within_one_that_is_there(folder):
    make_folders(str(folder), "a", "b")
    make_folders(str(folder), "a", "b", "c")
    assert (folder / "a/b/c").is_dir()
    with pytest.raises(FileNotFoundError):
        make_folders(str(folder / "gone"), "a")
    assert not (folder / "gone").exists()


@pytest.mark.parametrize("occupied", [False, True])
def test_the_scaffold_goes_where_the_folder_went(folder, root, occupied):
    moved = folder.rename(folder.with_name("moved"))
    if occupied:
        folder.mkdir()
    make_backend(root, read_only=False)
    OwnerLock.acquire(root.held_path, None).release()
    make_model_files(root, read_only=False)
    assert sorted(os.listdir(moved)) == ["_backend", "_registry", "_schema"]
    assert (moved / LOCK_PATH).exists()
    assert not folder.exists() or os.listdir(folder) == []


def test_by_path_nothing_is_made_for_a_folder_that_is_gone(folder, tmp_path):
    folder.rename(tmp_path / "moved")
    with pytest.raises(MaadError, match="cannot lock"):
        OwnerLock.acquire(str(folder), None)
    with pytest.raises(FileNotFoundError):
        Journal.open(str(folder))
    with pytest.raises(MaadError, match="cannot be written"):
        Ledger(str(folder), "source.csv", "source").keep_plan("plan")
    assert not folder.exists()


def test_a_failure_while_the_folder_goes_away_tells_that(folder, root):
    with pytest.raises(MaadError) as told, staying(root):
        folder.rename(folder.with_name("moved"))
        raise FileNotFoundError
    assert told.value.code == "FILE_READ_ERROR"
    folder.with_name("moved").rename(folder)
    with pytest.raises(FileNotFoundError), staying(root):
        raise FileNotFoundError


def test_an_empty_folder_in_place_of_a_served_one_stays_empty(folder, root):
    with pytest.raises(MaadError, match="not the one that was served") as refused:
        make_backend(root, read_only=False, served=True)
    assert refused.value.code == "FILE_READ_ERROR"
    assert os.listdir(folder) == []
    make_model_files(root, read_only=False)
    make_backend(root, read_only=False, served=True)
    assert (folder / "_backend").is_dir()


@pytest.mark.parametrize("name", ["lock", "maad.db", "maad.db-wal", "journal.db", "journal.json"])
def test_nothing_is_written_through_a_link_that_came_with_a_project(
    folder, root, name, tmp_path_factory
):
    victim = tmp_path_factory.mktemp("home") / ".profile"
    victim.write_text("theirs")
    (folder / "_backend").mkdir()
    (folder / "_backend" / name).symlink_to(victim)
    for read_only in (False, True):
        with pytest.raises(MaadError) as refusal:
            make_backend(root, read_only=read_only)
        assert refusal.value.code == "PATH_OUTSIDE_PROJECT"
        assert refusal.value.details == {"file": f"_backend/{name}"}
    assert victim.read_text() == "theirs"


def test_a_linked_backend_stays_in_the_project(folder, root, tmp_path_factory):
    (folder / "elsewhere").mkdir()
    (folder / "_backend").symlink_to("elsewhere")
    make_backend(root, read_only=False)
    (folder / "_backend").unlink()
    (folder / "_backend").symlink_to(tmp_path_factory.mktemp("outside"))
    with pytest.raises(MaadError, match="_backend is a link"):
        make_backend(root, read_only=False)


@pytest.mark.parametrize("planted", ["_import", "_import/.state", "its own"])
def test_an_import_keeps_its_state_behind_no_link(folder, planted, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    ledger = Ledger(str(folder), "source.csv", "source")
    place = ledger.folder if planted == "its own" else str(folder / planted)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    os.symlink(outside, place)
    with pytest.raises(MaadError, match=r"WRITE_ERROR: .*symbolic links"):
        ledger.keep_plan("plan")
    assert not list(outside.rglob("plan*"))


def test_an_import_writes_its_state_through_no_link(folder, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("theirs")
    ledger = Ledger(str(folder), "source.csv", "source")
    os.makedirs(ledger.folder)
    for name in ("plan.yaml.new", "done.jsonl"):
        os.symlink(victim, os.path.join(ledger.folder, name))
    with pytest.raises(MaadError, match=r"WRITE_ERROR: .*symbolic links"):
        ledger.keep_plan("plan")
    with pytest.raises(MaadError, match="symbolic links"):
        ledger.add([Done("key", "digest", "doc-1", "hash")])
    assert victim.read_text() == "theirs"
