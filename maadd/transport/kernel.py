"""The SDK's kernel: what answers the requests that are neither tool calls nor listings.

Importing the SDK costs more time and memory than all the rest of a front, and most clients
never need it: this module is imported by `McpFace.kernel` alone, when a request first does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

import anyio
import msgspec
from mcp.server.connection import Connection, NotifyOnlyOutbound
from mcp.server.lowlevel.server import Server
from mcp.server.runner import ServerRunner, serve_one
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    InboundLadderRejection,
    InboundModernRoute,
    classify_inbound_request,
)
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import SERVER_INFO_META_KEY
from mcp_types.methods import validate_client_request
from pydantic import ValidationError
from structlog.typing import FilteringBoundLogger

from maadd.sessions.notices import NoticeQueue
from maadd.sessions.session import Session
from maadd.tools.face import initialization_options
from maadd.transport.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    Notification,
    Request,
    error_response,
    notification,
    request_params,
    response,
)
from maadd.transport.progress import Emit, progress_reporter
from maadd.transport.stateless_calls import EnvelopeRejection

_encode = msgspec.json.encode


class Kernel:
    """The SDK's server with what every conversation on it shares."""

    __slots__ = ("_init_options", "_log", "server", "stamp")

    def __init__(self, server: Server[Any], log: FilteringBoundLogger) -> None:
        self.server = server
        self.stamp = b"," + _encode({"_meta": {SERVER_INFO_META_KEY: server.server_info_stamp}})[1:]
        """The last member of every result of the stateless revision: who answers."""
        self._init_options = initialization_options(server)
        self._log = log

    def check_envelope(
        self, request: Request, headers: Mapping[str, str] | None
    ) -> InboundModernRoute | EnvelopeRejection:
        """What the envelope says, once it agrees with itself and with the routing headers.

        `headers` (lower-case names, trimmed values) is None where there are none.
        """
        params = request_params(request)
        verdict = classify_inbound_request(
            {"method": request.method, "params": params}, headers=headers
        )
        if isinstance(verdict, InboundLadderRejection):
            return _rejection(request, verdict.code, verdict.message, verdict.data)
        try:
            validate_client_request(request.method, verdict.protocol_version, params)
        except KeyError:
            return verdict  # A method the revision does not name; the SDK says what it is.
        except ValidationError:
            return _rejection(request, INVALID_PARAMS, "Invalid request parameters", None)
        return verdict

    def converse(self, notices: NoticeQueue) -> Conversation:
        """Begin with one client of the handshake revisions."""
        connection = Connection.for_loop(QueueOutbound(notices))
        runner = ServerRunner(self.server, connection, {}, init_options=self._init_options)
        return Conversation(connection, runner, self._log)

    async def answer_alone(
        self,
        session: Session,
        request: Request,
        route: InboundModernRoute,
        notices: NoticeQueue,
        emit: Emit,
    ) -> bytes:
        """The response to a request of the stateless revisions on a pipe."""
        connection = Connection.from_envelope(
            route.protocol_version,
            route.client_info,
            route.client_capabilities,
            outbound=NotifyOnlyOutbound(QueueOutbound(notices)),
        )
        running = serve_one(
            self.server,
            Exchange(session, request, emit),
            request.method,
            request_params(request),
            connection=connection,
            lifespan_state={},
        )
        return await _response_of(request, running, self._log)


class Conversation:
    """What the SDK keeps of one client of the handshake revisions."""

    __slots__ = ("_connection", "_log", "_runner")

    def __init__(
        self, connection: Connection, runner: ServerRunner[Any], log: FilteringBoundLogger
    ) -> None:
        self._connection = connection
        self._runner = runner
        self._log = log

    @property
    def initialized(self) -> bool:
        """Whether `initialize` was answered with success."""
        return self._connection.initialize_accepted

    async def answer(self, caller: object, request: Request, emit: Emit | None) -> bytes:
        """The response to a request."""
        exchange = Exchange(caller, request, emit)
        running = self._runner.on_request(exchange, request.method, request.params)
        return await _response_of(request, running, self._log)

    async def take(self, caller: object, message: Notification) -> None:
        """Take a notification."""
        if message.method is not None:
            await self._runner.on_notify(Exchange(caller), message.method, message.params)


class Exchange:
    """What an SDK handler can reach while it answers one request or takes a notification."""

    __slots__ = ("_emit", "_report", "cancel_requested", "message_metadata", "request_id")

    transport = TransportContext(kind="maadd", can_send_request=False)
    can_send_request = False

    def __init__(
        self, caller: object, request: Request | None = None, emit: Emit | None = None
    ) -> None:
        self.message_metadata = ServerMessageMetadata(request_context=caller)
        self.request_id = None if request is None else request.id
        self.cancel_requested = anyio.Event()
        self._emit = emit
        self._report = None if request is None else progress_reporter(request, emit)

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
        if self._report is not None:
            await self._report(progress, total, message)


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


def _rejection(request: Request, code: int, message: str, data: object) -> EnvelopeRejection:
    return EnvelopeRejection(
        ERROR_CODE_HTTP_STATUS.get(code, 200), error_response(request.id, code, message, data)
    )


async def _response_of(
    request: Request, running: Awaitable[dict[str, Any]], log: FilteringBoundLogger
) -> bytes:
    """The response to what the kernel makes of a request."""
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
