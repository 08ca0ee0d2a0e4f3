"""The project rule of the stateless revision (spec 04 §9.8)."""

from __future__ import annotations

import pytest

from maadd.protocol.errors import MaadError
from maadd.protocol.roles import Role
from maadd.sessions.stateless import (
    StatelessCaller,
    admitted_projects,
    resolve_project,
    stateless_role,
)


@pytest.fixture
def office(make_instance):
    return make_instance(alpha=Role.ADMIN, beta=Role.WRITER)


@pytest.mark.parametrize(
    ("admits", "pinned", "named", "expected"),
    [
        ("*", None, None, "PROJECT_REQUIRED"),
        ("*", None, "beta", "beta"),
        ("*", None, "nope", "PROJECT_UNKNOWN"),
        ("alpha", None, None, "alpha"),
        ("alpha", None, "beta", "TOKEN_PROJECT_FORBIDDEN"),
        ("nothing", None, None, "TOKEN_PROJECT_FORBIDDEN"),
        ("*", "beta", None, "beta"),
        ("*", "beta", "beta", "beta"),
        ("*", "beta", "alpha", "PROJECT_NOT_WHITELISTED"),
        ("alpha", "beta", None, "TOKEN_PROJECT_FORBIDDEN"),
        ("*", "gone", None, "PROJECT_UNKNOWN"),
    ],
)
def test_the_project_of_a_call(office, make_token, admits, pinned, named, expected):
    caller = StatelessCaller(make_token(projects=admits), pinned)
    if expected.isupper():
        with pytest.raises(MaadError) as caught:
            resolve_project(caller, named, office)
        assert caught.value.code == expected
    else:
        assert resolve_project(caller, named, office).name == expected


@pytest.mark.parametrize(
    ("token_role", "project", "pinned_role", "role"),
    [
        (Role.ADMIN, "alpha", None, Role.ADMIN),
        (Role.ADMIN, "beta", None, Role.WRITER),
        (Role.READER, "alpha", None, Role.READER),
        (Role.ADMIN, "alpha", Role.READER, Role.READER),
        (Role.READER, "alpha", Role.ADMIN, Role.READER),
    ],
)
def test_the_role_of_a_call(office, make_token, token_role, project, pinned_role, role):
    pinned = project if pinned_role is not None else None
    caller = StatelessCaller(make_token(role=token_role), pinned, pinned_role)
    assert stateless_role(caller, office.projects[project]) is role


def test_admin_everywhere_means_every_admitted_project(office, make_token):
    def names(caller):
        return [project.name for project in admitted_projects(caller, office)]

    assert names(StatelessCaller(make_token())) == ["alpha", "beta"]
    assert names(StatelessCaller(make_token(projects="beta"))) == ["beta"]
    assert names(StatelessCaller(make_token(), "alpha")) == ["alpha"]
