"""Binding a session to projects, and choosing the project of a call (spec 04 §4.2, §4.3).

Pure functions: a failed bind changes nothing, the caller stores what a successful one returns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from maadd.auth.caps import bind_role, effective_role
from maadd.auth.record import TokenRecord
from maadd.config.instance import Instance, ProjectConfig
from maadd.protocol.errors import MaadError
from maadd.protocol.roles import Role
from maadd.sessions.session import Binding, BindingSource, Mode, Session


def bind_single(
    session: Session,
    name: str,
    requested: Role | None,
    instance: Instance,
    token: TokenRecord | None,
) -> Binding:
    """The binding to one project.

    Raises SESSION_PINNED, SESSION_ALREADY_BOUND, PROJECT_UNKNOWN, TOKEN_PROJECT_FORBIDDEN,
    ROLE_UPGRADE_DENIED, in this order.
    """
    _require_unbound(session)
    _grant(name, requested, instance, token)
    return Binding(Mode.SINGLE, (name,), requested, BindingSource.CLIENT_TOOL)


def bind_multi(
    session: Session,
    names: Iterable[str],
    requested: Role | None,
    instance: Instance,
    token: TokenRecord | None,
) -> Binding:
    """The binding to several projects, all or none; repeated names count once.

    Raises what `bind_single` raises, for the first project that is refused.
    """
    _require_unbound(session)
    projects = tuple(dict.fromkeys(names))
    for name in projects:
        _grant(name, requested, instance, token)
    return Binding(Mode.MULTI, projects, requested, BindingSource.CLIENT_TOOL)


def bind_pinned(
    name: str, lowered: Role | None, instance: Instance, token: TokenRecord | None
) -> Binding:
    """The irrevocable binding that a gateway asks for at initialize (spec 04 §9.6).

    `lowered` can only lower the role. Raises PROJECT_UNKNOWN, TOKEN_PROJECT_FORBIDDEN.
    """
    _grant(name, None, instance, token)
    return Binding(Mode.SINGLE, (name,), lowered, BindingSource.GATEWAY_PIN)


def auto_bind(instance: Instance) -> Binding:
    """The binding of a single-project server's session to its only project (spec 04 §2.3)."""
    (name,) = instance.projects
    return Binding(Mode.SINGLE, (name,), None, None)


def select_project(session: Session, project: str | None) -> str:
    """The name of the project a call means.

    Raises SESSION_UNBOUND, PROJECT_REQUIRED (multi, none named), PROJECT_NOT_WHITELISTED.
    """
    binding = session.binding
    if binding is None:
        raise MaadError(
            "SESSION_UNBOUND",
            "this session is bound to no project; call maad_use_project first "
            "(maad_projects lists the names)",
        )
    if project is None:
        if binding.mode is Mode.SINGLE:
            return binding.projects[0]
        raise MaadError(
            "PROJECT_REQUIRED",
            f"pass `project`, one of {', '.join(binding.projects)}",
            {"projects": list(binding.projects)},
        )
    if project not in binding.projects:
        raise MaadError(
            "PROJECT_NOT_WHITELISTED",
            f"this session is bound to {', '.join(binding.projects)}, not to {project!r}",
            {"project": project, "projects": list(binding.projects)},
        )
    return project


def role_on(session: Session, project: ProjectConfig, token: TokenRecord | None) -> Role | None:
    """The role of this session on a bound project now; None when it has none any more."""
    requested = None if session.binding is None else session.binding.requested
    return effective_role(project, token, requested)


def without_projects(binding: Binding, removed: Collection[str]) -> Binding | None:
    """`binding` without the removed projects: itself when untouched, None when none is left."""
    rest = tuple(name for name in binding.projects if name not in removed)
    if not rest:
        return None
    if len(rest) == len(binding.projects):
        return binding
    return Binding(binding.mode, rest, binding.requested, binding.source)


def _require_unbound(session: Session) -> None:
    binding = session.binding
    if binding is None:
        return
    bound = ", ".join(binding.projects)
    if binding.source is BindingSource.GATEWAY_PIN:
        raise MaadError(
            "SESSION_PINNED",
            f"the gateway's X-Maad-Pin-Project header bound this session to {bound} for good",
            {"project": binding.active_project},
        )
    raise MaadError(
        "SESSION_ALREADY_BOUND",
        f"this session is bound to {bound}; open a new session to bind another project",
        {"projects": list(binding.projects)},
    )


def _grant(
    name: str, requested: Role | None, instance: Instance, token: TokenRecord | None
) -> None:
    project = instance.projects.get(name)
    if project is None:
        raise MaadError(
            "PROJECT_UNKNOWN",
            f"no project is called {name!r}; maad_projects lists the names",
            {"project": name},
        )
    bind_role(project, token, requested)
