"""The three caps: project ceiling, token, requested role (spec 04 §5.1).

Composed on every call from the live instance and the live token, never remembered.
"""

from __future__ import annotations

from collections.abc import Iterable

from maadd.auth.record import ANY_PROJECT, Reach, TokenRecord
from maadd.config.instance import ProjectConfig
from maadd.protocol.errors import MaadError
from maadd.protocol.roles import Role


def token_cap(token: Reach, project: str) -> Role | None:
    """The highest role `token` may have on `project`; None when it admits the project not at all.

    A grant that names the project wins over `*`, wherever it stands; no grant lifts above
    the token's own role.
    """
    grant = None
    for candidate in token.projects:
        if candidate.name == project:
            grant = candidate
            break
        if candidate.name == ANY_PROJECT:
            grant = candidate
    if grant is None:
        return None
    return token.role if grant.role is None else min(token.role, grant.role)


def admitted(token: Reach | None, projects: Iterable[str]) -> tuple[str, ...]:
    """Those of the projects that `token` may know of; on stdio (no token) all."""
    return tuple(name for name in projects if token is None or token_cap(token, name) is not None)


def administers_all(token: Reach | None) -> bool:
    """Whether who calls is an administrator of everything, and may see all of it (spec 04 §17)."""
    return token is None or token_cap(token, ANY_PROJECT) == Role.ADMIN


def ceiling(project: ProjectConfig, token: TokenRecord | None) -> Role | None:
    """The highest role on `project`: its own ceiling on stdio (no token), else the lower cap."""
    if token is None:
        return project.role
    cap = token_cap(token, project.name)
    return None if cap is None else min(project.role, cap)


def effective_role(
    project: ProjectConfig, token: TokenRecord | None, requested: Role | None
) -> Role | None:
    """The role of a call by a session that asked for `requested` when it was bound."""
    highest = ceiling(project, token)
    if highest is None or requested is None:
        return highest
    return min(highest, requested)


def bind_role(project: ProjectConfig, token: TokenRecord | None, requested: Role | None) -> Role:
    """The role a bind results in.

    Raises TOKEN_PROJECT_FORBIDDEN when the token does not admit the project and
    ROLE_UPGRADE_DENIED when `requested` is above the ceiling.
    """
    highest = ceiling(project, token)
    if highest is None:
        raise MaadError(
            "TOKEN_PROJECT_FORBIDDEN",
            f"this token does not admit project {project.name!r}",
            {"project": project.name},
        )
    if requested is None:
        return highest
    if requested > highest:
        raise MaadError(
            "ROLE_UPGRADE_DENIED",
            f"role {requested.text} on project {project.name!r} is above {highest.text}, "
            "the highest this session may have; ask for that or leave 'as' out",
            {"project": project.name, "requested": requested.text, "allowed": highest.text},
        )
    return requested
