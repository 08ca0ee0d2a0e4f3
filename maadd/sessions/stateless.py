"""Callers of the stateless revision: a token and perhaps a pin, no session (spec 04 §9.8)."""

from __future__ import annotations

import msgspec

from maadd.auth.caps import bind_role, ceiling, effective_role
from maadd.auth.record import TokenRecord
from maadd.config.instance import Instance, ProjectConfig
from maadd.protocol.errors import MaadError
from maadd.protocol.roles import Role

CALLER_SCOPE_KEY = "maad.caller"
"""Where an HTTP request that the SDK serves carries its caller, in the ASGI scope."""


class StatelessCaller(msgspec.Struct, frozen=True):
    """Who sent one stateless request. `pinned_role` can only lower the role on the pin.

    Where a rule counts by session, the token takes its place.
    """

    token: TokenRecord
    pinned: str | None = None
    pinned_role: Role | None = None
    remote_addr: str | None = None


def admitted_projects(caller: StatelessCaller, instance: Instance) -> list[ProjectConfig]:
    """The declared projects this caller can reach; "admin everywhere" means all of them."""
    return [
        project
        for project in instance.projects.values()
        if caller.pinned in (None, project.name) and ceiling(project, caller.token) is not None
    ]


def stateless_role(caller: StatelessCaller, project: ProjectConfig) -> Role | None:
    """The caller's role on `project`; None when the token does not admit it."""
    requested = caller.pinned_role if caller.pinned == project.name else None
    return effective_role(project, caller.token, requested)


def resolve_project(
    caller: StatelessCaller, project: str | None, instance: Instance
) -> ProjectConfig:
    """The project of one call: the pin, else the argument, else the only one admitted.

    Raises PROJECT_NOT_WHITELISTED (a pin and another `project`), PROJECT_UNKNOWN,
    TOKEN_PROJECT_FORBIDDEN, PROJECT_REQUIRED.
    """
    if caller.pinned is not None and project not in (None, caller.pinned):
        raise MaadError(
            "PROJECT_NOT_WHITELISTED",
            f"the gateway pinned this request to {caller.pinned!r}",
            {"project": project, "projects": [caller.pinned]},
        )
    name = caller.pinned or project
    if name is None:
        return _only_project(caller, instance)
    found = instance.projects.get(name)
    if found is None:
        raise MaadError(
            "PROJECT_UNKNOWN",
            f"no project is called {name!r}; maad_projects lists the names",
            {"project": name},
        )
    bind_role(found, caller.token, None)
    return found


def refuse_stateless(tool: str) -> MaadError:
    """The SESSION_STATELESS error of a tool that needs a session."""
    return MaadError(
        "SESSION_STATELESS",
        f"{tool} needs a session and this protocol revision has none: pass `project` with "
        "each call, and use subscriptions/listen for notifications",
        {"tool": tool},
    )


def _only_project(caller: StatelessCaller, instance: Instance) -> ProjectConfig:
    admitted = admitted_projects(caller, instance)
    if not admitted:
        raise MaadError(
            "TOKEN_PROJECT_FORBIDDEN", "this token admits none of the declared projects"
        )
    if len(admitted) > 1:
        names = [project.name for project in admitted]
        raise MaadError(
            "PROJECT_REQUIRED", f"pass `project`, one of {', '.join(names)}", {"projects": names}
        )
    return admitted[0]
