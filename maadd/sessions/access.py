"""Whether a request may go on, on which project, and in which role (spec 04 §4.3, §6, §9.8).

The steps 2 to 7 of the pipeline, for tools and resources alike; everything is composed anew
from the live instance.
"""

from __future__ import annotations

from maadd.config.instance import Instance, ProjectConfig
from maadd.protocol.errors import MaadError
from maadd.protocol.roles import Role
from maadd.sessions.binding import auto_bind, role_on, select_project
from maadd.sessions.session import Session
from maadd.sessions.stateless import (
    StatelessCaller,
    refuse_stateless,
    resolve_project,
    stateless_role,
)
from maadd.sessions.views import Caller


def refuse_while_draining(draining: bool) -> None:
    """SHUTTING_DOWN when the server is stopping."""
    if draining:
        raise MaadError("SHUTTING_DOWN", "the server is stopping; connect again when it is back")


def refuse_cancelled(caller: Caller) -> None:
    """SESSION_CANCELLED when a reload took every project of the session."""
    if isinstance(caller, Session) and caller.cancelled:
        raise MaadError(
            "SESSION_CANCELLED", "the project of this session was removed; open a new session"
        )


def require_session(caller: Caller, tool: str) -> Session:
    """The session of a caller; SESSION_STATELESS when it has none."""
    if isinstance(caller, StatelessCaller):
        raise refuse_stateless(tool)
    return caller


def bind_by_itself(caller: Caller, instance: Instance) -> None:
    """Bind the session of a single-project server to its only project (spec 04 §2.3)."""
    if isinstance(caller, Session) and caller.binding is None and instance.source == "synthetic":
        caller.binding = auto_bind(instance)


def bound_projects(session: Session) -> tuple[str, ...]:
    """The names a session is bound to; SESSION_UNBOUND when there is no binding."""
    if session.binding is None:
        raise MaadError(
            "SESSION_UNBOUND", "this session is bound to no project; call maad_use_project"
        )
    return session.binding.projects


def reach(caller: Caller, project: str | None, instance: Instance) -> tuple[ProjectConfig, Role]:
    """The project that a request means and the caller's role there, at least reader.

    Raises SESSION_UNBOUND, PROJECT_REQUIRED, PROJECT_NOT_WHITELISTED; for a stateless caller
    what `resolve_project` raises.
    """
    if isinstance(caller, StatelessCaller):
        named = resolve_project(caller, project, instance)
        name, found = named.name, instance.projects.get(named.name)
        role = stateless_role(caller, named)
    else:
        name = select_project(caller, project)
        found = instance.projects.get(name)
        role = None if found is None else role_on(caller, found, caller.token)
    if found is None or role is None:
        raise MaadError("PROJECT_NOT_WHITELISTED", f"this session may no longer use {name!r}")
    return found, role
