"""Roles and their order (spec 04 §5): reader < writer < admin."""

from __future__ import annotations

import enum


class Role(enum.IntEnum):
    """A role; compare with `>=` to ask whether one satisfies another."""

    READER = 0
    WRITER = 1
    ADMIN = 2

    @property
    def text(self) -> str:
        """The name used in files, arguments and answers."""
        return self.name.lower()


ROLE_NAMES = tuple(role.text for role in Role)


def parse_role(text: str) -> Role | None:
    """The role named `text` (exact lower-case name), or None."""
    return Role[text.upper()] if text in ROLE_NAMES else None
