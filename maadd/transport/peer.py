"""One client of the handshake revisions, whatever carries its messages (spec 04 §9.2, §10).

A tool call goes straight to the pipeline. Everything else is answered by the SDK's kernel,
which keeps what was negotiated; no task and no stream belongs to a peer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import msgspec
from mcp.server.connection import Connection
from mcp.server.lowlevel.server import Server
from mcp.server.runner import ServerRunner
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import SERVER_INFO_META_KEY
from pydantic import ValidationError
from structlog.typing import FilteringBoundLogger

from maadd.protocol.size import encode_result
from maadd.sessions.notices import NoticeQueue
from maadd.sessions.session import Session
from maadd.sessions.views import Caller
from maadd.tools.face import ToolListing, ToolPipeline, initialization_options
from maadd.transport.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    MessageId,
    Notification,
    Request,
    error_response,
    notification,
    response,
)

Emit = Callable[[bytes], Awaitable[None]]
"""Sends one more message to the client before the answer of the request it belongs to."""

_encode = msgspec.json.encode


class McpFace:
    """What every peer of a front shares; make it when the server has all its handlers."""

    __slots__ = (
        "init_options",
        "listing",
        "log",
        "pipeline",
        "server",
        "server_stamp",
        "structured",
    )

    def __init__(
        self,
        server: Server[Any],
        pipeline: ToolPipeline,
        log: FilteringBoundLogger,
        *,
        structured: bool = False,
    ) -> None:
        self.server = server
        self.pipeline = pipeline
        self.log = log
        self.structured = structured
        self.listing = ToolListing(pipeline)
        self.init_options = initialization_options(server)
        self.server_stamp = _server_stamp(server)

    async def call(self, caller: Caller, request: Request, emit: Emit | None) -> bytes:
        """The result object of a tool call; `emit` carries its progress, if anything may."""
        call = request.call
        assert call is not None
        progress = None
        if emit is not None and request.progress_token is not None:
            progress = Exchange(caller, request, emit).progress
        result = await self.pipeline.call(
            caller, call.name, call.arguments, progress=progress, source=call.source
        )
        return encode_result(result.text, is_error=result.is_error, structured=self.structured)


class CallInFlight:
    """A request being answered by `task`; cancelling the task is how it is withdrawn."""

    __slots__ = ("task", "withdrawn")

    def __init__(self, task: asyncio.Task[Any] | None) -> None:
        self.task = task
        self.withdrawn = False


class Exchange:
    """What an SDK handler can reach while it answers one request or takes a notification."""

    __slots__ = ("_emit", "_token", "cancel_requested", "message_metadata", "request_id")

    transport = TransportContext(kind="maadd", can_send_request=False)
    can_send_request = False

    def __init__(
        self, caller: object, request: Request | None = None, emit: Emit | None = None
    ) -> None:
        self.message_metadata = ServerMessageMetadata(request_context=caller)
        self.request_id = None if request is None else request.id
        self.cancel_requested = anyio.Event()
        self._token = None if request is None else request.progress_token
        self._emit = emit

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Refused: nothing of ours asks a client for anything."""
        raise NoBackChannelError(method)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        """Send a notification ahead of the answer."""
        if self._emit is not None:
            await self._emit(notification(method, params))

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress, when the client asked for it."""
        if self._token is None:
            return
        params: dict[str, Any] = {"progressToken": self._token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        await self.notify("notifications/progress", params)


class QueueOutbound:
    """The SDK's way to a session's own stream."""

    __slots__ = ("_notices",)

    def __init__(self, notices: NoticeQueue) -> None:
        self._notices = notices

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Refused: nothing of ours asks a client for anything."""
        raise NoBackChannelError(method)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        """Queue a notification; lost, as all are, when no stream is open."""
        self._notices.offer(notification(method, params))


class Peer:
    """The conversation with one client, from before its `initialize` on."""

    __slots__ = ("_face", "_in_flight", "_runner", "connection", "session")

    def __init__(self, face: McpFace, notices: NoticeQueue) -> None:
        self.connection = Connection.for_loop(QueueOutbound(notices))
        self.session: Session | None = None
        self._face = face
        self._runner = ServerRunner(
            face.server, self.connection, {}, init_options=face.init_options
        )
        self._in_flight: dict[MessageId, CallInFlight] = {}

    @property
    def initialized(self) -> bool:
        """Whether `initialize` was answered with success."""
        return self.connection.initialize_accepted

    def join(self, session: Session) -> None:
        """Make `session` the one that this client's requests belong to."""
        self.session = session
        self.connection.session_id = session.id
        session.handle = self

    async def answer(self, request: Request, emit: Emit | None = None) -> bytes | None:
        """The response to a request; None when the client withdrew it.

        `emit` carries progress and other messages that belong to the request.
        """
        return await self.track(request, self._answer(request, emit))

    async def track(self, request: Request, answering: Awaitable[bytes]) -> bytes | None:
        """Await the response to `request`, which the client may withdraw meanwhile."""
        flight = CallInFlight(asyncio.current_task())
        self._in_flight[request.id] = flight
        try:
            return await answering
        except asyncio.CancelledError:
            if not flight.withdrawn or flight.task is None:
                raise
            flight.task.uncancel()
            return None
        finally:
            if self._in_flight.get(request.id) is flight:
                del self._in_flight[request.id]

    async def take(self, message: Notification) -> None:
        """Take a notification, or a response, which nobody awaits."""
        if message.method == "notifications/cancelled":
            self._withdraw((message.params or {}).get("requestId"))
        elif message.method is not None:
            await self._runner.on_notify(Exchange(self.session), message.method, message.params)

    async def _answer(self, request: Request, emit: Emit | None) -> bytes:
        session = self.session
        if session is None or not self.initialized:
            return await self._ask_kernel(request, emit)
        if request.method == "initialize":
            return error_response(request.id, INVALID_REQUEST, "initialized already")
        if request.call is not None:
            return response(request.id, await self._face.call(session, request, emit))
        if request.method == "tools/list":
            version = self.connection.protocol_version
            return response(request.id, self._face.listing.text(session, version))
        return await self._ask_kernel(request, emit)

    async def _ask_kernel(self, request: Request, emit: Emit | None) -> bytes:
        exchange = Exchange(self.session, request, emit)
        running = self._runner.on_request(exchange, request.method, request.params)
        return await kernel_response(request, running, self._face.log)

    def _withdraw(self, request_id: object) -> None:
        if not isinstance(request_id, (int, str)) or isinstance(request_id, bool):
            return
        flight = self._in_flight.get(request_id)
        if flight is not None and flight.task is not None and not flight.withdrawn:
            flight.withdrawn = True
            flight.task.cancel()


async def kernel_response(
    request: Request, running: Awaitable[dict[str, Any]], log: FilteringBoundLogger
) -> bytes:
    """The response to what the SDK's kernel makes of a request."""
    try:
        result = await running
    except MCPError as refused:
        error = refused.error
        return error_response(request.id, error.code, error.message, error.data)
    except (ValidationError, UnicodeEncodeError):
        # The second for half a surrogate pair, which nothing that is read or written may hold.
        return error_response(request.id, INVALID_PARAMS, "Invalid request parameters")
    except Exception:
        log.exception("mcp_handler_failed", method=request.method)
        return error_response(request.id, INTERNAL_ERROR, "Internal error")
    return response(request.id, _encode(result))


def _server_stamp(server: Server[Any]) -> bytes:
    """The last member of every result of the stateless revision: who answers."""
    return b"," + _encode({"_meta": {SERVER_INFO_META_KEY: server.server_info_stamp}})[1:]
