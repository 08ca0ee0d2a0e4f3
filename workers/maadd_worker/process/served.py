"""What a worker process needs of an engine; `maadd_worker.engine.Engine` is the real one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from maadd.protocol.messages import Call, CallProgress, Event, Reply, WorkerConfig

Progress = Callable[[str], None]
Deliver = Callable[[Reply], None]


class Gate(Protocol):
    """Asked by the engine right before a write becomes visible."""

    def admit(self, request_id: str) -> bool:
        """Whether the write may be published now.

        True: it is past its publish point and can no longer be withdrawn. False: nobody
        wants it any more, or it waited too long; nothing of it may be published.
        """
        ...

    def depth(self) -> int:
        """Writes that wait or run."""
        ...


class ServedReader(Protocol):
    """The connections of one reading thread."""

    def interrupt(self) -> None:
        """Ends the read that runs now; called from another thread."""
        ...

    def close(self) -> None: ...


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

    def open_reader(self) -> ReaderT: ...

    def read(self, call: Call, reader: ReaderT) -> Reply:
        """The answer; domain failures are answers, not exceptions."""
        ...

    def is_short(self, call: Call) -> bool:
        """Whether the read is quick enough to run between two messages."""
        ...

    def write_group(self, calls: Sequence[Call], gate: Gate, deliver: Deliver) -> None:
        """Performs the writes in order and delivers one Reply for each admitted one."""
        ...

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

    def connect_log(self, warn: Callable[..., None]) -> None:
        """Hands over what logs a warning: its name, and members by keyword."""
        ...

    def poll_events(self) -> list[Event]:
        """The changes since the last call."""
        ...

    def close(self) -> bool:
        """Releases everything; False when something stays for the next start to recover."""
        ...


AnyEngine = ServedEngine[Any]
EngineFactory = Callable[[WorkerConfig, Progress], AnyEngine]
