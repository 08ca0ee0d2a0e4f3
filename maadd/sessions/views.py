"""What a caller is told about projects and about itself (spec 04 §4.2)."""

from __future__ import annotations

from typing import Any

from maadd.auth.caps import ceiling
from maadd.auth.record import TokenRecord
from maadd.auth.timestamps import format_timestamp
from maadd.config.instance import Instance
from maadd.sessions.binding import role_on
from maadd.sessions.session import Session, Subscription
from maadd.sessions.stateless import StatelessCaller

_UNBOUND_NOTE = "not bound yet: call maad_use_project or maad_use_projects"
_STATELESS_NOTE = "this protocol revision has no sessions: pass `project` with each call"

Caller = Session | StatelessCaller


def projects_view(caller: Caller, instance: Instance, token: TokenRecord | None) -> dict[str, Any]:
    """The data of `maad_projects`: with a token only what it admits, at the role it can reach.

    `accessible` is None while the caller is bound to nothing.
    """
    bound = _bound_names(caller)
    projects = []
    for project in instance.projects.values():
        role = ceiling(project, token)
        if role is None:
            continue
        projects.append(
            {
                "name": project.name,
                "description": project.description,
                "role": role.text,
                "accessible": None if bound is None else project.name in bound,
            }
        )
    return {
        "instance": instance.name,
        "source": instance.source,
        "projects": projects,
        "sessionBound": bound is not None,
    }


def current_session_view(
    caller: Caller, instance: Instance, token: TokenRecord | None
) -> dict[str, Any]:
    """The data of `maad_current_session`."""
    if isinstance(caller, StatelessCaller):
        return {
            "sessionId": None,
            "mode": None,
            "binding_source": None,
            "note": _STATELESS_NOTE,
            "token": _token_view(token),
        }
    binding = caller.binding
    view: dict[str, Any] = {
        "sessionId": caller.id,
        "mode": None if binding is None else binding.mode,
        "activeProject": None if binding is None else binding.active_project,
        "whitelist": None
        if binding is None or binding.active_project is not None
        else list(binding.projects),
        "effectiveRoles": effective_roles(caller, instance, token),
        "binding_source": None if binding is None else binding.source,
        "createdAt": format_timestamp(caller.created_at),
        "lastActivityAt": format_timestamp(caller.last_activity_at),
        "subscription": subscription_view(caller.subscription),
        "token": _token_view(token),
    }
    if binding is None:
        view["note"] = _UNBOUND_NOTE
    return view


def subscription_view(subscription: Subscription | None) -> dict[str, Any] | None:
    """`{docTypes|null, project|null, createdAt}`, or None without a subscription."""
    if subscription is None:
        return None
    types = subscription.doc_types
    return {
        "docTypes": None if types is None else list(types),
        "project": subscription.project,
        "createdAt": subscription.created_at,
    }


def effective_roles(
    session: Session, instance: Instance, token: TokenRecord | None
) -> dict[str, str]:
    """The role names of a session's bound projects, as they are now."""
    roles = {}
    for name in () if session.binding is None else session.binding.projects:
        project = instance.projects.get(name)
        role = None if project is None else role_on(session, project, token)
        if role is not None:
            roles[name] = role.text
    return roles


def _bound_names(caller: Caller) -> tuple[str, ...] | None:
    if isinstance(caller, StatelessCaller):
        return None if caller.pinned is None else (caller.pinned,)
    return None if caller.binding is None else caller.binding.projects


def _token_view(token: TokenRecord | None) -> dict[str, Any] | None:
    if token is None:
        return None
    view: dict[str, Any] = {"tokenId": token.id, "role": token.role.text}
    optional = {
        "agentId": token.agent_id,
        "userId": token.user_id,
        "name": token.name,
        "expiresAt": token.expires_at,
    }
    view.update((key, value) for key, value in optional.items() if value is not None)
    return view
