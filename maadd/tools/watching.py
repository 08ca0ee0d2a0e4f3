"""Subscribing to records as MCP resources, in both eras (spec 04 §9.8, §11).

Sessions remember what they watch. In the stateless revision the request itself is the stream:
`subscriptions/listen` opens an entry in the session table for as long as it lasts, so that the
rules of sessions (caps, death of tokens, removed projects, shutdown) hold for it as well.
"""

from __future__ import annotations

import uuid
from typing import Any, Literal, Protocol

import mcp_types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ConfigDict

from maadd.config.instance import Instance
from maadd.protocol.errors import MaadError
from maadd.protocol.roles import Role
from maadd.sessions.access import (
    bind_by_itself,
    reach,
    refuse_cancelled,
    refuse_while_draining,
    require_session,
)
from maadd.sessions.notices import NoticeQueue
from maadd.sessions.record_uri import RecordUri
from maadd.sessions.session import Binding, CloseReason, Mode, Session
from maadd.sessions.table import SessionTable
from maadd.sessions.views import Caller
from maadd.tools.face import caller_of
from maadd.tools.rpc_errors import rpc_error

WATCHED_AT_MOST = 1024
"""Uris that one session, or one `subscriptions/listen`, may name."""

Context = ServerRequestContext[Any, Any]


class FrontState(Protocol):
    """What a subscription asks of the running front."""

    @property
    def instance(self) -> Instance: ...
    @property
    def draining(self) -> bool: ...


class _UpdateParams(mcp_types.NotificationParams):
    """The params of our notification, with the members that MCP does not name."""

    model_config = ConfigDict(extra="allow")


class _Update(mcp_types.Notification[_UpdateParams, Literal["notifications/resources/updated"]]):
    method: Literal["notifications/resources/updated"] = "notifications/resources/updated"
    params: _UpdateParams


