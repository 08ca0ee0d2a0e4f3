"""The HTTP application: the ordered checks in front of MCP (spec 04 §9.1).

The order is contract: the first check that fails decides the answer. Between the bearer and
the session nothing is awaited, so no session can change hands in the middle.
"""

from __future__ import annotations

import asyncio

from structlog.typing import FilteringBoundLogger

from maadd.auth.record import TokenRecord
from maadd.auth.registry import TokenRegistry
from maadd.config.settings import Settings
from maadd.ops.meter import Meter
from maadd.protocol.errors import MaadError
from maadd.sessions.session import Session
from maadd.sessions.table import SessionTable
from maadd.transport.bodies import STOPPING, TOO_LARGE, BodyReader
from maadd.transport.handshake import (
    DRAINING,
    FrontState,
    HandshakeEndpoint,
    check_form,
    messages_of,
)
from maadd.transport.head import (
    AUTHORIZATION,
    CONTENT_LENGTH,
    ORIGIN,
    PIN_PROJECT,
    PROTOCOL_VERSION,
    SESSION_ID,
    STATELESS_VERSIONS,
    Head,
    Pin,
)
from maadd.transport.incoming import ClientGoneError, Incoming, RefusedError, remote_address
from maadd.transport.messages import Notification, Request
from maadd.transport.peer import McpFace
from maadd.transport.replies import Receive, Reply, Scope, Send, json_answer, refusal
from maadd.transport.stateless import StatelessEndpoint
from maadd.transport.throttle import FailureThrottle

HEALTHY = json_answer(200, b'{"ok":true}')
NOT_FOUND = refusal("NOT_FOUND", "there is nothing here; MCP is served at /mcp")
ORIGIN_FORBIDDEN = refusal("ORIGIN_FORBIDDEN", "this web origin is not allowed to connect")
UNAUTHORIZED = refusal(
    "UNAUTHORIZED", "a valid bearer token is required", (b"www-authenticate", b"Bearer")
)
THROTTLED = refusal(
    "RATE_LIMITED",
    "too many failed authentications from this address",
    details={"reason": "auth_failures", "retryAfterMs": 1000},
)
SESSION_NOT_FOUND = refusal(
    "SESSION_NOT_FOUND", "no such session; start over with initialize, without a session id"
)
SESSION_REQUIRED = refusal("BAD_REQUEST", "this request needs the Mcp-Session-Id header")
INTERNAL = refusal("INTERNAL", "an unexpected failure; the server's log has it")


