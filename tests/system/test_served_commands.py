"""Commands on a project that a server has open, and commands to the server itself (spec 04 §19)."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from daemon_bench import BIN, ENVIRONMENT, Client, Daemon, Instance, eventually, make_project, run

from maadd.protocol.control import Attached, Lost, decode_to_owner, encode
from maadd.protocol.messages import Cancel, Cancelled
from maadd.protocol.ownership import read_owner
from maadd_worker.disk.owner_lock import OwnerLock


class Served:
    """A daemon on one project; its runtime directory is not where commands would look first."""

    def __init__(self, folder: Path) -> None:
        self.instance = Instance(folder, records=5, indexed=True)
        self.project = self.instance.project
        self.runtime = folder / "run"
        self.daemon = Daemon(self.instance.path)
        self.client = self.connect()

    def connect(self) -> Client:
        client: Client = self.daemon.client(self.instance.token)
        client.ok("maad_use_project", name="main")
        return client

    def maad(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BIN / "maad", *words],
            capture_output=True,
            text=True,
            env={**ENVIRONMENT, **environment},
            check=False,
            timeout=50,
        )

    def on_project(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.maad(*words, f"--project={self.project}")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("served"))
    yield made
    made.daemon.stop(signal.SIGKILL)


def test_an_idle_server_of_the_project_is_asked_and_starts_its_worker(served: Served) -> None:
    assert read_owner(str(served.project)) is None
    runtime = {"MAADD_RUNTIME_DIR": str(served.runtime)}
    done = served.maad("get", "nte-1", f"--project={served.project}", **runtime)
    assert done.returncode == 0, done.stderr
    owner = read_owner(str(served.project))
    assert owner is not None
    assert owner.pid in served.daemon.descendants()
    assert owner.endpoint == f"{served.runtime}/control.sock"


def test_a_command_writes_through_the_server_which_tells_of_it(served: Served) -> None:
    served.client.ok("maad_summary")
    before = served.client.ok("maad_changes_since", limit=500)["resumeCursor"]
    done = served.on_project("create", "note", "--field", "title=By a command")
    assert done.returncode == 0, done.stderr
    doc_id = json.loads(done.stdout)["docId"]
    assert served.client.ok("maad_get", docId=doc_id)["version"] == 1
    changed = served.client.ok("maad_changes_since", cursor=before)["changes"]
    assert [one["docId"] for one in changed] == [doc_id]
    lines = [json.loads(line) for line in served.daemon.log.splitlines()]
    [audit] = [one for one in lines if one["msg"] == "write" and one["doc_id"] == doc_id]
    assert (audit["session_id"], audit["role"]) == ("command-line", "admin")
    refused = served.on_project("update", doc_id, "--field", "title=x", "--expected-version=7")
    assert refused.returncode == 1
    assert "VERSION_CONFLICT" in refused.stderr


def test_an_import_goes_through_the_server_and_the_doctor_looks_on(
    served: Served, tmp_path: Path
) -> None:
    served.client.ok("maad_summary")
    source = tmp_path / "letters"
    source.mkdir()
    for number in range(3):
        text = f"---\r\nkind: a\r\nanswers: '[[letter-{number - 1}]]'\r\n---\r\nDear\r\n"
        (source / f"letter-{number}.md").write_bytes(text.encode())
    (source / "letter-0.md").write_bytes(b"---\nkind: a\n---\nFirst\r\n")
    done = served.on_project("import", str(source))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["created"] == 3
    record = served.client.ok("maad_get", docId="ltt-letter-1")
    assert record["frontmatter"]["answers"] == "ltt-letter-0"
    assert json.loads(served.on_project("import", str(source)).stdout)["unchanged"] == 3
    owner = read_owner(str(served.project))
    assert owner is not None
    looked = served.on_project("doctor")
    assert looked.returncode == 0, looked.stdout
    checks = [one for group in json.loads(looked.stdout)["groups"] for one in group["checks"]]
    [found] = [one for one in checks if one["name"] == "owner"]
    assert found["text"].startswith(f"process {owner.pid} ")
    assert read_owner(str(served.project)) == owner


def test_a_first_index_is_made_through_the_server_and_commands_go_on_when_that_is_killed(
    tmp_path: Path, start: Any
) -> None:
    instance = Instance(tmp_path, records=2)
    daemon = start(instance)
    client = daemon.client(instance.token)
    client.ok("maad_use_project", name="main")
    assert client.call("maad_summary")["errors"][0]["code"] == "INDEX_EMPTY"
    project = f"--project={instance.project}"
    assert json.loads(run(BIN / "maad", "reindex", project))["indexed"] == 2
    assert client.ok("maad_summary")["totalDocuments"] == 2
    daemon.stop(signal.SIGKILL)
    assert (tmp_path / "run/control.sock").exists()
    assert json.loads(run(BIN / "maad", "create", "note", "--field=title=x", project))["docId"]


def test_an_index_that_a_reading_server_may_not_make_is_made_by_the_command(
    tmp_path: Path, start: Any
) -> None:
    instance = Instance(tmp_path, records=3)
    text = instance.path.read_text()
    instance.path.write_text(text.replace("    role:", "    history_mode: read\n    role:", 1))
    daemon = start(instance)
    client = daemon.client(instance.token)
    client.ok("maad_use_project", name="main")
    [error] = client.call("maad_summary")["errors"]
    assert error["code"] == "READ_ONLY"
    assert "maad reindex" in error["message"]
    done = subprocess.run(
        [BIN / "maad", "reindex", f"--project={instance.project}"],
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, "MAADD_RUNTIME_DIR": str(tmp_path / "run")},
        check=False,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["indexed"] == 3
    assert eventually(lambda: client.call("maad_summary")["ok"], 10)
    assert client.ok("maad_summary")["totalDocuments"] == 3


def test_status_and_reload_are_answered_by_the_running_server(served: Served) -> None:
    runtime = {"MAADD_RUNTIME_DIR": str(served.runtime)}
    instance = f"--instance={served.instance.path}"
    status = json.loads(served.maad("instance", "status", instance, **runtime).stdout)
    assert status["pid"] == served.daemon.process.pid
    assert status["projects"][0]["path"] == str(served.project)
    good = served.instance.path.read_text()
    other = make_project(served.project.parent / "other", records=1)
    served.instance.path.write_text(good + f"  - name: other\n    path: {other}\n")
    done = served.maad("instance", "reload", instance, **runtime)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["projectsAdded"] == ["other"]
    served.instance.path.write_text(good.replace("role: admin", "role: reader"))
    refused = served.maad("instance", "reload", instance, **runtime)
    assert refused.returncode == 1
    assert "INSTANCE_MUTATION_UNSUPPORTED" in refused.stderr
    served.instance.path.write_text("name: [")
    broken = served.maad("instance", "reload", instance, **runtime)
    assert broken.returncode == 1
    assert "PARSE_ERROR" in broken.stderr
    served.instance.path.write_text(good)
    # The lock of a project leads to the server where the environment does not.
    served.client.ok("maad_summary")
    done = served.maad("instance", "reload", instance)
    assert json.loads(done.stdout)["projectsRemoved"] == ["other"]


def test_a_reload_that_did_not_take_the_tokens_over_fails(served: Served) -> None:
    runtime = {"MAADD_RUNTIME_DIR": str(served.runtime)}
    stored = served.instance.path.parent / "_auth/tokens.yaml"
    good = stored.read_text()
    stored.write_text("tokens: [")
    done = served.maad("instance", "reload", f"--instance={served.instance.path}", **runtime)
    assert done.returncode == 1
    assert json.loads(done.stdout)["tokens"]["reloaded"] is False
    assert "TOKENS_FILE_INVALID: the token registry was not taken over" in done.stderr
    stored.unlink()
    done = served.maad("instance", "reload", f"--instance={served.instance.path}", **runtime)
    assert (done.returncode, json.loads(done.stdout)["tokens"]["total"]) == (0, 0)
    assert "no token is active now" in done.stderr
    stored.write_text(good)
    stored.chmod(0o600)
    done = served.maad("instance", "reload", f"--instance={served.instance.path}", **runtime)
    assert (done.returncode, json.loads(done.stdout)["tokens"]["reloaded"]) == (0, True)
    served.client = served.connect()  # the other ended with its token


def test_the_doctor_finds_a_server_that_is_stopped(served: Served) -> None:
    served.client.ok("maad_summary")
    pid = served.daemon.process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        done = served.on_project("doctor", "--json")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert done.returncode == 1
    assert f"process {pid} is stopped: commands wait in vain" in done.stdout
    assert f"kill -CONT {pid}" in done.stdout


@pytest.mark.parametrize("command", ["status", "reload"])
def test_a_stopped_server_is_named_as_such(served: Served, command: str) -> None:
    pid = served.daemon.process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        runtime = {"MAADD_RUNTIME_DIR": str(served.runtime)}
        done = served.maad("instance", command, f"--instance={served.instance.path}", **runtime)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert done.returncode == 1
    assert f"gives no answer: it is stopped: `kill -CONT {pid}` lets it go on" in done.stderr
    assert "start it" not in done.stderr


def test_a_reload_without_a_server_fails(tmp_path: Path) -> None:
    instance = Instance(tmp_path, records=0)
    done = subprocess.run(
        [BIN / "maad", "instance", "reload", f"--instance={instance.path}"],
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, "MAADD_RUNTIME_DIR": str(tmp_path / "run")},
        check=False,
    )
    assert done.returncode == 1
    assert "no server of" in done.stderr
    assert str(instance.path) in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_turned_away_even_where_the_file_modes_let_him_in(served: Served) -> None:
    path = served.runtime / "control.sock"
    opened = [*path.parents[:-1]]
    modes = {folder: folder.stat().st_mode for folder in opened}
    program = (
        "import os, socket, sys; os.setgid(65534); os.setuid(65534);"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); sys.exit(len(s.recv(1)))"
    )
    command = ["/usr/bin/env", "python3", "-c", program, str(path)]
    try:
        for folder in opened:
            folder.chmod(modes[folder] | 0o001)
        path.chmod(0o666)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        path.chmod(0o600)
        for folder in opened:
            folder.chmod(modes[folder] & 0o7777)
    assert done.returncode == 0, done.stderr
    assert eventually(lambda: '"msg":"control_refused"' in served.daemon.log)
    assert '"peer_uid":65534' in served.daemon.log


def test_nonsense_on_the_control_socket_disturbs_nobody(served: Served) -> None:
    for junk in (b"\xff\xff\xff\xff", b"\x00\x00\x00\x02hi", encode(Cancel("x")), b""):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(served.runtime / "control.sock"))
            connection.sendall(junk)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""
    assert served.client.ok("maad_get", docId="nte-1")["docId"] == "nte-1"


# -- an owner that misbehaves ------------------------------------------------------------


class FakeOwner:
    """Holds the project and takes commands; `act` is what it does with each call."""

    def __init__(self, project: Path, path: str, act: Any) -> None:
        self.lock = OwnerLock.acquire(str(project), path)
        self.messages: list[Any] = []
        self._act = act
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(path)
        self._server.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        connection, _ = self._server.accept()
        self._server.close()
        with connection:
            self._read(connection)
            connection.sendall(encode(Attached(os.getpid(), "test")))
            while body := self._read(connection):
                self.messages.append(decode_to_owner(body))
                if not self._act(self, connection, self.messages[-1]):
                    return

    @staticmethod
    def _read(connection: socket.socket) -> bytes:
        header = connection.recv(4, socket.MSG_WAITALL)
        if len(header) < 4:
            return b""
        return connection.recv(struct.unpack(">I", header)[0], socket.MSG_WAITALL)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "main", records=2, indexed=True)


def vanish(owner: FakeOwner, _connection: socket.socket, _message: Any) -> bool:
    owner.lock.release()
    return False


def test_a_read_whose_owner_vanishes_is_answered_all_the_same(project: Path) -> None:
    owner = FakeOwner(project, str(project.parent / "s"), vanish)
    done = run(BIN / "maad", "get", "nte-1", f"--project={project}")
    assert json.loads(done)["docId"] == "nte-1"
    assert [one.tool for one in owner.messages] == ["maad_get"]


def test_a_write_whose_owner_vanishes_may_have_been_done(project: Path) -> None:
    owner = FakeOwner(project, str(project.parent / "s"), vanish)
    command = [BIN / "maad", "call", "maad_create", '{"docType":"note","fields":{"title":"x"}}']
    done = subprocess.run(
        [*command, f"--project={project}"],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=False,
    )
    assert done.returncode == 1
    assert "WORKER_LOST" in done.stderr
    assert "unknown_reconcile" in done.stderr
    assert len(owner.messages) == 1
    assert not (project / "notes/nte-x.md").exists()


def test_a_write_that_the_owner_did_not_take_is_done_by_the_command(project: Path) -> None:
    def give_back(owner: FakeOwner, connection: socket.socket, call: Any) -> bool:
        connection.sendall(encode(Cancelled(call.request_id, withdrawn=True)))
        owner.lock.release()
        return False

    FakeOwner(project, str(project.parent / "s"), give_back)
    arguments = '{"docType":"note","fields":{"title":"x"}}'
    done = run(BIN / "maad", "call", "maad_create", arguments, f"--project={project}")
    assert json.loads(done)["docId"] == "nte-x"


def test_a_read_that_is_lost_with_the_worker_is_sent_once_more(project: Path) -> None:
    def lose(owner: FakeOwner, connection: socket.socket, call: Any) -> bool:
        connection.sendall(encode(Lost(call.request_id)))
        return len(owner.messages) < 2

    owner = FakeOwner(project, str(project.parent / "s"), lose)
    done = subprocess.run(
        [BIN / "maad", "get", "nte-1", f"--project={project}"],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=False,
    )
    assert done.returncode == 1
    assert "WORKER_LOST" in done.stderr
    assert len(owner.messages) == 2
    owner.lock.release()


def test_an_interrupted_command_withdraws_its_call(project: Path) -> None:
    called = threading.Event()

    def wait_for_cancel(_owner: FakeOwner, connection: socket.socket, message: Any) -> bool:
        called.set()
        if isinstance(message, Cancel):
            connection.sendall(encode(Cancelled(message.request_id, withdrawn=True)))
            return False
        return True

    owner = FakeOwner(project, str(project.parent / "s"), wait_for_cancel)
    command = subprocess.Popen(
        [
            BIN / "maad",
            "call",
            "maad_create",
            '{"docType":"note","fields":{"title":"x"}}',
            f"--project={project}",
        ],
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert called.wait(30)
    command.send_signal(signal.SIGINT)
    _, errors = command.communicate(timeout=30)
    assert command.returncode == 130
    assert "maad_create was withdrawn; nothing of it is done" in errors
    call, cancel = owner.messages
    assert cancel == Cancel(call.request_id)
    owner.lock.release()


def test_messages_of_another_version_are_taken_as_far_as_they_are_known() -> None:
    body = msgspec.msgpack.encode({"type": "cancel", "request_id": "x", "later": 1})
    assert decode_to_owner(body) == Cancel("x")
