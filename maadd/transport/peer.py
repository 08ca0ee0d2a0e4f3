"""One client of the handshake revisions, whatever carries its messages (spec 04 §9.2, §10).

The handshake, pings, tool calls and their listing are answered here. Everything else is answered by
the SDK's kernel, which is told of the handshake when it is first asked; no task and no stream
belongs to a peer.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from structlog.typing import FilteringBoundLogger

from maadd.protocol.size import encode_result
from maadd.sessions.notices import NoticeQueue
from maadd.sessions.session import Session
from maadd.sessions.views import Caller
from maadd.tools.listing import ToolListing, ToolPipeline
from maadd.transport.introduction import Introduction, plain_revision
from maadd.transport.messages import (
    INVALID_REQUEST,
    MessageId,
    Notification,
    Request,
    error_response,
    response,
)
from maadd.transport.progress import Emit, progress_reporter

if TYPE_CHECKING:
    from mcp.server.lowlevel.server import Server

    from maadd.transport.kernel import Conversation, Kernel


class McpFace:
    """What every peer of a front shares.

    `make_server` makes the SDK's server with all its handlers, on a thread, when a request
    first needs it; `introduction` says of it what it would say itself.
    """

    __slots__ = (
        "_kernel",
        "_log",
        "_make_server",
        "introduction",
        "listing",
        "pipeline",
        "structured",
    )

    def __init__(
        self,
        make_server: Callable[[], Server[Any]],
        introduction: Introduction,
        pipeline: ToolPipeline,
        log: FilteringBoundLogger,
        *,
        structured: bool = False,
    ) -> None:
        self.introduction = introduction
        self.pipeline = pipeline
        self.structured = structured
        self.listing = ToolListing(pipeline)
        self._make_server = make_server
        self._log = log
        self._kernel: asyncio.Task[Kernel] | None = None

    async def kernel(self) -> Kernel:
        """The SDK's kernel, loaded by whoever needs it first; others go on meanwhile."""
        if self._kernel is None:
            self._kernel = asyncio.create_task(asyncio.to_thread(self._load_kernel))
        return await asyncio.shield(self._kernel)

    @property
    def is_loaded(self) -> bool:
        """Whether the kernel is there."""
        return self._kernel is not None and self._kernel.done()

    def _load_kernel(self) -> Kernel:
        from maadd.transport.kernel import Kernel  # half a second of imports

        kernel = Kernel(self._make_server(), self._log)
        # As at the start: a search for unused values need not go through all that stays.
        gc.collect()
        gc.freeze()
        return kernel

    async def call(self, caller: Caller, request: Request, emit: Emit | None) -> bytes:
        """The result object of a tool call; `emit` carries its progress, if anything may."""
        call = request.call
        assert call is not None
        result = await self.pipeline.call(
            caller,
            call.name,
            call.arguments,
            progress=progress_reporter(request, emit),
            source=call.source,
        )
        return encode_result(result.text, is_error=result.is_error, structured=self.structured)


class CallInFlight:
    """A request being answered by `task`; cancelling the task is how it is withdrawn."""

    __slots__ = ("task", "withdrawn")

    def __init__(self, task: asyncio.Task[Any] | None) -> None:
        self.task = task
        self.withdrawn = False


class Peer:
    """The conversation with one client, from before its `initialize` on."""

    __slots__ = ("_conversation", "_face", "_handshake", "_in_flight", "_notices", "session")

    def __init__(self, face: McpFace, notices: NoticeQueue) -> None:
        self.session: Session | None = None
        self._face = face
        self._notices = notices
        self._handshake: list[Request | Notification] = []
        """What was answered here of the handshake, for the kernel to hear before anything else."""
        self._conversation: asyncio.Task[Conversation] | None = None
        self._in_flight: dict[MessageId, CallInFlight] = {}

    @property
    def initialized(self) -> bool:
        """Whether `initialize` was answered with success."""
        if self._handshake:
            return True
        begun = self._conversation
        return begun is not None and begun.done() and begun.result().initialized

    def join(self, session: Session) -> None:
        """Make `session` the one that this client's requests belong to."""
        self.session = session
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
        """Take a notification, or a response, which nobody awaits.

        Before the handshake a notification means nothing; the SDK's kernel would take one for
        its end, and refuse the `initialize` that follows.
        """
        if message.method == "notifications/cancelled":
            self._withdraw((message.params or {}).get("requestId"))
        elif message.method == "notifications/initialized" and self._shaking_hands:
            self._handshake[1:] = [message]
        elif message.method is not None and self.initialized:
            conversation = await self._converse()
            await conversation.take(self.session, message)

    @property
    def _shaking_hands(self) -> bool:
        """Whether the kernel is still to hear of a handshake that was answered here."""
        return bool(self._handshake) and self._conversation is None

    async def _answer(self, request: Request, emit: Emit | None) -> bytes:
        session = self.session
        if request.method == "ping" and not request.params:
            return response(request.id, b"{}")
        if session is None or not self.initialized:
            return await self._introduce(request, emit)
        if request.method == "initialize":
            return error_response(request.id, INVALID_REQUEST, "initialized already")
        if request.call is not None:
            return response(request.id, await self._face.call(session, request, emit))
        if request.method == "tools/list":
            return response(request.id, self._face.listing.text(session, stateless=False))
        return await self._ask_kernel(request, emit)

    async def _introduce(self, request: Request, emit: Emit | None) -> bytes:
        if request.method == "initialize" and self._conversation is None:
            revision = plain_revision(request)
            if revision is not None:
                self._handshake = [request]
                return response(request.id, self._face.introduction.answer(revision))
        return await self._ask_kernel(request, emit)

    async def _ask_kernel(self, request: Request, emit: Emit | None) -> bytes:
        conversation = await self._converse()
        return await conversation.answer(self.session, request, emit)

    async def _converse(self) -> Conversation:
        if self._conversation is None:
            self._conversation = asyncio.create_task(self._begin())
        # Whoever waits may be withdrawn, and others with it wait for the same.
        return await asyncio.shield(self._conversation)

    async def _begin(self) -> Conversation:
        kernel = await self._face.kernel()
        conversation = kernel.converse(self._notices)
        for message in self._handshake:
            if isinstance(message, Request):
                await conversation.answer(self.session, message, None)
            else:
                await conversation.take(self.session, message)
        return conversation

    def _withdraw(self, request_id: object) -> None:
        if not isinstance(request_id, (int, str)) or isinstance(request_id, bool):
            return
        flight = self._in_flight.get(request_id)
        if flight is not None and flight.task is not None and not flight.withdrawn:
            flight.withdrawn = True
            flight.task.cancel()
