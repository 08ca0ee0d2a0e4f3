"""A project open for one command: through the process that owns it, or by an engine of its own
(spec 04 §19)."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from maadd.auth.timestamps import format_timestamp
from maadd.cli.control_client import (
    OnProgress,
    OwnedProject,
    OwnerGone,
    Unreachable,
    is_repeatable,
    worker_lost,
)
from maadd.cli.project_folder import refuse_no_project
from maadd.config.instance import synthesize_instance
from maadd.config.runtime_path import control_sockets
from maadd.config.settings import Settings
from maadd.protocol.control import HANDSHAKE_S
from maadd.protocol.errors import MaadError, MaadErrors, WireError, error_from_wire
from maadd.protocol.messages import Call, HistorySettings, Reply, WorkerConfig
from maadd.protocol.ownership import (
    COMMAND,
    last_owner,
    read_owner,
    this_server,
)
from maadd.protocol.roles import Role
from maadd.protocol.tools import TOOLS, ToolKind
from maadd.protocol.validation import check_arguments

if TYPE_CHECKING:
    from maadd_worker.engine import Engine

_SESSION = "command-line"
_DEADLINE_MS = 24 * 60 * 60 * 1000
"""A person ends a command that takes too long."""
_RETRY_S = 0.05
_STOPPING_S = 20.0
"""What a server that is stopping may take, beyond what one that does not answer is waited for."""

_IDLE_WAIT_S = 0.5
"""Enough for a server that may be asked, while the project is free."""

_READ = HistorySettings("read", "read", "cli")

Warn = Callable[[str], None]


class Access(Protocol):
    """How the calls of a command get to the project."""

    def answer(self, call: Call, on_progress: OnProgress | None) -> Reply:
        """The reply to a call; OwnerGone when somebody else has to be asked."""
        ...

    def close(self) -> bool:
        """Give the project up; False when something is left to the next start."""
        ...


class OneShot:
    """An open project that answers one call at a time. `open_alone` opens it without the server
    that serves it."""

    def __init__(
        self,
        open_access: Callable[[], Access],
        warn: Warn,
        open_alone: Callable[[], Access] | None = None,
    ) -> None:
        self._open_access = open_access
        self._open_alone = open_alone
        self._access = open_access()
        self._warn = warn
        self._reindexed = False

    def call(
        self, tool: str, args: Mapping[str, Any], *, on_progress: OnProgress | None = None
    ) -> Any:
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
            wants_progress=on_progress is not None,
            # The guard is for servers (spec 01 §14.6): what this run could not index is in its
            # report, and the guides are files alone.
            unguarded=self._reindexed or tool == "maad_instructions",
        )
        reply = self._answer(call, on_progress)
        if not reply.ok:
            errors = msgspec.json.decode(reply.body, type=list[WireError])
            raise MaadErrors([error_from_wire(error) for error in errors])
        self._reindexed = self._reindexed or tool == "maad_reindex"
        for advice in (reply.meta or {}).get("warnings", ()):
            self._warn(f"{advice['code']}: {advice['message']}")
        return msgspec.json.decode(reply.body)

    def close(self) -> None:
        """Give the project up."""
        if not self._access.close():
            self._warn("some history is not committed yet; the next start of the project does it")

    def _answer(self, call: Call, on_progress: OnProgress | None) -> Reply:
        while True:
            try:
                reply = self._access.answer(call, on_progress)
                if not _needs_own_engine(call, reply) or self._open_alone is None:
                    return reply
                self._access.close()
                self._access, self._open_alone = self._open_alone(), None
            except OwnerGone as gone:
                if call.is_write and gone.maybe_done and not is_repeatable(call.tool):
                    raise MaadErrors([worker_lost(call)]) from None
                self._access.close()
                self._access = self._open_access()


def _needs_own_engine(call: Call, reply: Reply) -> bool:
    """Whether a server may only read a project whose index has to be made anew: that is the
    business of the reindex that its owner asks for."""
    if reply.ok or call.tool != "maad_reindex":
        return False
    errors = msgspec.json.decode(reply.body, type=list[WireError])
    return any(error.code == "READ_ONLY" for error in errors)


class _OwnEngine:
    """The project in this process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def answer(self, call: Call, on_progress: OnProgress | None) -> Reply:
        if on_progress is not None:
            self._engine.connect_progress(on_progress)
        return self._write(call) if call.is_write else self._read(call)

    def close(self) -> bool:
        return self._engine.close()

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

    def wanted(self, request_id: str) -> bool:
        return True

    def permit(self, request_id: str) -> WireError | None:
        return None

    def defer(self, request_id: str) -> None:
        """Whoever calls waits for the reply anyway."""

    def depth(self) -> int:
        return 0


