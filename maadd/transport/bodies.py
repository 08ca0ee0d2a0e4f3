"""Request bodies: read as they arrive, never more than allowed (spec 04 §9.1, step 8a)."""

from __future__ import annotations

import asyncio

from maadd.transport.incoming import ClientGoneError, RefusedError
from maadd.transport.replies import CLOSE, AsgiMessage, Receive, refusal

TOO_LARGE = refusal("PAYLOAD_TOO_LARGE", "the request body is larger than allowed", CLOSE)
_BYTES_EXHAUSTED = refusal(
    "OVERLOADED",
    "too many request bytes are waiting; try again",
    CLOSE,
    details={"reason": "http_bytes", "retryAfterMs": 1000},
)


STOPPING = refusal("SHUTTING_DOWN", "the server is stopping; send the request again later", CLOSE)


class BodyReader:
    """Reads bodies of up to `cap` bytes, and `total` bytes over all requests at once."""

    __slots__ = ("_cap", "_held", "_refusing", "_total", "_waiting")

    def __init__(self, cap: int, total: int) -> None:
        self._cap = cap
        self._total = total
        self._held = 0
        self._refusing = False
        self._waiting: set[asyncio.Task[object]] = set()

    def refuse(self) -> None:
        """Refuse every body that has not arrived whole, now and from now on."""
        self._refusing = True
        for task in self._waiting:
            task.cancel()

    async def read(self, receive: Receive) -> bytes:
        """The whole body; give its length back with `release` when it is no longer held.

        Raises RefusedError (413, 503) and ClientGoneError.
        """
        message = await self._next(receive)
        chunk: bytes = message.get("body", b"")
        size = len(chunk)
        chunks = [chunk]
        self._held += size
        try:
            while True:
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                if size > self._cap:
                    raise RefusedError(TOO_LARGE)
                if self._held > self._total:
                    raise RefusedError(_BYTES_EXHAUSTED)
                if not message.get("more_body", False):
                    return chunk if len(chunks) == 1 else b"".join(chunks)
                if self._refusing:
                    raise RefusedError(STOPPING)
                message = await self._next(receive)
                chunk = message.get("body", b"")
                chunks.append(chunk)
                size += len(chunk)
                self._held += len(chunk)
        except BaseException:
            self._held -= size
            raise

    async def _next(self, receive: Receive) -> AsgiMessage:
        task = asyncio.current_task()
        assert task is not None
        self._waiting.add(task)
        try:
            return await receive()
        except asyncio.CancelledError:
            if not self._refusing or task.uncancel():
                raise
            raise RefusedError(STOPPING) from None
        finally:
            self._waiting.discard(task)

    def release(self, size: int) -> None:
        """The request whose body had this length has ended."""
        self._held -= size
