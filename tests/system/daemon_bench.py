"""Real daemons on real instances, and a small MCP client over HTTP."""

from __future__ import annotations

import atexit
import copy
import functools
import http.client
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent

TRANSCRIPTS = Path(__file__).parents[3] / "shared" / "vectors" / "transcripts"
"""Golden conversations, in a folder that may lie beside the repository."""

ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("MAAD")},
    "MAAD_RL_DISABLE": "1",
    "MAADD_FSYNC": "0",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}

REGISTRY = """\
types:
  note:
    path: notes
    id_prefix: nte
    schema: note.v1
"""

SCHEMA = """\
type: note
version: 1
required: [doc_id, title]
fields:
  title: {type: string, index: true}
  rank: {type: number, index: true}
"""


def run(*command: str | Path, cwd: Path | None = None, check: bool = True) -> str:
    """The standard output of a command."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        check=check,
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
    )
    return done.stdout


def make_project(path: Path, *, records: int = 0, indexed: bool = False) -> Path:
    """A project with one type, `records` committed notes and a repository."""
    return shutil.copytree(_prototype(records, indexed), path, symlinks=True)


@functools.cache
def _prototype(records: int, indexed: bool) -> Path:
    """What projects are copies of, for as long as this process lives."""
    path = _scratch() / f"{records}-{indexed}"
    if indexed:
        make_project(path, records=records)
        run(BIN / "maad", "reindex", f"--project={path}")
        return path
    (path / "_registry").mkdir(parents=True)
    (path / "_schema").mkdir()
    (path / "notes").mkdir()
    (path / "_registry/object_types.yaml").write_text(REGISTRY)
    (path / "_schema/note.v1.yaml").write_text(SCHEMA)
    (path / ".gitignore").write_text("_backend/\n_import/\n")
    for number in range(records):
        (path / f"notes/nte-{number}.md").write_text(
            f"---\ndoc_id: nte-{number}\ndoc_type: note\nschema: note.v1\n"
            f"title: Note {number}\nrank: {number}\n---\n\n# Note {number}\n"
        )
    identity = ("-c", "user.name=P", "-c", "user.email=p@example.invalid")
    run("git", "init", "-q", "-b", "main", cwd=path)
    run("git", "add", ".", cwd=path)
    run("git", *identity, "commit", "-q", "-m", "fixture", cwd=path)
    return path


@functools.cache
def _scratch() -> Path:
    """A directory for this process, removed at its end."""
    made = tempfile.TemporaryDirectory(prefix="maadd-prototypes-")
    atexit.register(made.cleanup)
    return Path(made.name)


@functools.cache
def _registered() -> tuple[Path, str]:
    """The `_auth` directory with an admin's token for all projects, and that token."""
    folder = _scratch() / "registered"
    path = write_instance(folder)
    token = run(
        BIN / "maad",
        "auth",
        "issue-token",
        f"--instance={path}",
        "--role=admin",
        "--projects=*",
        "--agent=agt-test",
    )
    return folder / "_auth", token.strip()


def write_instance(folder: Path) -> Path:
    """An instance file with one project `main`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "instance.yaml"
    path.write_text("name: test\nprojects:\n  - name: main\n    path: ./main\n    role: admin\n")
    return path


class Client:
    """One MCP session over a keep-alive connection."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        self._numbers = itertools.count(1)

    def post(
        self, message: dict[str, Any] | list[dict[str, Any]]
    ) -> tuple[int, dict[str, str], bytes]:
        self._connection.request("POST", "/mcp", json.dumps(message), self._headers)
        answer = self._connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        number = next(self._numbers)
        status, headers, body = self.post(
            {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        )
        assert status == 200, body
        if method == "initialize":
            self._headers["Mcp-Session-Id"] = headers["mcp-session-id"]
        if headers["content-type"].startswith("text/event-stream"):
            data = [line[6:] for line in body.splitlines() if line.startswith(b"data: ")]
            (body,) = data
        answer: dict[str, Any] = json.loads(body)
        return answer

    def initialize(self) -> None:
        self.request(
            "initialize",
            {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        )
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The envelope of a tool call."""
        answer = self.request("tools/call", {"name": tool, "arguments": arguments})
        envelope: dict[str, Any] = json.loads(answer["result"]["content"][0]["text"])
        assert answer["result"].get("isError", False) is not envelope["ok"]
        return envelope

    def ok(self, tool: str, **arguments: Any) -> Any:
        envelope = self.call(tool, **arguments)
        assert envelope["ok"], envelope
        return envelope["data"]

    def refused(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The first error of a tool call that must fail."""
        envelope = self.call(tool, **arguments)
        assert not envelope["ok"], envelope
        error: dict[str, Any] = envelope["errors"][0]
        return error

    def twin(self) -> Client:
        """The same session over a connection of its own, for calls at the same time."""
        twin = copy.copy(self)
        twin._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        return twin

    def open_stream(self) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """The standing stream of the session, on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
        connection.request("GET", "/mcp", headers={**self._headers, "Accept": "text/event-stream"})
        response = connection.getresponse()
        assert response.status == 200
        return connection, response

    def end(self) -> int:
        """End the session; the status of the answer."""
        self._connection.request("DELETE", "/mcp", headers=self._headers)
        answer = self._connection.getresponse()
        answer.read()
        return answer.status

    def close(self) -> None:
        self._connection.close()


class Daemon:
    """`maadd`, or another `program`, on an instance; ended at the end of the test by its process
    id."""

    def __init__(
        self,
        instance: Path,
        *flags: str,
        program: Sequence[str] = (str(BIN / "maadd"),),
        **environment: str,
    ) -> None:
        self.instance = instance
        self.log_path = instance.parent / f"daemon-{time.monotonic_ns()}.log"
        self._log = self.log_path.open("wb")
        self.process = subprocess.Popen(
            [
                *program,
                f"--instance={instance}",
                "--transport=http",
                f"--http-port={free_port()}",
                *flags,
            ],
            env={**ENVIRONMENT, "MAADD_RUNTIME_DIR": str(instance.parent / "run"), **environment},
            stderr=self._log,
            stdin=subprocess.DEVNULL,
        )

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def wait_until_listening(self) -> int:
        """The port that the daemon says it listens on."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.process.poll() is None:
            found = re.search(r'"port":(\d+)[^\n]*"msg":"listening"', self.log)
            if found:
                return int(found[1])
            time.sleep(0.02)
        raise AssertionError(self.log)

    def client(self, token: str) -> Client:
        client = Client(self.wait_until_listening(), token)
        client.initialize()
        return client

    def descendants(self) -> list[int]:
        """Every process below the daemon, by id."""
        return descendants(self.process.pid)

    def stop(self, number: int = signal.SIGTERM, timeout: float = 30) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout)
        self._log.close()
        return code


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def descendants(pid: int) -> list[int]:
    """Every living process below `pid`, by id."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            parents[int(stat.parent.name)] = int(fields[1])
    below = [child for child, parent in parents.items() if parent == pid]
    for child in list(below):
        below += descendants(child)
    return below


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def eventually(condition: Callable[[], bool], timeout: float = 10) -> bool:
    """Whether the condition holds before the time is over."""
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            return False
        pause.wait(0.02)
    return True


class Instance:
    """An instance file with one project `main`, and an admin token."""

    def __init__(self, folder: Path, records: int = 20, *, indexed: bool = False) -> None:
        self.project = make_project(folder / "main", records=records, indexed=indexed)
        self.path = write_instance(folder)
        registry, self.token = _registered()
        shutil.copytree(registry, folder / "_auth")
