"""One engine for one command: the tools of a project without a server (spec 04 §19)."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from maadd.cli.scaffold import refuse_no_project
from maadd.config.instance import synthesize_instance
from maadd.config.settings import Settings
from maadd.protocol.errors import MaadError, MaadErrors, WireError, error_from_wire
from maadd.protocol.messages import Call, Reply, WorkerConfig
from maadd.protocol.roles import Role
from maadd.protocol.tools import TOOLS, ToolKind
from maadd.protocol.validation import check_arguments
from maadd_worker.engine import Engine

_SESSION = "command-line"
_DEADLINE_MS = 24 * 60 * 60 * 1000
"""A person ends a command that takes too long."""


class OneShot:
    """An open project that answers one call at a time."""

    def __init__(self, engine: Engine, warn: Callable[[str], None]) -> None:
        self._engine = engine
        self._warn = warn

    def call(self, tool: str, args: Mapping[str, Any]) -> Any:
        """The `data` of a tool's answer; its advice goes to `warn`. Raises MaadErrors."""
        spec = TOOLS[tool]
        try:
            kind = spec.kind_of(check_arguments(spec, dict(args)))
        except MaadError as failure:
            raise MaadErrors([failure]) from failure
        call = Call(
            request_id=str(uuid.uuid4()),
            tool=tool,
            args=dict(args),
            role=Role.ADMIN,
            session_id=_SESSION,
            generation=0,
            deadline_ms=_DEADLINE_MS,
            is_write=kind is ToolKind.WRITE,
        )
        if tool == "maad_instructions":
            # It works on files alone; the guard against an empty index is for servers.
            self._engine.index_empty = None
        reply = self._write(call) if call.is_write else self._read(call)
        if not reply.ok:
            errors = msgspec.json.decode(reply.body, type=list[WireError])
            raise MaadErrors([error_from_wire(error) for error in errors])
        if tool == "maad_reindex":
            # The guard against an empty index is for servers (spec 01 §14.6): here, what this
            # run could not index is in its report.
            self._engine.index_empty = None
        for advice in (reply.meta or {}).get("warnings", ()):
            self._warn(f"{advice['code']}: {advice['message']}")
        return msgspec.json.decode(reply.body)

    def _read(self, call: Call) -> Reply:
        with contextlib.closing(self._engine.open_reader()) as reader:
            return self._engine.read(call, reader)

    def _write(self, call: Call) -> Reply:
        replies: list[Reply] = []
        self._engine.write_group([call], _NobodyElse(), replies.append)
        self._engine.settle(True)
        while not replies:  # a job gives the answer
            self._engine.settle(True)
        (reply,) = replies
        return reply


class _NobodyElse:
    """The engine's view of other callers: none withdraws a write, none waits for one."""

    def admit(self, request_id: str) -> bool:
        return True

    def defer(self, request_id: str) -> None:
        """Whoever calls waits for the reply anyway."""

    def depth(self) -> int:
        return 0


@contextlib.contextmanager
def open_project(
    root: str, settings: Settings, *, warn: Callable[[str], None]
) -> Iterator[OneShot]:
    """The project at `root`, owned by this process until the end of the block.

    Raises MaadErrors: REGISTRY_NOT_FOUND where there is no project, PROJECT_LOCKED while
    another process owns it, and what keeps an engine from opening.
    """
    try:
        refuse_no_project(root)
    except MaadError as failure:
        raise MaadErrors([failure]) from failure
    project = synthesize_instance(root, Role.ADMIN, settings).projects["default"]
    config = WorkerConfig(
        project=project.name,
        root=project.path,
        generation=0,
        endpoint="",
        control_endpoint=None,
        history=project.history,
        settings=settings.worker(),
    )
    try:
        engine = Engine.open(config, lambda _phase: None)
    except MaadError as failure:
        raise MaadErrors([_with_next_step(failure)]) from failure
    try:
        yield OneShot(engine, warn)
    finally:
        if not engine.close():
            warn("some history is not committed yet; the next start of the project does it")


def _with_next_step(failure: MaadError) -> MaadError:
    """A lock says who holds it and what to do about that."""
    if failure.code != "PROJECT_LOCKED":
        return failure
    pid = (failure.details or {}).get("ownerPid")
    owner = "another process" if pid is None else f"process {pid}"
    return MaadError(
        failure.code,
        f"the project is open in {owner}; ask the server that it belongs to over MCP, or stop that "
        "server and try again",
        failure.details,
    )