@contextlib.contextmanager
def open_project(root: str, settings: Settings, *, warn: Warn) -> Iterator[OneShot]:
    """The project at `root`: through a server that has it open, else owned by this process
    until the end of the block.

    Raises MaadErrors: REGISTRY_NOT_FOUND where there is no project, PROJECT_LOCKED while
    another process owns it that takes no commands, and what keeps an engine from opening.
    """
    try:
        refuse_no_project(root)
    except MaadError as failure:
        raise MaadErrors([failure]) from failure

    def open_alone() -> Access:
        try:
            return _open_engine(root, settings, reads_only=False)
        except MaadError as failure:
            raise MaadErrors([failure]) from failure

    one_shot = OneShot(lambda: _open_access(root, settings, warn), warn, open_alone)
    with contextlib.closing(one_shot) as project:
        yield project


def _open_access(root: str, settings: Settings, warn: Warn) -> Access:
    """The owner, or an engine where there is none. An owner that should answer and does not may
    be about to end, and is waited for. What servers share for reading is shared with them."""
    deadline = time.monotonic() + HANDSHAKE_S
    idle = _idle_server(root, warn) if read_owner(root) is None else None
    if idle is not None:
        return idle
    shared = unowned = False
    while True:
        unreachable: Unreachable | None = None
        endpoint = last_owner(root).endpoint
        if endpoint is not None:
            try:
                return OwnedProject.attach(endpoint, root, warn)
            except Unreachable as failure:
                unreachable = failure
        try:
            return _open_engine(root, settings, reads_only=shared)
        except MaadError as failure:
            if not shared and _cannot_write(failure):
                warn(f"the project is opened for reading only: {failure.message.partition(';')[0]}")
                shared = True
                continue
            if failure.code != "PROJECT_LOCKED":
                raise MaadErrors([failure]) from failure
            if not shared and read_owner(root) is None:
                # It was given up a moment ago; when that is not it, others only read.
                shared, unowned = unowned, True
                time.sleep(_RETRY_S)
                continue
            hopeless = unreachable is None or unreachable.final
            more_s = _STOPPING_S if unreachable is not None and unreachable.stopping else 0
            if hopeless or time.monotonic() >= deadline + more_s:
                raise MaadErrors([_locked(root, failure, unreachable)]) from failure
        time.sleep(_RETRY_S)


def _cannot_write(failure: MaadError) -> bool:
    """Whether a project cannot be owned that may be read all the same."""
    errno = (failure.details or {}).get("errno")
    return failure.code == "BACKEND_ERROR" and errno in ("EROFS", "EACCES")


def _idle_server(root: str, warn: Warn) -> OwnedProject | None:
    """A running server of the project that has no worker for it now; the call starts one."""
    last = last_owner(root).endpoint
    found = control_sockets(os.environ)
    for endpoint in found if last is None else [last, *found]:
        with contextlib.suppress(Unreachable):
            return OwnedProject.attach(endpoint, root, warn, wait_s=_IDLE_WAIT_S)
    return None


def _open_engine(root: str, settings: Settings, *, reads_only: bool) -> _OwnEngine:
    from maadd_worker.engine import Engine

    project = synthesize_instance(root, Role.ADMIN, settings).projects["default"]
    config = WorkerConfig(
        project=project.name,
        root=project.path,
        generation=0,
        endpoint="",
        control_endpoint=None,
        history=_READ if reads_only else project.history,
        settings=settings.worker(),
        server=this_server(COMMAND, project.path, format_timestamp(time.time())),
    )
    return _OwnEngine(Engine.open(config, lambda _phase: None))


def _locked(root: str, failure: MaadError, unreachable: Unreachable | None) -> MaadError:
    """Who holds the project, what to do about that, and why it cannot be asked."""
    reason = "it takes no commands" if unreachable is None else unreachable.reason
    reasons = [] if reason in failure.message else [reason]
    server = last_owner(root).server
    if server is not None and server.pid == (failure.details or {}).get("ownerPid"):
        reasons.insert(0, f"it serves {server.serves}")
    more = f" ({', and '.join(reasons)})" if reasons else ""
    return MaadError(failure.code, f"{failure.message}{more}", failure.details)
