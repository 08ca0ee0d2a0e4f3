"""The notifications that wait for one session's stream (spec 04 §11)."""

from __future__ import annotations

import asyncio
from collections import deque


class NoticeQueue:
    """Finished JSON-RPC notifications on their way to one client; bounded, one reader.

    Without a reader nothing is kept: a client that opens no stream misses events and
    catches up by polling. A notice may have a topic, under which it can be dropped. Belongs
    to the event loop, like the session that owns it.
    """

    __slots__ = ("_closed", "_limit", "_reading", "_waiting", "_wake")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: deque[tuple[str | None, bytes]] = deque()
        self._wake = asyncio.Event()
        self._reading = False
        self._closed = False

    @property
    def limit(self) -> int:
        """How many notices may wait."""
        return self._limit

    @property
    def reading(self) -> bool:
        """Whether a stream is open to take what is offered."""
        return self._reading

    def offer(self, notice: bytes, topic: str | None = None) -> bool:
        """Queue `notice`; False when nobody reads or the queue is full."""
        if not self._reading or len(self._waiting) >= self._limit:
            return False
        self._waiting.append((topic, notice))
        self._wake.set()
        return True

    def drop_topics(self) -> set[str]:
        """Drop what waits and has a topic; the topics."""
        dropped = {topic for topic, _ in self._waiting if topic is not None}
        self._waiting = deque(entry for entry in self._waiting if entry[0] is None)
        return dropped

    def insist(self, notice: bytes, topic: str) -> None:
        """Queue a notice that stands for many dropped ones, also over the limit."""
        if self._reading:
            self._waiting.append((topic, notice))
            self._wake.set()

    def attach(self) -> bool:
        """Become the reader; False when there is one already, or the session is closed."""
        if self._reading or self._closed:
            return False
        self._reading = True
        self._wake.clear()
        return True

    def detach(self) -> None:
        """Stop reading: a `take` that waits returns None, what was queued is dropped."""
        self._reading = False
        self._waiting.clear()
        self._wake.set()

    def close(self) -> None:
        """End the stream for ever, once what is queued has been taken."""
        self._closed = True
        self._wake.set()

    async def take(self, timeout_s: float | None) -> list[bytes] | None:
        """Everything queued; empty after `timeout_s` without news; None at the end."""
        if not self._waiting and self._reading and not self._closed:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._wake.wait()
            except TimeoutError:
                return []
        self._wake.clear()
        if self._waiting:
            notices = [notice for _, notice in self._waiting]
            self._waiting.clear()
            return notices
        return None if self._closed or not self._reading else []
