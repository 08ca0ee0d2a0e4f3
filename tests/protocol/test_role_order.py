"""Roles are ordered reader < writer < admin (spec 04 §5)."""

from __future__ import annotations

import pytest

from maadd.protocol.roles import ROLE_NAMES, Role, parse_role


def test_higher_roles_satisfy_lower_ones() -> None:
    assert Role.READER < Role.WRITER < Role.ADMIN
    assert Role.ADMIN >= Role.WRITER
    assert not Role.READER >= Role.WRITER
    assert min(Role.ADMIN, Role.READER) is Role.READER


@pytest.mark.parametrize("role", Role)
def test_names_read_back(role: Role) -> None:
    assert parse_role(role.text) is role


def test_the_three_names() -> None:
    assert ROLE_NAMES == ("reader", "writer", "admin")


@pytest.mark.parametrize("text", ["", "Reader", "ADMIN", " admin", "owner", "reader\n"])
def test_any_other_text_is_no_role(text: str) -> None:
    assert parse_role(text) is None
