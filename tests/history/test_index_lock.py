import errno
import os
import subprocess
import sys

import pytest

from maadd_worker.disk.journal import Journal
from maadd_worker.history.git_dir import locate
from maadd_worker.history.index_lock import IndexLock, reclaim_lock
from maadd_worker.history.outcome import GitFailure


@pytest.fixture
def git_dir(project):
    found = locate(str(project.root))
    assert found is not None
    return found


@pytest.fixture
def journal(project):
    journal = project.journal()
    yield journal
    journal.close()


@pytest.fixture
def lock(git_dir, journal):
    lock = IndexLock(git_dir, journal)
    yield lock
    lock.close()


def test_the_lock_keeps_git_out_and_is_given_back(project, lock):
    lock.acquire(patient=False)
    assert project.lock.exists()
    with pytest.raises(AssertionError, match=r"index\.lock"):
        project.git("rm", "-q", "README.md")
    assert not lock.is_foreign()
    lock.release()
    assert not project.lock.exists()
    project.git("rm", "-q", "README.md")


def test_taking_a_held_lock_again_changes_nothing(project, lock):
    lock.acquire(patient=False)
    taken = lock.taken_at
    lock.acquire(patient=False)
    assert lock.taken_at == taken


def test_a_lock_of_somebody_else_is_described_and_never_touched(project, lock):
    project.lock.write_text("theirs")
    os.utime(project.lock, (0, 0))
    for patient in (True, False, True):
        with pytest.raises(GitFailure) as failure:
            lock.acquire(patient=patient)
    assert failure.value.code == "GIT_COMMIT_FAILED"
    assert failure.value.details == {
        "reason": "index-lock",
        "path": ".git/index.lock",
        "mtime": "1970-01-01T00:00:00.000Z",
        "holder": None,
    }
    assert lock.is_foreign()
    assert project.lock.read_text() == "theirs"
    project.lock.unlink()
    lock.acquire(patient=False)
    assert lock.taken_at is not None


def test_a_known_lock_is_not_waited_for_again(project, lock, monkeypatch):
    pauses: list[float] = []
    monkeypatch.setattr("maadd_worker.history.index_lock.time.sleep", pauses.append)
    project.lock.touch()
    with pytest.raises(GitFailure):
        lock.acquire(patient=True)
    assert pauses == [0.05, 0.15, 0.45]
    with pytest.raises(GitFailure):
        lock.acquire(patient=True)
    assert pauses == [0.05, 0.15, 0.45]
    project.lock.rename(project.lock.with_name("old"))
    project.lock.touch()
    with pytest.raises(GitFailure):
        lock.acquire(patient=True)
    assert len(pauses) == 6


def test_a_lock_that_goes_away_while_waiting(project, lock, monkeypatch):
    project.lock.touch()
    monkeypatch.setattr(
        "maadd_worker.history.index_lock.time.sleep", lambda _: project.lock.unlink()
    )
    lock.acquire(patient=True)
    assert lock.taken_at is not None


def test_the_holder_is_named(project, lock):
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; f = open(sys.argv[1], 'w'); print('open', flush=True); sys.stdin.read()",
            str(project.lock),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(GitFailure) as failure:
        lock.acquire(patient=False)
    holder.communicate()
    assert failure.value.details is not None
    assert failure.value.details["holder"]["pid"] == holder.pid
    assert failure.value.details["holder"]["name"].startswith("python")


def test_a_lock_that_a_person_removed_and_took_is_theirs(project, lock):
    lock.acquire(patient=False)
    project.lock.unlink()
    project.lock.write_text("theirs")
    assert lock.is_foreign()
    lock.release()
    assert project.lock.read_text() == "theirs"
    with pytest.raises(GitFailure):
        lock.acquire(patient=False)


def test_our_own_stale_lock_is_proven_and_removed(project, git_dir, journal):
    dead = IndexLock(git_dir, journal)
    dead.acquire(patient=False)
    (project.root / ".git/maadd-index.4711").write_text("half an index")
    assert reclaim_lock(git_dir, journal) is True
    assert not project.lock.exists()
    assert not list((project.root / ".git").glob("maadd-*"))
    assert reclaim_lock(git_dir, journal) is False


