"""The four session tools: they answer without a worker (spec 04 §4.2, §9.8)."""

from __future__ import annotations

from typing import Any

from maadd.auth.record import TokenRecord
from maadd.config.instance import Instance
from maadd.protocol.arguments import (
    CurrentSessionArgs,
    ProjectsArgs,
    UseProjectArgs,
    UseProjectsArgs,
)
from maadd.protocol.roles import Role, parse_role
from maadd.sessions.access import require_session
from maadd.sessions.binding import bind_multi, bind_single
from maadd.sessions.views import Caller, current_session_view, effective_roles, projects_view


def projects(
    caller: Caller, args: ProjectsArgs, instance: Instance, token: TokenRecord | None
) -> dict[str, Any]:
    """`maad_projects`."""
    return projects_view(caller, instance, token)


def use_project(
    caller: Caller, args: UseProjectArgs, instance: Instance, token: TokenRecord | None
) -> dict[str, Any]:
    """`maad_use_project`: bind the session to one project, for good."""
    session = require_session(caller, "maad_use_project")
    session.binding = bind_single(session, args.name, _role(args), instance, token)
    return {
        "mode": session.binding.mode,
        "activeProject": args.name,
        "effectiveRole": effective_roles(session, instance, token)[args.name],
    }


def use_projects(
    caller: Caller, args: UseProjectsArgs, instance: Instance, token: TokenRecord | None
) -> dict[str, Any]:
    """`maad_use_projects`: bind the session to several projects, all or none."""
    session = require_session(caller, "maad_use_projects")
    session.binding = bind_multi(session, args.names, _role(args), instance, token)
    return {
        "mode": session.binding.mode,
        "whitelist": list(session.binding.projects),
        "effectiveRoles": effective_roles(session, instance, token),
    }


def current_session(
    caller: Caller, args: CurrentSessionArgs, instance: Instance, token: TokenRecord | None
) -> dict[str, Any]:
    """`maad_current_session`."""
    return current_session_view(caller, instance, token)


def _role(args: UseProjectArgs | UseProjectsArgs) -> Role | None:
    return None if args.requested_role is None else parse_role(args.requested_role)
