"""What a token may be issued for (spec 04 §8.1, steps 1 to 6)."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping

import msgspec

from maadd.auth.record import ANY_PROJECT, ProjectGrant
from maadd.auth.timestamps import parse_timestamp
from maadd.config.history import Advisory
from maadd.config.instance import ProjectConfig
from maadd.protocol.errors import MaadError
from maadd.protocol.roles import ROLE_NAMES, Role, parse_role


class TokenSpec(msgspec.Struct, frozen=True):
    """What the issuer asks for; `expires_at` is RFC 3339 text or a bare date."""

    role: Role
    projects: tuple[ProjectGrant, ...]
    name: str | None = None
    agent_id: str | None = None
    user_id: str | None = None
    expires_at: str | None = None


def parse_grants(text: str) -> tuple[ProjectGrant, ...]:
    """The grants of a comma list such as `*` or `permits,roads:reader`. Raises INVALID_ARGS."""
    grants = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, role_text = entry.partition(":")
        role = parse_role(role_text) if colon else None
        if not name or (colon and role is None):
            raise _invalid(
                "projects",
                f"{entry!r} is not accepted; write a project or project:role, "
                f"with one of {', '.join(ROLE_NAMES)}",
            )
        grants.append(ProjectGrant(name, role))
    return tuple(grants)


def check_issue(
    spec: TokenSpec,
    projects: Mapping[str, ProjectConfig],
    *,
    now: float,
    identity_required: bool,
    shown: Collection[str] | None = None,
) -> tuple[Advisory, ...]:
    """Judges `spec` against the declared projects; returns the warnings of the answer.

    The first broken rule decides: INVALID_ARGS, TOKEN_PROJECT_UNKNOWN,
    TOKEN_ROLE_ABOVE_GLOBAL, ROLE_UPGRADE_DENIED, INVALID_ARGS (expiry),
    TOKEN_IDENTITY_REQUIRED. `now` is in epoch seconds; `shown` are the projects that a refusal
    may tell the issuer of, all unless given.
    """
    _check_texts(spec)
    _check_grants(spec, projects, projects if shown is None else shown)
    if spec.expires_at is not None:
        expiry = parse_timestamp(spec.expires_at)
        if expiry is None:
            raise _invalid(
                "expiresAt", "must be a date or a time with offset, such as 2032-01-01T00:00:00Z"
            )
        if expiry <= now:
            raise _invalid("expiresAt", "must be in the future")
    if spec.agent_id or spec.user_id:
        return ()
    message = "the token names neither an agent nor a user; its writes cannot be attributed"
    if identity_required:
        raise MaadError("TOKEN_IDENTITY_REQUIRED", f"{message}: give agentId or userId")
    return (Advisory("TOKEN_IDENTITY_REQUIRED", message),)


def _check_texts(spec: TokenSpec) -> None:
    """Names end up in commit messages and logs, one line each."""
    texts = {"name": spec.name, "agentId": spec.agent_id, "userId": spec.user_id}
    for path, text in texts.items():
        if text is not None and len(text) > LONGEST_TEXT:
            raise _invalid(path, f"must have at most {LONGEST_TEXT} characters")
        if text is not None and any(unicodedata.category(char) in _UNWRITABLE for char in text):
            raise _invalid(path, "must be one line of text without control characters")


LONGEST_TEXT = 200
"""Characters of a name, an agent's and a user's id."""

_UNWRITABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})


def _check_grants(
    spec: TokenSpec, projects: Mapping[str, ProjectConfig], shown: Collection[str]
) -> None:
    names = Counter(grant.name for grant in spec.projects)
    if not names:
        raise _invalid("projects", "at least one project, or *, is required")
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise _invalid("projects", f"named more than once: {', '.join(twice)}")
    unknown = [name for name in names if name != ANY_PROJECT and name not in projects]
    if unknown:
        raise MaadError(
            "TOKEN_PROJECT_UNKNOWN",
            f"not declared in this instance: {', '.join(unknown)}; declared are {', '.join(shown)}",
        )
    for grant in spec.projects:
        if grant.role is not None and grant.role > spec.role:
            raise MaadError(
                "TOKEN_ROLE_ABOVE_GLOBAL",
                f"role {grant.role.text} on {grant.name!r} is above the token's {spec.role.text}",
            )
    for grant in spec.projects:
        declared = projects.get(grant.name)
        if declared is not None and grant.role is not None and grant.role > declared.role:
            raise MaadError(
                "ROLE_UPGRADE_DENIED",
                f"role {grant.role.text} on {grant.name!r} is above the project's ceiling "
                f"{declared.role.text}",
                {
                    "project": grant.name,
                    "requested": grant.role.text,
                    "allowed": declared.role.text,
                },
            )


def _invalid(path: str, message: str) -> MaadError:
    issues = [{"path": path, "message": message}]
    details = {"tool": "maad_issue_token", "issues": issues}
    return MaadError("INVALID_ARGS", f"{path}: {message}", details)
