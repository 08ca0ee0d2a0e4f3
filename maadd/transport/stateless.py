"""MCP over HTTP for the stateless revision: each POST stands for itself (spec 04 §9.8).

A plain tool call is answered here; all else, and calls that report progress, the SDK serves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from maadd.config.settings import Settings
from maadd.sessions.stateless import CALLER_SCOPE_KEY, StatelessCaller
from maadd.transport.head import PROTOCOL_VERSION
from maadd.transport.incoming import DisconnectWatch, Incoming, RefusedError, remote_address
from maadd.transport.messages import SERVER_ERROR, NotAMessage, Request, decode_message
from maadd.transport.peer import McpFace
from maadd.transport.replies import NOSNIFF, AsgiMessage, event, json_answer, rpc_refusal
from maadd.transport.stateless_calls import EnvelopeRejection, answer_ours, is_ours

if TYPE_CHECKING:
    from maadd.transport.sdk_http import SdkHttp

_ROUTING = frozenset({PROTOCOL_VERSION, b"mcp-method", b"mcp-name"})
_NOT_ACCEPTABLE = rpc_refusal(406, SERVER_ERROR, "Not acceptable: accept application/json")


class StatelessEndpoint:
    """Answers requests that belong to no session."""

    def __init__(self, face: McpFace, settings: Settings) -> None:
        self._face = face
        self._settings = settings
        self._wanted = asyncio.Event()
        self._ended = asyncio.Event()
        self._sdk: asyncio.Future[SdkHttp] = asyncio.get_running_loop().create_future()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The SDK's part is there inside for whoever asks for it with `ready`."""
        serving = asyncio.create_task(self._serve_sdk())
        try:
            yield
        finally:
            self._ended.set()
            self._wanted.set()
            await serving

    async def ready(self) -> None:
        """Return when requests can be answered; the first one has the SDK loaded."""
        await self._face.kernel()
        self._wanted.set()
        await asyncio.shield(self._sdk)

    async def _serve_sdk(self) -> None:
        """The whole life of the SDK's part, in one task as it demands."""
        await self._wanted.wait()
        if self._ended.is_set():
            return
        kernel = await self._face.kernel()
        from maadd.transport.sdk_http import SdkHttp  # needs the SDK, which the kernel has loaded

        sdk = SdkHttp(kernel.server, self._settings.http_max_body)
        async with sdk.running():
            self._sdk.set_result(sdk)
            await self._ended.wait()

    async def post(self, incoming: Incoming, body: bytes) -> None:
        """Answer one POST that names the revision in its header or its envelope; when `ready`."""
        takes_json, takes_events = incoming.head.accepts
        if not takes_json:
            raise RefusedError(_NOT_ACCEPTABLE)
        pinned, lowered = incoming.pin or (None, None)
        address = remote_address(incoming.scope, incoming.head, self._settings.trust_proxy)
        caller = StatelessCaller(incoming.token, pinned, lowered, address)
        routing = [(name, value) for name, value in incoming.scope["headers"] if name in _ROUTING]
        message = _message_or_none(body)
        if isinstance(message, Request) and not _is_repeated(routing):
            headers = {name.decode(): value.strip().decode("latin-1") for name, value in routing}
            kernel = await self._face.kernel()
            verdict = kernel.check_envelope(message, headers)
            if isinstance(verdict, EnvelopeRejection):
                await incoming.reply.send(json_answer(verdict.status, verdict.message))
                return
            if is_ours(message) and message.progress_token is None:
                await self._answer(incoming, caller, message, kernel.stamp)
                return
        await self._hand_over(incoming, caller, body, takes_events)

    async def _answer(
        self, incoming: Incoming, caller: StatelessCaller, request: Request, stamp: bytes
    ) -> None:
        reply = incoming.reply
        takes_events = incoming.head.accepts[1]
        answer = b""
        with DisconnectWatch(incoming.receive, reply if takes_events else None) as watch:
            answer = await answer_ours(self._face, stamp, caller, request)
        if watch.disconnected:
            return
        if reply.started:
            await reply.events(event(answer))
        else:
            await reply.json(answer)

    async def _hand_over(
        self, incoming: Incoming, caller: StatelessCaller, body: bytes, takes_events: bool
    ) -> None:
        scope: dict[str, Any] = {
            **incoming.scope,
            CALLER_SCOPE_KEY: caller,
            # The parser leaves blanks around values, the SDK compares them as they are.
            "headers": [
                (name, value.strip() if name in _ROUTING else value)
                for name, value in incoming.scope["headers"]
            ],
        }
        unread: list[AsgiMessage] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> AsgiMessage:
            return unread.pop() if unread else await incoming.receive()

        async def send(message: AsgiMessage) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], NOSNIFF]}
            await incoming.reply.relay(message)

        sdk = await self._sdk
        await sdk.answer(scope, receive, send, takes_events=takes_events)


def _message_or_none(body: bytes) -> object:
    """The message, or None for what the SDK shall refuse in its own words."""
    try:
        return decode_message(body)
    except NotAMessage:
        return None


def _is_repeated(routing: list[tuple[bytes, bytes]]) -> bool:
    return len({name for name, _ in routing}) < len(routing)
