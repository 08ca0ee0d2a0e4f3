"""Binding, and the project and role of a call (spec 04 §4.2, §4.3, §5.1)."""

from __future__ import annotations

import pytest

from maadd.protocol.errors import MaadError
from maadd.protocol.roles import Role
from maadd.sessions.binding import (
    auto_bind,
    bind_multi,
    bind_pinned,
    bind_single,
    role_on,
    select_project,
    without_projects,
)
from maadd.sessions.session import Binding, BindingSource, Mode

READER, WRITER, ADMIN = Role.READER, Role.WRITER, Role.ADMIN


@pytest.fixture
def session(make_bench):
    return make_bench().open("s")


@pytest.fixture
def office(make_instance):
    return make_instance(alpha=ADMIN, beta=WRITER, gamma=READER)


def code_of(action) -> str:
    with pytest.raises(MaadError) as caught:
        action()
    return caught.value.code


def test_a_single_binding_names_its_project_and_source(session, office):
    binding = bind_single(session, "alpha", WRITER, office, None)
    assert binding == Binding(Mode.SINGLE, ("alpha",), WRITER, BindingSource.CLIENT_TOOL)
    assert binding.active_project == "alpha"


def test_a_multi_binding_keeps_order_and_counts_names_once(session, office):
    binding = bind_multi(session, ["beta", "alpha", "beta"], None, office, None)
    assert binding.projects == ("beta", "alpha")
    assert binding.active_project is None


@pytest.mark.parametrize(
    ("name", "requested", "projects", "code"),
    [
        ("nope", None, "*", "PROJECT_UNKNOWN"),
        ("beta", None, "alpha", "TOKEN_PROJECT_FORBIDDEN"),
        ("beta", ADMIN, "*", "ROLE_UPGRADE_DENIED"),
        ("gamma", WRITER, "*", "ROLE_UPGRADE_DENIED"),
    ],
)
def test_a_refused_bind_changes_nothing(
    session, office, make_token, name, requested, projects, code
):
    owner = make_token(projects=projects)
    assert code_of(lambda: bind_single(session, name, requested, office, owner)) == code
    assert code_of(lambda: bind_multi(session, ["alpha", name], requested, office, owner)) == code
    assert session.binding is None
    bind_single(session, "alpha", None, office, owner)


@pytest.mark.parametrize("source", [BindingSource.CLIENT_TOOL, None])
def test_a_bound_session_is_not_bound_again(session, office, source):
    session.binding = Binding(Mode.SINGLE, ("alpha",), None, source)
    for name in ("alpha", "beta", "nope"):
        assert code_of(lambda n=name: bind_single(session, n, None, office, None)) == (
            "SESSION_ALREADY_BOUND"
        )
    assert code_of(lambda: bind_multi(session, ["beta"], None, office, None)) == (
        "SESSION_ALREADY_BOUND"
    )


def test_a_pinned_session_says_so_and_names_the_pin(session, office):
    session.binding = bind_pinned("alpha", None, office, None)
    with pytest.raises(MaadError) as caught:
        bind_single(session, "nope", None, office, None)
    assert caught.value.code == "SESSION_PINNED"
    assert "alpha" in caught.value.message
    assert "X-Maad-Pin-Project" in caught.value.message


def test_a_pin_needs_a_token_that_admits_the_project(office, make_token):
    owner = make_token(projects="beta")
    assert code_of(lambda: bind_pinned("alpha", None, office, owner)) == "TOKEN_PROJECT_FORBIDDEN"


@pytest.mark.parametrize(
    ("token_role", "lowered", "effective"),
    [(ADMIN, None, ADMIN), (ADMIN, READER, READER), (READER, ADMIN, READER)],
)
def test_a_pinned_role_only_lowers(session, office, make_token, token_role, lowered, effective):
    owner = make_token(role=token_role)
    session.binding = bind_pinned("alpha", lowered, office, owner)
    assert role_on(session, office.projects["alpha"], owner) is effective


def test_single_project_mode_binds_by_itself_without_a_source(make_instance):
    binding = auto_bind(make_instance(source="synthetic", default=WRITER))
    assert binding == Binding(Mode.SINGLE, ("default",), None, None)


def test_the_role_follows_the_live_caps(session, office, make_token, make_instance):
    session.binding = bind_single(session, "alpha", WRITER, office, make_token())
    assert role_on(session, office.projects["alpha"], make_token()) is WRITER
    assert role_on(session, office.projects["alpha"], make_token(role=READER)) is READER
    assert role_on(session, office.projects["alpha"], make_token(projects="beta")) is None
    lowered = make_instance(alpha=READER)
    assert role_on(session, lowered.projects["alpha"], make_token()) is READER


@pytest.mark.parametrize(
    ("projects", "named", "expected"),
    [
        (None, None, "SESSION_UNBOUND"),
        (None, "alpha", "SESSION_UNBOUND"),
        (("alpha",), None, "alpha"),
        (("alpha",), "alpha", "alpha"),
        (("alpha",), "beta", "PROJECT_NOT_WHITELISTED"),
    ],
)
def test_the_project_of_a_call_in_a_single_session(session, projects, named, expected):
    if projects:
        session.binding = Binding(Mode.SINGLE, projects, None, BindingSource.CLIENT_TOOL)
    if expected.isupper():
        assert code_of(lambda: select_project(session, named)) == expected
    else:
        assert select_project(session, named) == expected


@pytest.mark.parametrize(
    ("named", "expected"),
    [(None, "PROJECT_REQUIRED"), ("beta", "beta"), ("gamma", "PROJECT_NOT_WHITELISTED")],
)
def test_the_project_of_a_call_in_a_multi_session(session, named, expected):
    session.binding = Binding(Mode.MULTI, ("alpha", "beta"), None, BindingSource.CLIENT_TOOL)
    if expected.isupper():
        assert code_of(lambda: select_project(session, named)) == expected
    else:
        assert select_project(session, named) == expected


def test_removed_projects_leave_a_binding():
    both = Binding(Mode.MULTI, ("alpha", "beta"), READER, BindingSource.CLIENT_TOOL)
    assert without_projects(both, {"gamma"}) is both
    assert without_projects(both, {"alpha"}) == Binding(
        Mode.MULTI, ("beta",), READER, BindingSource.CLIENT_TOOL
    )
    assert without_projects(both, {"alpha", "beta"}) is None
