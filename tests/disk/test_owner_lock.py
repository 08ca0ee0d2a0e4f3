import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from maadd.protocol.errors import MaadError
from maadd.protocol.ownership import LOCK_PATH, Owner, acquire_flock, read_owner
from maadd_worker.disk.owner_lock import OwnerLock

HOLD = """
import sys
from maadd_worker.disk.owner_lock import OwnerLock
lock = OwnerLock.acquire(sys.argv[1], "/run/maad.sock", read_only=sys.argv[2] == "ro")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def hold(tmp_path: Path):
    """Starts another process that holds the project until it is stopped."""
    children: list[subprocess.Popen[str]] = []

    def start(mode: str = "rw") -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(tmp_path), mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        return child

    yield start
    for child in children:
        child.kill()
        child.communicate()


def test_the_file_says_who_owns_the_project(tmp_path):
    lock = OwnerLock.acquire(str(tmp_path), "/run/x.sock")
    text = (tmp_path / LOCK_PATH).read_text()
    assert msgspec.json.decode(text) == {"pid": os.getpid(), "endpoint": "/run/x.sock"}
    assert text.endswith("\n")
    lock.release()


def test_a_second_process_is_refused_and_told_the_owner(tmp_path, hold):
    child = hold()
    with pytest.raises(MaadError) as refusal:
        OwnerLock.acquire(str(tmp_path), None)
    assert refusal.value.code == "PROJECT_LOCKED"
    assert refusal.value.details == {"scope": "project", "ownerPid": child.pid}
    assert read_owner(str(tmp_path)) == Owner(child.pid, "/run/maad.sock")


def test_the_lock_ends_with_its_process_and_the_file_stays(tmp_path, hold):
    child = hold()
    child.kill()
    child.wait()
    assert read_owner(str(tmp_path)) is None
    assert (tmp_path / LOCK_PATH).exists()
    OwnerLock.acquire(str(tmp_path), None).release()
    assert (tmp_path / LOCK_PATH).exists()


def test_a_released_project_can_be_opened_again(tmp_path):
    lock = OwnerLock.acquire(str(tmp_path), None)
    lock.release()
    lock.release()
    OwnerLock.acquire(str(tmp_path), None).release()


def test_readers_share_the_project_and_keep_a_writer_out(tmp_path, hold):
    OwnerLock.acquire(str(tmp_path), None).release()
    hold("ro")
    reader = OwnerLock.acquire(str(tmp_path), None, read_only=True)
    with pytest.raises(MaadError, match="PROJECT_LOCKED"):
        OwnerLock.acquire(str(tmp_path), None)
    assert read_owner(str(tmp_path)) is None
    reader.release()


def test_a_writer_keeps_readers_out(tmp_path, hold):
    hold()
    with pytest.raises(MaadError, match="PROJECT_LOCKED"):
        OwnerLock.acquire(str(tmp_path), None, read_only=True)


def test_a_reader_creates_nothing(tmp_path):
    OwnerLock.acquire(str(tmp_path), None, read_only=True).release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", [b"", b"{", b"[]\n", b'{"pid":"x"}'])
def test_an_unreadable_line_does_not_hide_the_lock(tmp_path, hold, line):
    hold()
    (tmp_path / LOCK_PATH).write_bytes(line)
    assert read_owner(str(tmp_path)) == Owner()
    with pytest.raises(MaadError) as refusal:
        OwnerLock.acquire(str(tmp_path), None)
    assert refusal.value.details == {"scope": "project", "ownerPid": None}


def test_nobody_owns_a_project_without_a_lock_file(tmp_path):
    assert read_owner(str(tmp_path)) is None


def test_a_deleted_lock_file_does_not_make_two_owners_out_of_one_file(tmp_path):
    path = tmp_path / "lock"
    first = acquire_flock(str(path))
    path.unlink()
    second = acquire_flock(str(path))
    assert os.fstat(second).st_ino == path.stat().st_ino
    with pytest.raises(BlockingIOError):
        acquire_flock(str(path), wait_s=0)
    os.close(first)
    os.close(second)


def test_a_project_that_cannot_be_locked_is_reported(tmp_path):
    (tmp_path / "_backend").write_text("not a folder")
    with pytest.raises(MaadError) as refusal:
        OwnerLock.acquire(str(tmp_path), None)
    assert refusal.value.code == "BACKEND_ERROR"
