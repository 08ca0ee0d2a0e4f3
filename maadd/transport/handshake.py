"""MCP over HTTP for the handshake revisions: sessions, batches, streams (spec 04 §9.2, §9.4)."""

from __future__ import annotations

import asyncio
import secrets
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from maadd.config.instance import Instance
from maadd.config.settings import Settings
from maadd.protocol.errors import MaadError
from maadd.sessions.binding import bind_pinned
from maadd.sessions.notices import NoticeQueue
from maadd.sessions.session import Binding, CloseReason, Session
from maadd.sessions.table import SessionTable
from maadd.transport.head import CONTENT_TYPE, PROTOCOL_VERSION, SESSION_ID, Head
from maadd.transport.incoming import (
    KEEP_ALIVE_S,
    DisconnectWatch,
    Incoming,
    RefusedError,
    remote_address,
)
from maadd.transport.messages import (
    INVALID_REQUEST,
    PARSE_ERROR,
    SERVER_ERROR,
    NotAMessage,
    Notification,
    Request,
    decode_messages,
)
from maadd.transport.peer import McpFace, Peer
from maadd.transport.replies import Receive, event, refusal, rpc_refusal
from maadd.transport.revisions import HANDSHAKE_REVISIONS
from maadd.transport.unreadable import reason_of

MAX_BATCH = 100
"""Messages accepted in one batch."""

DRAINING = refusal("SHUTTING_DOWN", "the server is stopping; connect again when it is back")
_METHOD_NOT_ALLOWED = rpc_refusal(
    405, SERVER_ERROR, "Method not allowed", (b"allow", b"GET, POST, DELETE")
)
_NOT_ACCEPTABLE = rpc_refusal(
    406, SERVER_ERROR, "Not acceptable: accept application/json and text/event-stream"
)
_NO_STREAM_ACCEPTED = rpc_refusal(406, SERVER_ERROR, "Not acceptable: accept text/event-stream")
_NOT_JSON = rpc_refusal(415, SERVER_ERROR, "Content-Type must be application/json")
_BATCH_TOO_LONG = rpc_refusal(400, INVALID_REQUEST, f"A batch holds at most {MAX_BATCH} messages")
_INITIALIZE_IN_BATCH = rpc_refusal(400, INVALID_REQUEST, "initialize must be alone in its request")
_INITIALIZED_ALREADY = rpc_refusal(400, INVALID_REQUEST, "This session is initialized already")
_NOT_INITIALIZED = rpc_refusal(
    400, SERVER_ERROR, "Not initialized: begin with initialize, then send Mcp-Session-Id"
)
_UNSUPPORTED_VERSION = rpc_refusal(
    400,
    SERVER_ERROR,
    f"Unsupported MCP-Protocol-Version here; use one of {', '.join(HANDSHAKE_REVISIONS)}",
)
_STREAM_OPEN_ALREADY = rpc_refusal(409, SERVER_ERROR, "This session has an open stream already")

_NOTHING_TO_HEAR = refusal(
    "SESSION_NOT_FOUND", "the project of this session was removed; start over with initialize"
)

_VERSIONS = frozenset(version.encode() for version in HANDSHAKE_REVISIONS)


class FrontState(Protocol):
    """What the HTTP layer asks of the running front, each time anew."""

    @property
    def instance(self) -> Instance: ...
    @property
    def draining(self) -> bool: ...