@pytest.mark.parametrize("content", ["", "maadd 1 deadbeef\n", "DIRC"])
def test_a_lock_without_proof_stays(project, git_dir, journal, content):
    assert reclaim_lock(git_dir, journal) is False
    IndexLock(git_dir, journal).acquire(patient=False)
    project.lock.unlink()
    project.lock.write_text(content)
    os.utime(project.lock, (0, 0))
    assert reclaim_lock(git_dir, journal) is False
    assert project.lock.exists()


@pytest.fixture
def ended():
    """The mark of a process that has ended, whose number another one has now."""
    return f"{os.getpid()}.1"


def test_the_lock_of_a_worker_that_died_is_removed_without_the_journal(
    project, git_dir, journal, lock, ended
):
    project.lock.write_text(f"maadd {ended} {'ab' * 16}\n")
    assert reclaim_lock(git_dir, journal) is True
    assert not project.lock.exists()
    project.lock.write_text(f"maadd {ended} {'ab' * 16}\n")
    assert not lock.is_foreign()
    project.lock.write_text(f"maadd {ended} {'ab' * 16}\n")
    lock.acquire(patient=False)
    assert not lock.is_foreign()


@pytest.mark.parametrize("content", ["maadd {} ab\n", "maadd {} {}\nmore", "git {} {}\n"])
def test_what_only_resembles_the_lock_of_a_dead_worker_stays(
    project, git_dir, journal, lock, ended, content
):
    project.lock.write_text(content.format(ended, "ab" * 16))
    assert reclaim_lock(git_dir, journal) is False
    assert lock.is_foreign()
    with pytest.raises(GitFailure):
        lock.acquire(patient=False)


def test_the_lock_of_a_living_worker_stays(git_dir, lock):
    IndexLock(git_dir, None).acquire(patient=False)
    assert lock.is_foreign()
    with pytest.raises(GitFailure):
        lock.acquire(patient=False)


def test_the_proof_of_another_project_is_none(project, git_dir, journal, tmp_path):
    IndexLock(git_dir, journal).acquire(patient=False)
    (tmp_path / "other").mkdir()
    other = Journal.open(str(tmp_path / "other"))
    assert reclaim_lock(git_dir, other) is False
    other.close()
    assert project.lock.exists()


def test_file_systems_without_hard_links(project, git_dir, journal, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("maadd_worker.history.index_lock.os.link", refuse)
    lock = IndexLock(git_dir, journal)
    lock.acquire(patient=False)
    with pytest.raises(GitFailure):
        IndexLock(git_dir, None).acquire(patient=False)
    assert reclaim_lock(git_dir, journal) is True


def test_a_removed_token_is_made_again(project, lock):
    lock.acquire(patient=False)
    lock.release()
    for token in (project.root / ".git").glob("maadd-*"):
        token.unlink()
    lock.acquire(patient=False)
    assert not lock.is_foreign()


def test_closing_leaves_nothing_behind(project, lock):
    lock.acquire(patient=False)
    lock.close()
    assert not project.lock.exists()
    assert not list((project.root / ".git").glob("maadd-*"))


def test_after_a_long_hold_others_get_a_moment(lock, monkeypatch):
    pauses: list[float] = []
    clock = iter([100.0, 100.0, 100.25, 100.26, 100.3])
    monkeypatch.setattr("maadd_worker.history.index_lock.time.sleep", pauses.append)
    monkeypatch.setattr("maadd_worker.history.index_lock.time.monotonic", lambda: next(clock))
    lock.acquire(patient=False)
    lock.release()
    lock.acquire(patient=False)
    assert pauses == [pytest.approx(0.015)]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_lock_that_cannot_be_made_is_a_failed_commit(lock, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("maadd_worker.history.index_lock.os.link", refuse)
    with pytest.raises(GitFailure) as failure:
        lock.acquire(patient=True)
    assert failure.value.code == "GIT_COMMIT_FAILED"
    assert os.strerror(number) in failure.value.message
