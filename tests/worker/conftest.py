"""A small real project and an engine on it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from maadd.protocol.messages import (
    Call,
    HistorySettings,
    Identity,
    Reply,
    WorkerConfig,
    WorkerSettings,
)
from maadd.protocol.tools import TOOLS, ToolKind
from maadd_worker.engine import Engine
from maadd_worker.semantic.providers.embedder import Embedder

sys.path.insert(0, str(Path(__file__).parent))

REGISTRY = """\
types:
  ship:
    path: ships
    id_prefix: shp
    schema: ship.v1
  voyage:
    path: voyages
    id_prefix: voy
    schema: voyage.v1
"""

SHIP = """\
type: ship
version: 1
required: [doc_id, name]
fields:
  name: {type: string, index: true, max_length: 40}
  tonnage: {type: number, index: true}
  built: {type: date, index: true, store_precision: day}
  tags: {type: list, item_type: string, index: true}
template:
  headings:
    - {level: 1, text: "{{name}}", id: top}
"""

VOYAGE = """\
type: voyage
version: 1
required: [doc_id, ship]
fields:
  ship: {type: ref, target: ship, index: true}
  stops: {type: list, item_type: ref, target: ship}
"""

GIT = ("git", "-c", "user.name=Someone", "-c", "user.email=someone@example.invalid")


def git(root: Path, *arguments: str) -> str:
    """The output of one git command run by a person in the project."""
    done = subprocess.run([*GIT, *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout


def pause(wait: float) -> None:
    """Let time pass for an engine that wants to be called again in `wait` seconds, as its writer
    thread does; no longer than a moment, since other threads may be done before."""
    threading.Event().wait(min(wait, 0.02))


class Gate:
    """Admits every write, or none."""

    def __init__(self, admits: bool) -> None:
        self._admits = admits

    def admit(self, request_id: str) -> bool:
        return self._admits

    def defer(self, request_id: str) -> None:
        """The reply comes later."""

    def depth(self) -> int:
        return 0


class Harness:
    """Calls tools of an engine the way a worker does, one after the other or as a group."""

    def __init__(
        self,
        root: Path,
        mode: str,
        *,
        max_writes: int | None = None,
        max_delay_ms: int | None = None,
        embedder: Embedder | None = None,
        external_edits: str = "index",
        **settings: Any,
    ) -> None:
        self.root = root
        self.embedder = embedder
        self.mode = mode
        self._thresholds = max_writes, max_delay_ms
        self._external_edits = external_edits
        self._settings = WorkerSettings(**{"watch": "off", "fsync": False, **settings})
        self._number = 0
        self.admits = True
        self.engine = self.open()
        self._reader = self.engine.open_reader()

    def open(self) -> Engine:
        config = WorkerConfig(
            project="default",
            root=str(self.root),
            generation=1,
            endpoint="",
            control_endpoint=None,
            history=HistorySettings(
                self.mode, self.mode, "project", *self._thresholds, self._external_edits
            ),
            settings=self._settings,
        )
        return Engine.open(config, lambda _: None, self.embedder)

    def reopen(self) -> None:
        """Close the engine and open the project again."""
        self.close()
        self.engine = self.open()
        self._reader = self.engine.open_reader()

    def request(self, tool: str, args: dict[str, Any], **more: Any) -> Call:
        self._number += 1
        return Call(
            request_id=f"r{self._number}",
            tool=tool,
            args=args,
            role=2,
            session_id="s",
            generation=1,
            deadline_ms=30_000,
            is_write=TOOLS[tool].kind is ToolKind.WRITE,
            **more,
        )

    def group(self, *calls: Call) -> list[Reply]:
        """The replies of writes that wait together, in the order of the calls."""
        replies = {reply.request_id: reply for reply in self.deliveries(*calls)}
        return [replies[call.request_id] for call in calls]

    def deliveries(self, *calls: Call) -> list[Reply]:
        """Whatever is delivered for writes that wait together."""
        replies: list[Reply] = []
        self.begin(replies.append, *calls)
        while self.engine.jobs.running:
            self.engine.settle(False)
        return replies

    def begin(self, deliver: Callable[[Reply], None], *calls: Call) -> None:
        """Have writes performed; what is left to a job is not waited for."""
        self.engine.write_group(calls, Gate(self.admits), deliver)

    def reply(self, tool: str, identity: Identity | None = None, **args: Any) -> Reply:
        call = self.request(tool, args, identity=identity)
        if call.is_write:
            return self.group(call)[0]
        return self.engine.read(call, self._reader)

    def ok(self, tool: str, **args: Any) -> Any:
        """The data of a call that must succeed."""
        reply = self.reply(tool, **args)
        assert reply.ok, reply.body
        return msgspec.json.decode(reply.body)

    def error(self, tool: str, **args: Any) -> dict[str, Any]:
        """The first error of a call that must fail."""
        reply = self.reply(tool, **args)
        assert not reply.ok, reply.body
        errors: list[dict[str, Any]] = msgspec.json.decode(reply.body)
        assert reply.error_code == errors[0]["code"]
        return errors[0]

    def git(self, *arguments: str) -> str:
        """The output of a git command in the project."""
        return git(self.root, *arguments)

    def index_trigger(self, body: str) -> None:
        """Have the index do something of its own at a write, until the engine is closed."""
        self.engine._index.writer().connection.execute(f"CREATE TEMP TRIGGER meddle {body}")

    def settle(self) -> None:
        """Let everything finish that may lag behind the answers, short of the housekeeping of
        a quiet second."""
        while (wait := self.engine.settle(True)) is not None and wait < 0.6:
            pause(wait)

    def catch_up(self) -> None:
        """Let the Git index file show the commits, without waiting for a quiet moment."""
        while (wait := self.engine._history.settle(False)) is not None:
            pause(wait)

    def text(self, path: str) -> str:
        return (self.root / path).read_bytes().decode()

    def close(self) -> None:
        self._reader.close()
        self.engine.close()


OpenProject = Callable[..., Harness]


@pytest.fixture(scope="session")
def engine_class() -> type[Harness]:
    """Opens an engine on any project: root, history mode, settings."""
    return Harness


@pytest.fixture(scope="session")
def crash_base(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The project that rounds of crashes and faults begin with a copy of."""
    from crash_rounds import Base

    return Base(tmp_path_factory.mktemp("crash") / "base", Harness)


