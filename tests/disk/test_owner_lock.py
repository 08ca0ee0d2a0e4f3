import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from maadd.protocol.errors import MaadError
from maadd.protocol.ownership import (
    COMMAND,
    LOCK_PATH,
    STDIO_SERVER,
    Owner,
    Server,
    acquire_flock,
    last_owner,
    read_owner,
    this_server,
)
from maadd.protocol.process_identity import ProcessIdentity, identify, is_gone, is_running
from maadd_worker.disk import abandoned_lock
from maadd_worker.disk.owner_lock import OwnerLock

SERVE = """
import os, subprocess, sys
from maadd.protocol.ownership import this_server
worker = '''
import sys, msgspec
from maadd.protocol.ownership import Server
from maadd_worker.disk.owner_lock import OwnerLock
server = msgspec.json.decode(sys.argv[2], type=Server)
lock = OwnerLock.acquire(sys.argv[1], "/run/maad.sock", server)
print("held", flush=True)
sys.stdin.read()
'''
import msgspec
line = msgspec.json.encode(this_server("http daemon", "/etc/maadd/instance.yaml", "2026-01-01"))
child = subprocess.Popen(
    [sys.executable, "-c", worker, sys.argv[1], line], stdin=subprocess.PIPE
)
sys.stdin.read()
"""
"""A server whose worker holds the project until its server is gone."""

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


def test_a_line_with_numbers_of_no_process_names_nobody(tmp_path, hold):
    hold()
    server = '{"pid":99999999999,"started":1,"kind":"x","serves":"/","since":""}'
    for line in (
        '{"pid":1000000000000000000000000000000}',
        '{"pid":2147483648}',
        '{"pid":0}',
        '{"pid":-1}',
        '{"pid":1,"started":-1}',
        '{"pid":1,"started":100000000000000000000}',
        f'{{"pid":1,"server":{server}}}',
        "[" * 4000,
        "",
    ):
        (tmp_path / LOCK_PATH).write_text(line)
        assert read_owner(str(tmp_path)) == Owner()
        with pytest.raises(MaadError) as caught:
            OwnerLock.acquire(str(tmp_path), "/run/x.sock")
        assert caught.value.code == "PROJECT_LOCKED"


def test_a_pipe_in_the_place_of_the_lock_is_not_waited_for(tmp_path):
    (tmp_path / LOCK_PATH).parent.mkdir()
    os.mkfifo(tmp_path / LOCK_PATH)
    assert read_owner(str(tmp_path)) is None
    assert last_owner(str(tmp_path)) == Owner()


def test_the_file_says_who_owns_the_project(tmp_path):
    lock = OwnerLock.acquire(str(tmp_path), "/run/x.sock")
    text = (tmp_path / LOCK_PATH).read_text()
    line = msgspec.json.decode(text)
    assert (line["pid"], line["endpoint"], line["server"]) == (os.getpid(), "/run/x.sock", None)
    assert last_owner(str(tmp_path)).process == identify(os.getpid())
    assert text.endswith("\n")
    lock.release()


def test_a_second_process_is_refused_and_told_the_owner(tmp_path, hold):
    child = hold()
    with pytest.raises(MaadError) as refusal:
        OwnerLock.acquire(str(tmp_path), None)
    assert refusal.value.code == "PROJECT_LOCKED"
    assert refusal.value.details == {"scope": "project", "ownerPid": child.pid}
    owner = read_owner(str(tmp_path))
    assert owner is not None
    assert (owner.pid, owner.endpoint) == (child.pid, "/run/maad.sock")


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
    child = hold("ro")
    reader = OwnerLock.acquire(str(tmp_path), None, read_only=True)
    with pytest.raises(MaadError, match="PROJECT_LOCKED") as refusal:
        OwnerLock.acquire(str(tmp_path), None)
    # Readers write nothing of themselves: the line is of an owner of before.
    assert refusal.value.details["ownerPid"] in (child.pid, os.getpid())
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
    child = hold()
    (tmp_path / LOCK_PATH).write_bytes(line)
    assert read_owner(str(tmp_path)) == Owner()
    with pytest.raises(MaadError) as refusal:
        OwnerLock.acquire(str(tmp_path), None)
    assert refusal.value.details == {"scope": "project", "ownerPid": child.pid}


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


# -- the server behind the owner -----------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("http daemon", "send the request to that server, or stop it"),
        (STDIO_SERVER, "end the program that started it, or use the project through that"),
        (COMMAND, "wait until it is done, or end it"),
    ],
)
def test_the_refusal_names_the_server_and_the_next_step(tmp_path, kind, advice):
    since = "2026-01-02T03:04:05.000Z"
    server = this_server(kind, "/srv/team/instance.yaml", since)
    lock = OwnerLock.acquire(str(tmp_path), None, server)
    with pytest.raises(MaadError) as refusal:
        OwnerLock.acquire(str(tmp_path), None)
    lock.release()
    assert refusal.value.details == {"scope": "project", "ownerPid": os.getpid()}
    assert refusal.value.message == (
        f"the project is open in the {kind} of instance.yaml "
        f"(process {os.getpid()}, since {since}); {advice}"
    )


