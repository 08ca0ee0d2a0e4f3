"""What stands between a planned write and its publication."""

from __future__ import annotations

from typing import Protocol


class Gate(Protocol):
    """Asked by the engine right before a write becomes visible."""

    def admit(self, request_id: str) -> bool:
        """Whether the write may be published now.

        True: it is past its publish point and can no longer be withdrawn. False: nobody
        wants it any more, or it waited too long; nothing of it may be published.
        """
        ...

    def defer(self, request_id: str) -> None:
        """The reply of an admitted write comes later, from a `settle`."""
        ...

    def depth(self) -> int:
        """Writes that wait or run."""
        ...
