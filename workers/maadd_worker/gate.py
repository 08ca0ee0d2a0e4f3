"""What stands between a call and its effect: asked by the engine, answered by its queue."""

from __future__ import annotations

from typing import Protocol

from maadd.protocol.errors import WireError


class Gate(Protocol):
    """The callers behind the writes of a group."""

    def admit(self, request_id: str) -> bool:
        """Whether the write may be published now.

        True: it is past its publish point and can no longer be withdrawn. False: nobody
        wants it any more, or it waited too long; nothing of it may be published.
        """
        ...

    def wanted(self, request_id: str) -> bool:
        """Whether somebody still waits for the call."""
        ...

    def permit(self, request_id: str) -> WireError | None:
        """Ask the front whether a guarded create may be published; why not, or None.

        Blocks until it answers, for at most `PERMIT_WAIT_S` and the call's own time.
        """
        ...

    def defer(self, request_id: str) -> None:
        """The reply of an admitted write comes later, from a `settle`."""
        ...

    def depth(self) -> int:
        """Writes that wait or run."""
        ...
