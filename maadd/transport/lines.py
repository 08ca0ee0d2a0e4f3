"""Lines of a byte stream, none longer than a cap (spec 04 §10)."""

from __future__ import annotations

from collections.abc import Iterator


class LineSplitter:
    """Cuts a stream into lines; of a line over `cap` bytes nothing is kept but the fact."""

    __slots__ = ("_cap", "_kept", "_parts", "_skipping")

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._parts: list[bytes] = []
        self._kept = 0
        self._skipping = False

    def feed(self, chunk: bytes) -> Iterator[bytes | None]:
        """The lines that `chunk` completes, without their newline; None for one too long."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            yield self._complete(chunk[start:end])
            start = end + 1
        self._keep(chunk[start:])

    def rest(self) -> bytes | None:
        """The last line of a stream that ended without a newline; empty when there is none."""
        return self._complete(b"")

    def _keep(self, part: bytes) -> None:
        if self._skipping or not part:
            return
        self._parts.append(part)
        self._kept += len(part)
        if self._kept > self._cap:
            self._parts.clear()
            self._skipping = True

    def _complete(self, part: bytes) -> bytes | None:
        self._keep(part)
        line = None if self._skipping else b"".join(self._parts)
        self._parts.clear()
        self._kept = 0
        self._skipping = False
        return line
