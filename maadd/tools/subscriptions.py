"""The three subscription tools: change notifications of a session (spec 04 §11)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from maadd.auth.record import TokenRecord
from maadd.auth.timestamps import format_timestamp
from maadd.config.instance import Instance, ProjectConfig
from maadd.pipeline.envelope import FrontAnswer
from maadd.protocol.arguments import SubscribeArgs, SubscriptionsArgs, UnsubscribeArgs
from maadd.protocol.errors import MaadError
from maadd.sessions.access import bound_projects, require_session
from maadd.sessions.binding import role_on, select_project
from maadd.sessions.session import Mode, Session, Subscription
from maadd.sessions.stateless import StatelessCaller, admitted_projects
from maadd.sessions.views import Caller, subscription_view

_NOTE = (
    "changes arrive as notifications/resources/updated while the session's stream is open; "
    "missed ones are not repeated, catch up with maad_changes_since"
)
_NO_STREAM = "; no stream is open now: open one with GET on the MCP endpoint"
_ALL_TYPES = "*"
_MAX_ECHO = 100

SubscriptionTool = Callable[[Caller, Any, Instance, TokenRecord | None], dict[str, Any]]
SubscribeTool = Callable[[Caller, SubscribeArgs, Instance, TokenRecord | None], FrontAnswer]

TypesOf = Callable[[ProjectConfig], Collection[str] | None]
"""The types of a project; None while nobody knows them."""


def subscribe_knowing(types_of: TypesOf) -> SubscribeTool:
    """`maad_subscribe`, which warns of types that no subscribed project has."""

    def subscribe_and_warn(
        caller: Caller, args: SubscribeArgs, instance: Instance, token: TokenRecord | None
    ) -> FrontAnswer:
        data = subscribe(caller, args, instance, token)
        session = require_session(caller, "maad_subscribe")
        names = bound_projects(session) if args.project is None else (args.project,)
        known = [types_of(instance.projects[name]) for name in names]
        return FrontAnswer(data, _unknown_types(args.doc_types, known))

    return subscribe_and_warn


def subscribe(
    caller: Caller, args: SubscribeArgs, instance: Instance, token: TokenRecord | None
) -> dict[str, Any]:
    """Begin or replace the subscription of this session.

    Raises PROJECT_NOT_WHITELISTED and INSUFFICIENT_ROLE for a project out of reach.
    """
    session = require_session(caller, "maad_subscribe")
    names = bound_projects(session)
    if args.project is not None:
        names = (select_project(session, args.project),)
    for name in names:
        _require_reader(session, name, instance, token)
    types = tuple(dict.fromkeys(args.doc_types)) or None
    session.subscription = Subscription(types, args.project, format_timestamp(time.time()))
    return {
        "subscribed": True,
        "filter": {"docTypes": None if types is None else list(types), "project": args.project},
        "note": _NOTE if session.notices.reading else _NOTE + _NO_STREAM,
    }


def unsubscribe(
    caller: Caller, args: UnsubscribeArgs, instance: Instance, token: TokenRecord | None
) -> dict[str, Any]:
    """`maad_unsubscribe`: end it; harmless when there is none."""
    session = require_session(caller, "maad_unsubscribe")
    subscribed = session.subscription is not None
    session.subscription = None
    return {"subscribed": False, "wasSubscribed": subscribed}


def inventory_of(sessions: Iterable[Session]) -> SubscriptionTool:
    """`maad_subscriptions` over these sessions."""

    def subscriptions(
        caller: Caller, args: SubscriptionsArgs, instance: Instance, token: TokenRecord | None
    ) -> dict[str, Any]:
        visible = _visible_projects(caller, instance)
        return _inventory(
            [session for session in sessions if session.subscription is not None], visible
        )

    return subscriptions


def _inventory(subscribers: list[Session], visible: frozenset[str] | None) -> dict[str, Any]:
    """`visible` are the projects that the caller administers; None stands for all."""
    rows = []
    by_project: Counter[str] = Counter()
    by_type: Counter[str] = Counter()
    for session in subscribers:
        subscription = session.subscription
        assert subscription is not None
        names = () if session.binding is None else session.binding.projects
        shown = [name for name in names if visible is None or name in visible]
        binned = [name for name in shown if subscription.project in (None, name)]
        if not binned:
            continue
        by_project.update(binned)
        by_type.update(subscription.doc_types or [_ALL_TYPES])
        rows.append(_row(session, shown))
    return {
        "totalSubscriptions": len(rows),
        "subscriptions": rows,
        "byProject": dict(by_project),
        "byDocType": dict(by_type),
    }


def _row(session: Session, shown: list[str]) -> dict[str, Any]:
    binding = session.binding
    assert binding is not None
    return {
        "sessionId": session.id,
        "mode": binding.mode,
        "activeProject": binding.active_project,
        "whitelist": shown if binding.mode is Mode.MULTI else None,
        "subscription": subscription_view(session.subscription),
        "bindingSource": binding.source,
        "lastActivityAt": format_timestamp(session.last_activity_at),
    }


def _visible_projects(caller: Caller, instance: Instance) -> frozenset[str] | None:
    if isinstance(caller, StatelessCaller):
        return frozenset(project.name for project in admitted_projects(caller, instance))
    if caller.token is None:
        return None
    return frozenset(bound_projects(caller))


def _unknown_types(
    wanted: Iterable[str], known: Sequence[Collection[str] | None]
) -> dict[str, Any] | None:
    """The `_meta` that names types which are registered nowhere; a project whose types nobody
    knows may have them."""
    if None in known:
        return None
    there = {name for types in known for name in types or ()}
    warnings = [
        {
            "field": "docTypes",
            "message": f"no subscribed project has a type {name[:_MAX_ECHO]!r} now; its records "
            "are told of once it is registered",
            "code": "UNKNOWN_TYPE",
            "location": None,
        }
        for name in dict.fromkeys(wanted)
        if name not in there
    ]
    return {"warnings": warnings} if warnings else None


def _require_reader(
    session: Session, name: str, instance: Instance, token: TokenRecord | None
) -> None:
    project = instance.projects.get(name)
    if project is None or role_on(session, project, token) is None:
        raise MaadError(
            "INSUFFICIENT_ROLE",
            f"this session may no longer read {name!r}; name another `project`",
            {"project": name},
        )