class HttpApp:
    """The ASGI application of the http and unix transports."""

    def __init__(
        self,
        *,
        state: FrontState,
        settings: Settings,
        tokens: TokenRegistry,
        sessions: SessionTable,
        face: McpFace,
        log: FilteringBoundLogger,
        meter: Meter,
    ) -> None:
        self._meter = meter
        self._state = state
        self._settings = settings
        self._tokens = tokens
        self._sessions = sessions
        self._log = log
        self._throttle = FailureThrottle()
        self._legacy_pin_seen = False
        self._ended = False
        self._bodies = BodyReader(settings.http_max_body, settings.http_max_inflight_bytes)
        self.stateless = StatelessEndpoint(face, settings)
        self._handshake = HandshakeEndpoint(
            state=state, settings=settings, sessions=sessions, face=face, log=log
        )

    def count_refusal(self, code: str, reason: str = "") -> None:
        """Count a refused request, also one that never came this far."""
        self._meter.refused[code, reason] += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        reply = Reply(scope, send)
        try:
            await self._route(scope, receive, reply)
        except RefusedError as refused:
            self.count_refusal(refused.answer.code, refused.reason)
            await reply.send(refused.answer)
        except ClientGoneError:
            return
        except asyncio.CancelledError:
            # The server ends, and waits no longer.
            if not reply.started:
                await reply.send(STOPPING)
            raise
        except Exception:
            self._log.exception("http_request_failed", path=scope["path"])
            self.count_refusal(INTERNAL.code)
            if reply.started:
                raise
            await reply.send(INTERNAL)

    def refuse_bodies(self) -> None:
        """From now on wait for no request that is still coming in."""
        self._bodies.refuse()

    def end(self) -> None:
        """From now on, as the sessions end, answer each request that it is too late for it."""
        self._ended = True

    async def _route(self, scope: Scope, receive: Receive, reply: Reply) -> None:
        method: str = scope["method"]
        if scope["path"] == "/healthz" and method == "GET":
            await reply.send(DRAINING if self._state.draining else HEALTHY)
            return
        if scope["path"] != "/mcp":
            raise RefusedError(NOT_FOUND)
        head = Head(scope["headers"])
        self._check_unread(head, scope)
        token = self._authenticated(head, scope)
        if self._ended:
            raise RefusedError(STOPPING)
        pin = self._pin(head, scope)
        session = self._session(head, scope, token)
        if session is None and method != "POST":
            raise RefusedError(SESSION_REQUIRED)
        incoming = Incoming(scope, receive, reply, head, token, pin, session)
        if session is None:
            await self._post(incoming)
        elif method == "POST":
            session.in_flight += 1
            try:
                await self._post(incoming)
            finally:
                session.in_flight -= 1
        else:
            await self._handshake.serve(incoming, session)

    async def _post(self, incoming: Incoming) -> None:
        body = await self._bodies.read(incoming.receive)
        try:
            self._check_alive(incoming)
            await self._post_body(incoming, body)
        finally:
            self._bodies.release(len(body))

    async def _post_body(self, incoming: Incoming, body: bytes) -> None:
        if incoming.session is None and incoming.head.get(PROTOCOL_VERSION) in STATELESS_VERSIONS:
            await self._post_stateless(incoming, body)
            return
        takes_events = check_form(incoming.head)
        messages = messages_of(body)
        if incoming.session is None and _is_stateless(messages):
            await self._post_stateless(incoming, body)
        else:
            await self._handshake.post(incoming, messages, takes_events=takes_events)

    async def _post_stateless(self, incoming: Incoming, body: bytes) -> None:
        await self.stateless.ready()
        self._check_alive(incoming)
        await self.stateless.post(incoming, body)

    def _check_unread(self, head: Head, scope: Scope) -> None:
        """Steps 3 and 4: what is refused without asking who it is."""
        if not head.origin_allowed(self._settings.http_allowed_origins):
            self._log.info(
                "origin_rejected",
                remote_addr=self._remote_address(head, scope),
                origin=head.text(ORIGIN) or None,
            )
            raise RefusedError(ORIGIN_FORBIDDEN)
        length = head.get(CONTENT_LENGTH)
        if length and (len(length) > 18 or int(length) > self._settings.http_max_body):
            raise RefusedError(TOO_LARGE)

    def _authenticated(self, head: Head, scope: Scope) -> TokenRecord:
        """Step 5. Every failure looks the same to the client, the log has the reason."""
        found = self._tokens.authenticate(head.every(AUTHORIZATION))
        if found.token is not None:
            return found.token
        if not self._throttle.admit(self._remote_address(head, scope)):
            raise RefusedError(THROTTLED, "auth_failures")
        raise self._unauthorized(head, scope, found.failure or "", found.token_id)

    def _unauthorized(
        self, head: Head, scope: Scope, reason: str, token_id: str | None
    ) -> RefusedError:
        details = {} if token_id is None else {"token_id": token_id}
        address = self._remote_address(head, scope)
        self._log.info("auth_failure", remote_addr=address, reason=reason, **details)
        return RefusedError(UNAUTHORIZED, reason)

    def _pin(self, head: Head, scope: Scope) -> Pin | None:
        """Step 6."""
        instance = self._state.instance
        if instance.source == "synthetic":
            if PIN_PROJECT in head and not self._legacy_pin_seen:
                self._legacy_pin_seen = True
                self._log.info("pin_ignored_legacy")
            return None
        try:
            return head.pin(instance, required=self._settings.pin_required)
        except MaadError as error:
            self._log.info(
                "pin_rejected",
                remote_addr=self._remote_address(head, scope),
                code=error.code,
                project=head.text(PIN_PROJECT) or None,
            )
            raise RefusedError(refusal(error.code, error.message)) from None

    def _session(self, head: Head, scope: Scope, token: TokenRecord) -> Session | None:
        """Step 7: the session that the request names, if it names one and may."""
        if SESSION_ID not in head:
            return None
        session = self._sessions.get(head.text(SESSION_ID))
        if session is None:
            raise RefusedError(SESSION_NOT_FOUND)
        if self._sessions.resume(session, token):
            return session
        self._log.warning(
            "session_principal_mismatch",
            remote_addr=self._remote_address(head, scope),
            session_id=session.id,
            bound_token_id=session.principal,
            presented_token_id=token.id,
        )
        raise RefusedError(SESSION_NOT_FOUND)

    def _check_alive(self, incoming: Incoming) -> None:
        """Neither token nor session died while the body came in."""
        death = self._tokens.death_of(incoming.token)
        if death is not None:
            raise self._unauthorized(incoming.head, incoming.scope, death, incoming.token.id)
        if self._ended:
            raise RefusedError(STOPPING)
        if incoming.session is not None and incoming.session.close_reason is not None:
            raise RefusedError(SESSION_NOT_FOUND)

    def _remote_address(self, head: Head, scope: Scope) -> str:
        return remote_address(scope, head, self._settings.trust_proxy)


def _is_stateless(messages: list[Request | Notification]) -> bool:
    first = messages[0]
    return len(messages) == 1 and isinstance(first, Request) and first.is_stateless
