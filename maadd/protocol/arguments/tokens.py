"""Arguments of the token tools (spec 04 §8)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from maadd.protocol.arguments.base import Arguments, ConflictingArguments, RoleName


class TokenProject(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One allowlist entry: a project name or `*`, with a role below the token's if given."""

    name: Annotated[str, Meta(description="or *")]
    role: RoleName | None = None


class IssueTokenArgs(Arguments, frozen=True):
    """`maad_issue_token` (§8.1; `expires_at` is judged there)."""

    role: RoleName
    projects: Annotated[tuple[TokenProject, ...], Meta(min_length=1)]
    name: str | None = None
    agent_id: str | None = None
    user_id: str | None = None
    expires_at: Annotated[str, Meta(description="ISO 8601")] | None = None

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for index, project in enumerate(self.projects):
            if project.name in seen:
                raise ConflictingArguments(
                    (f"projects[{index}].name", "names a project for the second time")
                )
            seen.add(project.name)


class RevokeTokenArgs(Arguments, frozen=True):
    """`maad_revoke_token`."""

    id: str


class RotateTokenArgs(Arguments, frozen=True):
    """`maad_rotate_token`."""

    id: str


class ListTokensArgs(Arguments, frozen=True):
    """`maad_list_tokens`."""

    include_revoked: bool = False


class ShowTokenArgs(Arguments, frozen=True):
    """`maad_show_token`."""

    id: str
