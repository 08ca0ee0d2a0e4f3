"""MCP over standard input and output: one JSON-RPC message a line (spec 04 §10).

The process is the session in either era. The first request other than `server/discover`
chooses the era for the rest of the connection.
"""

from __future__ import annotations

import asyncio
import enum
import uuid

from structlog.typing import FilteringBoundLogger

from maadd.config.settings import Settings
from maadd.sessions.notices import NoticeQueue
from maadd.sessions.session import CloseReason
from maadd.sessions.table import SessionTable
from maadd.transport.lines import LineSplitter
from maadd.transport.messages import (
    INVALID_REQUEST,
    PARSE_ERROR,
    UNSUPPORTED_REVISION,
    NotAMessage,
    Notification,
    Request,
    decode_messages,
    error_response,
)
from maadd.transport.peer import McpFace, Peer
from maadd.transport.revisions import STATELESS_REVISIONS
from maadd.transport.stateless_calls import EnvelopeRejection, answer_ours, is_ours
from maadd.transport.stdio_pipe import InputPipe, OutputPipe
from maadd.transport.unreadable import readable_id, reason_of

_LINE_SLACK = 65_536
"""A line may be so much longer than the largest arguments."""

_MAX_UNANSWERED = 256
"""Requests answered at once; further lines are read when some are done."""

_FLUSH_S = 1.0

_LOADING_S = 0.7
"""How long the end of the input waits for the SDK. With the drain after it below 2 s."""

_HANDSHAKE_ONLY = "this connection began with initialize; requests with an envelope are refused"


class _Era(enum.Enum):
    HANDSHAKE = "handshake"
    STATELESS = "stateless"


class StdioServer:
    """Serves the one client at the other end of two descriptors."""

    def __init__(
        self,
        *,
        face: McpFace,
        sessions: SessionTable,
        settings: Settings,
        log: FilteringBoundLogger,
        reading: int,
        writing: int,
    ) -> None:
        self._face = face
        self._sessions = sessions
        self._log = log
        self._input = InputPipe(reading)
        self._output = OutputPipe(writing)
        self._lines = LineSplitter(settings.rl_payload_bytes + _LINE_SLACK)
        self._notices = NoticeQueue(settings.notify_queue)
        self._notices.attach()
        self._session = sessions.open(
            f"stdio-{uuid.uuid4()}", transport="stdio", notices=self._notices, permanent=True
        )
        self._peer = Peer(face, self._notices)
        self._peer.join(self._session)
        self._era: _Era | None = None
        self._slots = asyncio.Semaphore(_MAX_UNANSWERED)
        self._answering: dict[asyncio.Task[None], Request] = {}

    async def run(self) -> None:
        """Serve until the input ends or nobody reads the output any more.

        Requests under way go on; the caller drains them and then calls `close`.
        """
        async with asyncio.TaskGroup() as group:
            notices = group.create_task(self._send_notices())
            reading = group.create_task(self._read())
            broken = group.create_task(self._output.broken.wait())
            await asyncio.wait({reading, broken}, return_when=asyncio.FIRST_COMPLETED)
            if not broken.done():
                await self._await_kernel()
            for task in (notices, reading, broken):
                task.cancel()

    async def _await_kernel(self) -> None:
        """Whoever asks and closes the pipe at once is answered also by an SDK still to load."""
        asking = [task for task, request in self._answering.items() if request.call is None]
        if asking and not self._face.is_loaded:
            await asyncio.wait(asking, timeout=_LOADING_S)

    async def close(self, reason: CloseReason = CloseReason.CLIENT) -> None:
        """Cancel what is still unanswered, end the session, write out the answers there are."""
        for task in list(self._answering):
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)
        self._sessions.close(self._session, reason)
        try:
            async with asyncio.timeout(_FLUSH_S):
                await self._output.close()
        except TimeoutError:
            self._log.warning("stdio_client_stalled")

    async def _read(self) -> None:
        while chunk := await self._input.read():
            for line in self._lines.feed(chunk):
                await self._take_line(line)
        await self._take_line(self._lines.rest())

    async def _take_line(self, line: bytes | None) -> None:
        if line is None:
            await self._send(error_response(None, INVALID_REQUEST, "The line is too long"))
            return
        if not line.strip():
            return
        try:
            messages = decode_messages(line)
        except NotAMessage as fault:
            text = f"The line is no JSON-RPC message: {reason_of(fault)}"
            await self._send(error_response(readable_id(line), PARSE_ERROR, text))
            return
        self._sessions.touch(self._session)
        for message in messages:
            await self._take(message)

    async def _take(self, message: Request | Notification) -> None:
        if isinstance(message, Notification):
            await self._peer.take(message)
            return
        stateless = self._is_stateless(message)
        if message.method == "initialize":
            # Clients may send on before the answer: what follows must find it done.
            await self._respond(message, stateless)
            return
        await self._slots.acquire()
        task = asyncio.create_task(self._respond(message, stateless))
        self._answering[task] = message
        task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        del self._answering[task]
        self._slots.release()

    def _is_stateless(self, request: Request) -> bool:
        """Which era answers; decided in the order of arrival."""
        if request.method == "server/discover" and request.is_stateless:
            return True
        if self._era is None:
            begins_stateless = request.is_stateless and request.method != "initialize"
            self._era = _Era.STATELESS if begins_stateless else _Era.HANDSHAKE
        return self._era is _Era.STATELESS

    async def _respond(self, request: Request, stateless: bool) -> None:
        if stateless:
            answer = await self._peer.track(request, self._answer_stateless(request))
        elif request.is_stateless and request.method != "initialize":
            answer = error_response(request.id, INVALID_REQUEST, _HANDSHAKE_ONLY)
        else:
            answer = await self._peer.answer(request, self._send)
        if answer is not None:
            await self._send(answer)

    async def _answer_stateless(self, request: Request) -> bytes:
        if request.method == "initialize":
            return error_response(
                request.id,
                UNSUPPORTED_REVISION,
                "this connection speaks a revision without initialize",
                {"supported": list(STATELESS_REVISIONS), **_requested(request)},
            )
        kernel = await self._face.kernel()
        route = kernel.check_envelope(request, None)
        if isinstance(route, EnvelopeRejection):
            return route.message
        if is_ours(request):
            return await answer_ours(self._face, kernel.stamp, self._session, request, self._send)
        return await kernel.answer_alone(self._session, request, route, self._notices, self._send)

    async def _send_notices(self) -> None:
        while (batch := await self._notices.take(None)) is not None:
            for notice in batch:
                await self._send(notice)

    async def _send(self, message: bytes) -> None:
        await self._output.send(message + b"\n")


def _requested(request: Request) -> dict[str, str]:
    version = (request.params or {}).get("protocolVersion")
    return {"requested": version} if isinstance(version, str) else {}