def make_project(root: Path) -> Path:
    """An empty project with two types and a repository of one commit."""
    (root / "_registry").mkdir()
    (root / "_schema").mkdir()
    (root / "_registry/object_types.yaml").write_text(REGISTRY)
    (root / "_schema/ship.v1.yaml").write_text(SHIP)
    (root / "_schema/voyage.v1.yaml").write_text(VOYAGE)
    (root / ".gitignore").write_text("_backend/\n_import/\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "fixture")
    return root


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """See `make_project`."""
    return make_project(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """An engine in mode `audit` for all tests of a module, each with records of its own."""
    harness = Harness(make_project(tmp_path_factory.mktemp("shared")), "audit")
    yield harness
    harness.close()


@pytest.fixture
def open_project(project: Path) -> Iterator[OpenProject]:
    """Opens engines on the project; they are closed at the end of the test."""
    opened: list[Harness] = []

    def opener(mode: str = "audit", **settings: Any) -> Harness:
        harness = Harness(project, mode, **settings)
        opened.append(harness)
        return harness

    yield opener
    for harness in opened:
        harness.close()


@pytest.fixture
def watched(open_project: OpenProject) -> Callable[..., Any]:
    """Opens the project as a server does, its files followed."""
    from watched_project import Watched

    def opener(mode: str = "audit", **settings: Any) -> Watched:
        return Watched(open_project(mode, **{"watch": "auto", **settings}))

    return opener
