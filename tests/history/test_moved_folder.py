"""A project's folder that is moved away while commits are made."""

import os
import threading

import pytest

from maadd.protocol.messages import HistorySettings, WorkerSettings
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.failpoints import VARIABLE, arm
from maadd_worker.history import HistoryController
from maadd_worker.history.git_dir import locate
from maadd_worker.history.index_lock import IndexLock, reclaim_lock
from maadd_worker.history.outcome import GitFailure

AUDIT = HistorySettings("audit", "audit", "project")


@pytest.fixture
def fifo(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    yield tmp_path / "fifo"
    arm({})


def recovered(project) -> None:
    """What the next worker does when the folder is back."""
    journal = project.journal()
    controller = project.controller("audit", journal)
    controller.recover(journal.pending())
    controller.flush()
    assert controller.close() is True
    journal.close()


@pytest.mark.parametrize("occupied", [False, True])
@pytest.mark.parametrize(
    "point",
    [
        "git.lock",
        "git.locked",
        "git.object",
        "git.objects",
        "git.commit",
        "git.move",
        "git.ref.locked",
        "git.ref.logged",
        "git.moved",
        "git.index",
        "git.index.written",
        "git.unlock",
    ],
)
def test_a_commit_ends_in_the_folder_that_it_began_in(project, begun, fifo, point, occupied):
    moved = project.root.with_name("moved")
    root = ProjectRoot.open(str(project.root))
    journal = project.journal()
    controller = HistoryController.open(root.held_path, AUDIT, WorkerSettings(), journal)
    controller.commit([begun(journal, "ven-a")])
    controller.flush()
    request = begun(journal, "ven-b")
    arm({VARIABLE: f"{point}=pause:{fifo}@1"})

    def move() -> None:
        with open(fifo, "wb"):
            project.root.rename(moved)
            if occupied:
                project.root.mkdir()

    mover = threading.Thread(target=move, daemon=True)
    mover.start()
    controller.commit([request])
    controller.settle(idle=False)
    controller.close()
    mover.join(10)
    journal.close()
    root.close()

    if occupied:
        assert os.listdir(project.root) == []
        project.root.rmdir()
    assert not project.root.exists()
    left = [*moved.glob(".git/**/*.lock"), *moved.glob(".git/**/*maadd*")]
    assert left == []
    moved.rename(project.root)
    recovered(project)
    assert project.subjects().count("maad:create ven-b [vendor] — ven-b") == 1
    project.assert_sound()


def test_a_commit_after_the_move_says_so_and_makes_nothing(project, begun):
    moved = project.root.with_name("moved")
    root = ProjectRoot.open(str(project.root))
    journal = project.journal()
    controller = HistoryController.open(root.held_path, AUDIT, WorkerSettings(), journal)
    request = begun(journal, "ven-a")
    project.root.rename(moved)
    [outcome] = controller.commit([request])
    assert outcome.failure is not None
    assert "the project's folder was moved away" in outcome.failure.message
    controller.close()
    journal.close()
    root.close()
    assert not project.root.exists()
    moved.rename(project.root)
    recovered(project)
    project.assert_sound()


def test_by_path_alone_nothing_is_made_either(project, begun):
    """Where the system has no path to an open folder."""
    moved = project.root.with_name("moved")
    journal = project.journal()
    controller = project.controller("audit", journal)
    controller.commit([begun(journal, "ven-a")])
    controller.flush()
    request = begun(journal, "ven-b")
    project.root.rename(moved)
    controller.commit([request])
    controller.close()
    journal.close()
    assert not project.root.exists()
    moved.rename(project.root)
    recovered(project)
    project.assert_sound()


def test_a_lock_stays_provable_when_a_later_attempt_fails(project):
    journal = project.journal()
    lock = IndexLock(locate(str(project.root)), journal)
    lock.acquire(patient=False)
    moved = project.root.with_name("moved")
    project.root.rename(moved)
    with pytest.raises(GitFailure, match="cannot create"):
        lock.acquire(patient=False)
    moved.rename(project.root)
    assert not lock.is_foreign()
    assert reclaim_lock(locate(str(project.root)), journal) is True
    assert not project.lock.exists()
    journal.close()


def test_a_git_directory_beside_the_project_is_found_through_the_open_folder(project):
    """As in a submodule, whose `.git` is a file with a relative path."""
    (project.root / ".git").rename(project.root.with_name("elsewhere"))
    (project.root / ".git").write_text("gitdir: ../elsewhere\n")
    root = ProjectRoot.open(str(project.root))
    found = locate(root.held_path)
    root.close()
    assert found is not None
    assert found.path == found.common == str(project.root.with_name("elsewhere").resolve())


def test_messages_name_no_path_of_the_machine(project):
    root = ProjectRoot.open(str(project.root))
    found = locate(root.held_path)
    assert found is not None
    for folder in (root.path, root.held_path):
        assert found.scrub(f"cannot read {folder}/.git/HEAD") == "cannot read .git/HEAD"
    root.close()