class RecordWatching:
    """Answers `resources/subscribe`, `resources/unsubscribe` and `subscriptions/listen`."""

    def __init__(
        self, sessions: SessionTable, state: FrontState, *, transport: str, queue_limit: int
    ) -> None:
        self._sessions = sessions
        self._state = state
        self._transport = transport
        self._queue_limit = queue_limit

    def add_to(self, server: Server[Any]) -> None:
        """Have `server` answer these methods, and say so in `server/discover`."""
        server.add_request_handler(
            "resources/subscribe", mcp_types.SubscribeRequestParams, self._subscribe
        )
        server.add_request_handler(
            "resources/unsubscribe", mcp_types.UnsubscribeRequestParams, self._unsubscribe
        )
        server.add_request_handler(
            "subscriptions/listen", mcp_types.SubscriptionsListenRequestParams, self._listen
        )

        async def discover(
            ctx: Context, _params: mcp_types.RequestParams
        ) -> mcp_types.DiscoverResult:
            capabilities = server.get_capabilities(protocol_version=ctx.protocol_version)
            if capabilities.resources is not None:
                # Which records there are is no list that anybody is told of.
                capabilities.resources.list_changed = False
            return mcp_types.DiscoverResult(
                supported_versions=list(MODERN_PROTOCOL_VERSIONS),
                capabilities=capabilities,
                instructions=server.instructions,
            )

        server.add_request_handler("server/discover", mcp_types.RequestParams, discover)

    async def _subscribe(
        self, ctx: Context, params: mcp_types.SubscribeRequestParams
    ) -> mcp_types.EmptyResult:
        try:
            session = require_session(caller_of(ctx), ctx.method)
            (uri,) = self._reachable(session, [params.uri])
            if len(session.watched | {uri}) > WATCHED_AT_MOST:
                raise _too_many()
        except MaadError as error:
            raise self._refusal(ctx, error) from None
        session.watched.add(uri)
        return mcp_types.EmptyResult()

    async def _unsubscribe(
        self, ctx: Context, params: mcp_types.UnsubscribeRequestParams
    ) -> mcp_types.EmptyResult:
        try:
            session = require_session(caller_of(ctx), ctx.method)
            session.watched.discard(RecordUri.parse(params.uri))
        except MaadError as error:
            raise self._refusal(ctx, error) from None
        return mcp_types.EmptyResult()

    async def _listen(
        self, ctx: Context, params: mcp_types.SubscriptionsListenRequestParams
    ) -> mcp_types.SubscriptionsListenResult:
        """One stream of changes, until either side ends it."""
        requested = params.notifications
        uris = requested.resource_subscriptions or []
        try:
            stream = self._open(caller_of(ctx), uris)
        except MaadError as error:
            raise self._refusal(ctx, error) from None
        meta = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}
        honored = mcp_types.SubscriptionFilter(
            tools_list_changed=requested.tools_list_changed or None,
            resource_subscriptions=list(uris) or None,
        )
        try:
            await ctx.session.send_notification(
                mcp_types.SubscriptionsAcknowledgedNotification(
                    params=mcp_types.SubscriptionsAcknowledgedNotificationParams(
                        notifications=honored, _meta=meta
                    )
                ),
                related_request_id=ctx.request_id,
            )
            while (batch := await stream.notices.take(None)) is not None:
                for notice in batch:
                    update: Any = _restamped(notice, meta)
                    await ctx.session.send_notification(update, related_request_id=ctx.request_id)
        finally:
            stream.notices.detach()
            self._sessions.close(stream, CloseReason.TRANSPORT)
        return mcp_types.SubscriptionsListenResult(_meta=meta)

    def _open(self, caller: Caller, uris: list[str]) -> Session:
        """The entry of a stream, which may read what its caller may."""
        watched = self._reachable(caller, uris)
        if len(watched) > WATCHED_AT_MOST:
            raise _too_many()
        notices = NoticeQueue(self._queue_limit)
        projects = tuple(dict.fromkeys(uri.project for uri in watched))
        binding = Binding(Mode.MULTI, projects, _requested(caller), None) if projects else None
        stream = self._sessions.open(
            f"listen-{uuid.uuid4()}",
            transport=self._transport,
            notices=notices,
            token=caller.token,
            remote_addr=caller.remote_addr,
            binding=binding,
        )
        notices.attach()
        stream.listening = True
        stream.in_flight = 1
        stream.watched = set(watched)
        return stream

    def _reachable(self, caller: Caller, uris: list[str]) -> list[RecordUri]:
        """What the uris name, all of it in projects that the caller may read now."""
        refuse_while_draining(self._state.draining)
        refuse_cancelled(caller)
        instance = self._state.instance
        bind_by_itself(caller, instance)
        parsed = list(dict.fromkeys(RecordUri.parse(uri) for uri in uris))
        for project in dict.fromkeys(uri.project for uri in parsed):
            reach(caller, project, instance)
        for uri in parsed:
            uri.check()
        return parsed

    def _refusal(self, ctx: Context, error: MaadError) -> MCPError:
        caller = caller_of(ctx)
        if error.code == "SESSION_CANCELLED" and isinstance(caller, Session):
            self._sessions.close(caller, CloseReason.TRANSPORT)
        return rpc_error(error, ctx.protocol_version)


def _requested(caller: Caller) -> Role | None:
    if isinstance(caller, Session):
        return None if caller.binding is None else caller.binding.requested
    return caller.pinned_role


def _restamped(notice: bytes, meta: dict[str, Any]) -> _Update:
    """A notification of the queue, as one of this stream."""
    params = msgspec.json.decode(notice)["params"]
    return _Update(params=_UpdateParams(**params, _meta=meta))


def _too_many() -> MaadError:
    return MaadError(
        "INVALID_ARGS",
        f"at most {WATCHED_AT_MOST} uris can be subscribed to at once; maad://<project> stands "
        "for all records of a project",
        {"limit": WATCHED_AT_MOST},
    )