class HandshakeEndpoint:
    """Answers the requests of sessions, and those that begin one."""

    def __init__(
        self,
        *,
        state: FrontState,
        settings: Settings,
        sessions: SessionTable,
        face: McpFace,
        log: FilteringBoundLogger,
    ) -> None:
        self._state = state
        self._settings = settings
        self._sessions = sessions
        self._face = face
        self._log = log

    async def serve(self, incoming: Incoming, session: Session) -> None:
        """Answer a request of a session that is no POST."""
        method = incoming.scope["method"]
        if method == "DELETE":
            self._sessions.close(session, CloseReason.TRANSPORT)
            await incoming.reply.empty(200)
        elif method == "GET":
            await self._stream(incoming, session)
        else:
            raise RefusedError(_METHOD_NOT_ALLOWED)

    async def post(
        self,
        incoming: Incoming,
        messages: list[Request | Notification],
        *,
        takes_events: bool,
    ) -> None:
        """Answer the messages of one POST."""
        session = incoming.session
        if len(messages) > 1:
            _check_batch(messages)
        first = messages[0]
        initialize = first.method == "initialize" and isinstance(first, Request)
        if session is None and not initialize:
            raise RefusedError(_NOT_INITIALIZED)
        if PROTOCOL_VERSION in incoming.head and (
            incoming.head.get(PROTOCOL_VERSION) not in _VERSIONS
        ):
            raise RefusedError(_UNSUPPORTED_VERSION)
        if isinstance(first, Request) and initialize:
            if session is not None:
                raise RefusedError(_INITIALIZED_ALREADY)
            await self._initialize(incoming, first, takes_events)
            return
        peer = _peer_of(session)
        if len(messages) == 1 and isinstance(first, Request):
            await _answer_one(incoming, peer, first, takes_events)
        else:
            await _answer_all(incoming, peer, messages, takes_events)

    async def _initialize(self, incoming: Incoming, request: Request, takes_events: bool) -> None:
        """Nothing is kept unless the handshake succeeds."""
        if self._state.draining:
            raise RefusedError(DRAINING)
        address = remote_address(incoming.scope, incoming.head, self._settings.trust_proxy)
        self._pinned_binding(incoming, address)
        notices = NoticeQueue(self._settings.notify_queue)
        peer = Peer(self._face, notices)
        answer = await peer.answer(request)
        extra: list[tuple[bytes, bytes]] = []
        if peer.initialized:
            # Asked again: a reload may have removed the pinned project meanwhile.
            binding = self._pinned_binding(incoming, address)
            session = self._open(incoming, address, notices, binding)
            peer.join(session)
            extra.append((SESSION_ID, session.id.encode()))
        if takes_events:
            await incoming.reply.events(event(answer or b""), *extra)
        else:
            await incoming.reply.json(answer or b"", *extra)

    def _open(
        self, incoming: Incoming, address: str, notices: NoticeQueue, binding: Binding | None
    ) -> Session:
        try:
            return self._sessions.open(
                secrets.token_urlsafe(16),
                transport=self._settings.transport,
                notices=notices,
                token=incoming.token,
                remote_addr=address,
                user_agent=incoming.head.user_agent,
                binding=binding,
            )
        except MaadError as error:
            raise RefusedError(refusal(error.code, error.message, details=error.details)) from None

    def _pinned_binding(self, incoming: Incoming, address: str) -> Binding | None:
        if incoming.pin is None:
            return None
        name, lowered = incoming.pin
        try:
            return bind_pinned(name, lowered, self._state.instance, incoming.token)
        except MaadError as error:
            code = "PIN_PROJECT_NOT_FOUND" if error.code == "PROJECT_UNKNOWN" else error.code
            self._log.info("pin_rejected", remote_addr=address, code=code, project=name)
            raise RefusedError(refusal(code, error.message)) from None

    async def _stream(self, incoming: Incoming, session: Session) -> None:
        head, reply, notices = incoming.head, incoming.reply, session.notices
        if PROTOCOL_VERSION in head and head.get(PROTOCOL_VERSION) not in _VERSIONS:
            raise RefusedError(_UNSUPPORTED_VERSION)
        if not head.accepts[1]:
            raise RefusedError(_NO_STREAM_ACCEPTED)
        if session.cancelled:
            raise RefusedError(_NOTHING_TO_HEAR)
        if not notices.attach():
            raise RefusedError(_STREAM_OPEN_ALREADY)
        watcher = asyncio.create_task(_detach_when_gone(incoming.receive, notices))
        try:
            await reply.open_stream()
            while (batch := await notices.take(KEEP_ALIVE_S)) is not None:
                if batch:
                    await reply.chunk(b"".join(map(event, batch)))
                else:
                    await reply.keep_alive()
        finally:
            watcher.cancel()
            notices.detach()
        await reply.end()


def check_form(head: Head) -> bool:
    """Whether events may answer; RefusedError when the headers do not fit a POST."""
    takes_json, takes_events = head.accepts
    if not takes_json:
        raise RefusedError(_NOT_ACCEPTABLE)
    if b"application/json" not in head.get(CONTENT_TYPE).lower():
        raise RefusedError(_NOT_JSON)
    return takes_events


def messages_of(body: bytes) -> list[Request | Notification]:
    """The messages of a POST; RefusedError when the body holds none."""
    try:
        return decode_messages(body)
    except NotAMessage as fault:
        # Over HTTP the id is null, as in the reference: the answer belongs to its request anyway.
        text = f"The body is no JSON-RPC message: {reason_of(fault)}"
        raise RefusedError(rpc_refusal(400, PARSE_ERROR, text)) from None


def _check_batch(messages: list[Request | Notification]) -> None:
    if len(messages) > MAX_BATCH:
        raise RefusedError(_BATCH_TOO_LONG)
    if any(message.method == "initialize" for message in messages):
        raise RefusedError(_INITIALIZE_IN_BATCH)


def _peer_of(session: Session | None) -> Peer:
    peer = None if session is None else session.handle
    assert isinstance(peer, Peer)
    return peer


async def _answer_one(incoming: Incoming, peer: Peer, request: Request, takes_events: bool) -> None:
    reply = incoming.reply
    answer = None
    with DisconnectWatch(incoming.receive, reply if takes_events else None) as watch:
        answer = await peer.answer(request, reply.event if takes_events else None)
    if watch.disconnected:
        return
    if takes_events:
        await reply.events(b"" if answer is None else event(answer))
    elif answer is None:
        await reply.empty(202)
    else:
        await reply.json(answer)


async def _answer_all(
    incoming: Incoming,
    peer: Peer,
    messages: list[Request | Notification],
    takes_events: bool,
) -> None:
    """Take the notifications in order, then answer the requests side by side."""
    reply = incoming.reply
    requests = [message for message in messages if isinstance(message, Request)]
    for message in messages:
        if isinstance(message, Notification):
            await peer.take(message)
    if not requests:
        await reply.empty(202)
        return
    answers: list[bytes] = []

    async def answer(request: Request) -> None:
        text = await peer.answer(request, reply.event if takes_events else None)
        if text is None:
            return
        if takes_events:
            await reply.event(text)
        else:
            answers.append(text)

    with DisconnectWatch(incoming.receive, reply if takes_events else None) as watch:
        async with asyncio.TaskGroup() as group:
            for request in requests:
                group.create_task(answer(request))
    if watch.disconnected:
        return
    if takes_events:
        await reply.events(b"")
    else:
        await reply.json(b"[" + b",".join(answers) + b"]")


async def _detach_when_gone(receive: Receive, notices: NoticeQueue) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    notices.detach()