@pytest.fixture
def serve(tmp_path: Path):
    """A server with a worker that holds the project; gives both processes."""
    server = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    assert server.stdout.readline() == "held\n"
    owner = last_owner(str(tmp_path))
    assert owner.pid is not None
    worker = os.pidfd_open(owner.pid)
    yield server, worker
    server.kill()
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(worker, signal.SIGKILL)
    server.communicate()
    os.close(worker)


def has_ended(process: int, wait_s: float = 0) -> bool:
    return bool(select.select([process], [], [], wait_s)[0])


def kill_server(server: subprocess.Popen[str]) -> None:
    server.kill()
    server.wait()


def test_a_stopped_worker_of_a_dead_server_is_ended_for_the_next_owner(
    tmp_path, serve, monkeypatch
):
    monkeypatch.setattr(abandoned_lock, "_GRACE_S", 0.1)
    server, worker = serve
    signal.pidfd_send_signal(worker, signal.SIGSTOP)
    kill_server(server)
    before = last_owner(str(tmp_path))
    lock = OwnerLock.acquire(str(tmp_path), None)
    assert lock.ended == before
    assert has_ended(worker)
    assert last_owner(str(tmp_path)).pid == os.getpid()
    lock.release()


def test_a_reader_is_let_in_by_the_same_rule(tmp_path, serve, monkeypatch):
    monkeypatch.setattr(abandoned_lock, "_GRACE_S", 0.1)
    server, worker = serve
    signal.pidfd_send_signal(worker, signal.SIGSTOP)
    kill_server(server)
    OwnerLock.acquire(str(tmp_path), None, read_only=True).release()
    assert has_ended(worker)


def test_a_worker_that_leaves_by_itself_is_waited_for(tmp_path, serve):
    server, worker = serve
    kill_server(server)
    # Its standard input has ended with its server, and it leaves.
    lock = OwnerLock.acquire(str(tmp_path), None)
    assert lock.ended is None
    assert has_ended(worker, 10)
    lock.release()


def test_a_stopped_worker_of_a_living_server_is_left_alone(tmp_path, serve):
    server, worker = serve
    signal.pidfd_send_signal(worker, signal.SIGSTOP)
    with pytest.raises(MaadError) as refusal:
        OwnerLock.acquire(str(tmp_path), None)
    assert refusal.value.details["ownerPid"] == server.pid
    os.kill(server.pid, signal.SIGSTOP)
    with pytest.raises(MaadError, match="kill -CONT"):
        OwnerLock.acquire(str(tmp_path), None)
    assert not has_ended(worker)


def test_a_line_that_names_somebody_else_gets_nobody_killed(tmp_path, serve, monkeypatch):
    monkeypatch.setattr(abandoned_lock, "_GRACE_S", 0.01)
    server, worker = serve
    signal.pidfd_send_signal(worker, signal.SIGSTOP)
    kill_server(server)
    true_line = last_owner(str(tmp_path))
    assert true_line.is_abandoned
    # A process of the same user that holds no lock, exactly described.
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander:
        found = identify(bystander.pid)
        assert found is not None
        innocent = {"pid": bystander.pid, "started": found.started}
        for change in (
            innocent,
            {"started": (true_line.started or 0) + 1},
            {"realm": "another machine"},
            {"realm": None},
            {"server": None},
        ):
            line = msgspec.structs.replace(true_line, **change)
            (tmp_path / LOCK_PATH).write_bytes(msgspec.json.encode(line))
            with pytest.raises(MaadError, match="PROJECT_LOCKED"):
                OwnerLock.acquire(str(tmp_path), None)
        assert bystander.poll() is None
        bystander.communicate(b"\n")
    assert not has_ended(worker)


def test_a_command_that_holds_a_project_for_itself_is_never_abandoned():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    found = identify(child.pid)
    assert found is not None
    server = Server(found.pid, found.started, COMMAND, "/p", "2026")
    owner = Owner(found.pid, None, found.started, found.realm, server)
    child.communicate(b"\n")
    assert not owner.is_abandoned


def test_a_process_is_known_by_its_start():
    itself = identify(os.getpid())
    assert itself is not None
    assert is_running(itself)
    assert not is_gone(itself)
    earlier = msgspec.structs.replace(itself, started=itself.started - 1)
    assert is_gone(earlier)
    elsewhere = msgspec.structs.replace(itself, realm="elsewhere", pid=2**22 + 1)
    assert not is_gone(elsewhere)
    assert not is_running(elsewhere)
    assert is_gone(ProcessIdentity(2**22 + 1, 1, itself.realm))


def test_a_process_that_only_waits_to_be_collected_is_gone():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = identify(child.pid)
        assert found is not None
        assert child.stdin is not None
        child.stdin.close()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_gone(found)
