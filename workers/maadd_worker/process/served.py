"""What a worker process needs of an engine; `maadd_worker.engine.Engine` is the real one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from maadd.protocol.messages import Call, CallProgress, Event, Reply, WorkerConfig
from maadd_worker.gate import Gate as Gate  # implementations find the whole contract here
from maadd_worker.outcome import Backlog

Progress = Callable[[str], None]
Deliver = Callable[[Reply], None]


class ServedReader(Protocol):
    """The connections of one reading thread."""

    def interrupt(self) -> None:
        """Ends the read that runs now; called from another thread."""
        ...

    def close(self) -> None: ...


class ServedJobs(Protocol):
    """The background jobs of an engine, as far as other threads are concerned."""

    @property
    def alone(self) -> int:
        """Jobs that no call waits for."""
        ...

    def leave(self, request_id: str, *, expired: bool) -> str | None:
        """The id of the job that a call waits for, whose caller leaves; the job goes on when the
        caller's time is over (`expired`), else it ends when nobody else wants it."""
        ...

    def stop(self) -> None:
        """The engine will be closed soon: answer who waits for a job."""
        ...


ReaderT = TypeVar("ReaderT", bound=ServedReader)


class ServedEngine(Protocol[ReaderT]):
    """An open project. The thread that opened it is the one that writes and closes."""

    @property
    def documents(self) -> int: ...

    @property
    def doc_types(self) -> list[str]:
        """The registered types."""
        ...

    @property
    def recovery_actions(self) -> list[str]: ...

    @property
    def index_empty(self) -> int | None:
        """Markdown files under the registered paths of an empty index; None in order."""
        ...

    @property
    def backlog(self) -> Backlog:
        """Told by every heartbeat; quick, and safe beside the writing thread."""
        ...

    def open_reader(self) -> ReaderT: ...

    def read(self, call: Call, reader: ReaderT) -> Reply:
        """The answer; domain failures are answers, not exceptions."""
        ...

    def is_short(self, call: Call, reader: ReaderT) -> bool:
        """Whether the read is quick enough to run between two messages."""
        ...

    def write_group(self, calls: Sequence[Call], gate: Gate, deliver: Deliver) -> None:
        """Performs the writes in order and delivers one Reply for each admitted one, at once or,
        for one that it defers, from a later `settle`."""
        ...

    @property
    def jobs(self) -> ServedJobs: ...

    def settle(self, idle: bool) -> float | None:
        """Does what may lag behind the answers; `idle` when no write is at hand.

        Returns the seconds until it wants to be called again, None when nothing is left.
        """
        ...

    def connect_wake(self, wake: Callable[[], None]) -> None:
        """Hands over a function, callable from any thread, that has `settle(True)` called."""
        ...

    def connect_progress(self, report: Callable[[CallProgress], None]) -> None:
        """Hands over what takes the progress of a write that takes long."""
        ...

    def connect_log(self, warn: Callable[..., None], info: Callable[..., None]) -> None:
        """Hands over what logs a warning and what logs something to know: its name, and members
        by keyword."""
        ...

    def forget_session(self, session_id: str) -> None:
        """Lets go of what is kept for a session; called from any thread."""
        ...

    def lost(self) -> str | None:
        """What was taken away of the files that the engine needs, None while all are there.

        It performs nothing more then, but for its `close`; quick, and from any thread.
        """
        ...

    def poll_events(self) -> list[Event]:
        """The changes since the last call."""
        ...

    def close(self) -> bool:
        """Releases everything; False when something stays for the next start to recover."""
        ...


AnyEngine = ServedEngine[Any]
EngineFactory = Callable[[WorkerConfig, Progress], AnyEngine]
