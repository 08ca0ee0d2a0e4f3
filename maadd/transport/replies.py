"""HTTP answers: prepared error bodies, and one object that sends an answer (spec 04 §9)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import msgspec

from maadd.protocol.bounded_errors import bounded
from maadd.protocol.errors import ERROR_CODES, WireError
from maadd.transport.messages import error_response

AsgiMessage = MutableMapping[str, Any]
Send = Callable[[AsgiMessage], Awaitable[None]]
Receive = Callable[[], Awaitable[AsgiMessage]]
Scope = Mapping[str, Any]
Headers = list[tuple[bytes, bytes]]

SendWhole = Callable[[int, Headers, bytes], bool]

WHOLE_ANSWERS = "maadd.whole_answers"
"""The extension of the ASGI scope that sends status, headers and body in one write (`SendWhole`);
False when it did nothing, because this answer must go the ordinary way."""

NOSNIFF = (b"x-content-type-options", b"nosniff")
CLOSE = (b"connection", b"close")

_JSON = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), NOSNIFF]
_EVENTS = [(b"content-type", b"text/event-stream"), NOSNIFF]
_POST_EVENTS = [*_EVENTS, (b"cache-control", b"no-cache")]
_GET_EVENTS = [*_EVENTS, (b"cache-control", b"no-cache, no-transform")]
_KEEP_ALIVE = b": keep-alive\n\n"


class Answer(msgspec.Struct, frozen=True):
    """A complete HTTP answer; `code` names a refusal in the metrics."""

    status: int
    body: bytes
    headers: Headers
    code: str = ""


def refusal(
    code: str,
    message: str,
    *extra: tuple[bytes, bytes],
    status: int | None = None,
    details: dict[str, Any] | None = None,
) -> Answer:
    """An error of our own layer: `{"ok":false,"errors":[{code,message,details?}]}`."""
    error = bounded(WireError(code, message, details))
    body = msgspec.json.encode({"ok": False, "errors": [error]})
    http = status or ERROR_CODES[code].http or 500
    return Answer(http, body, [*_JSON, *extra], code)


def json_answer(status: int, body: bytes) -> Answer:
    """A finished JSON text as an answer."""
    return Answer(status, body, _JSON)


def rpc_refusal(status: int, code: int, message: str, *extra: tuple[bytes, bytes]) -> Answer:
    """An error of the MCP layer, without a request id."""
    body = error_response(None, code, message)
    return Answer(status, body, [*_JSON, *extra], f"RPC{code}")


def event(message: bytes) -> bytes:
    """One server-sent event around a JSON-RPC message."""
    return b"event: message\ndata: " + message + b"\n\n"


class Reply:
    """Sends the answer to one HTTP request, at once or as a stream of events."""

    __slots__ = ("_finished", "_send", "_send_whole", "_streaming", "started")

    def __init__(self, scope: Scope, send: Send) -> None:
        self._send = send
        self._send_whole: SendWhole | None = scope.get("extensions", {}).get(WHOLE_ANSWERS)
        self._streaming: asyncio.Lock | None = None
        self._finished = False
        self.started = False

    async def send(self, answer: Answer) -> None:
        """Send a complete answer."""
        await self._complete(answer.status, answer.headers, answer.body)

    async def json(self, message: bytes, *extra: tuple[bytes, bytes]) -> None:
        """Send one JSON-RPC message (or batch) as plain JSON."""
        await self._complete(200, [*_JSON, *extra], message)

    async def empty(self, status: int) -> None:
        """Send headers alone."""
        await self._complete(status, [NOSNIFF], b"")

    async def events(self, body: bytes, *extra: tuple[bytes, bytes]) -> None:
        """Send the last events of a POST: the whole stream, where none was begun before."""
        if self._streaming is None:
            await self._complete(200, [*_POST_EVENTS, *extra], body)
            return
        self._finished = True
        async with self._streaming:
            await self._send({"type": "http.response.body", "body": body})

    async def event(self, message: bytes) -> None:
        """Send one message of a POST ahead of its answer."""
        await self._chunk(event(message))

    async def keep_alive(self) -> None:
        """Send a comment, so that proxies keep the connection."""
        await self._chunk(_KEEP_ALIVE)

    async def open_stream(self) -> None:
        """Begin the stream of a GET."""
        await self._begin(_GET_EVENTS)

    async def chunk(self, body: bytes) -> None:
        """Send more of a stream."""
        await self._chunk(body)

    async def relay(self, message: AsgiMessage) -> None:
        """Pass on an ASGI message of an application that answers in our place."""
        self.started = True
        await self._send(message)

    async def end(self) -> None:
        """End a stream."""
        await self.events(b"")

    async def _chunk(self, body: bytes) -> None:
        if self._finished:  # progress that is reported too late
            return
        if self._streaming is None:
            await self._begin(_POST_EVENTS)
        assert self._streaming is not None
        # Progress and keep-alive come from different tasks.
        async with self._streaming:
            await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def _begin(self, headers: Headers) -> None:
        self.started = True
        self._streaming = asyncio.Lock()
        async with self._streaming:
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _complete(self, status: int, headers: Headers, body: bytes) -> None:
        self.started = self._finished = True
        if self._send_whole is not None and self._send_whole(status, headers, body):
            return
        length = (b"content-length", b"%d" % len(body))
        await self._send(
            {"type": "http.response.start", "status": status, "headers": [*headers, length]}
        )
        await self._send({"type": "http.response.body", "body": body})
