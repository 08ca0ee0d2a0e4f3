"""The four session tools (spec 04 §4.2, §9.8)."""

from __future__ import annotations

import pytest

from maadd.protocol.arguments import (
    CurrentSessionArgs,
    ProjectsArgs,
    UseProjectArgs,
    UseProjectsArgs,
)
from maadd.protocol.errors import MaadError
from maadd.protocol.roles import Role
from maadd.sessions.session import Subscription
from maadd.sessions.stateless import StatelessCaller
from maadd.tools.sessions import current_session, projects, use_project, use_projects


@pytest.fixture
def office(make_instance):
    return make_instance(alpha=Role.ADMIN, beta=Role.WRITER)


@pytest.fixture
def session(make_bench):
    return make_bench().open("s-1")


def test_stdio_sees_every_project_at_its_ceiling(session, office):
    assert projects(session, ProjectsArgs(), office, None) == {
        "instance": "office",
        "source": "file",
        "projects": [
            {"name": "alpha", "description": "about alpha", "role": "admin", "accessible": None},
            {"name": "beta", "description": "about beta", "role": "writer", "accessible": None},
        ],
        "sessionBound": False,
    }


def test_a_token_sees_what_it_admits_at_its_own_cap(session, office, make_token):
    owner = make_token(role=Role.READER, projects="beta")
    shown = projects(session, ProjectsArgs(), office, owner)
    assert [(p["name"], p["role"]) for p in shown["projects"]] == [("beta", "reader")]


def test_a_bound_session_sees_which_projects_are_its_own(session, office):
    use_project(session, UseProjectArgs(name="beta"), office, None)
    shown = projects(session, ProjectsArgs(), office, None)
    assert shown["sessionBound"] is True
    assert [p["accessible"] for p in shown["projects"]] == [False, True]


def test_use_project_answers_mode_project_and_role(session, office):
    args = UseProjectArgs(name="alpha", requested_role="writer")
    assert use_project(session, args, office, None) == {
        "mode": "single",
        "activeProject": "alpha",
        "effectiveRole": "writer",
    }


def test_use_projects_answers_a_role_for_each(session, office, make_token):
    args = UseProjectsArgs(names=("beta", "alpha", "beta"))
    assert use_projects(session, args, office, make_token()) == {
        "mode": "multi",
        "whitelist": ["beta", "alpha"],
        "effectiveRoles": {"beta": "writer", "alpha": "admin"},
    }


def test_use_projects_is_all_or_nothing(session, office):
    with pytest.raises(MaadError, match="nope"):
        use_projects(session, UseProjectsArgs(names=("alpha", "nope")), office, None)
    assert session.binding is None


def test_an_unbound_session_is_told_how_to_bind(session, office, make_token):
    shown = current_session(session, CurrentSessionArgs(), office, make_token())
    assert (shown["sessionId"], shown["mode"], shown["binding_source"]) == ("s-1", None, None)
    assert "maad_use_project" in shown["note"]
    assert shown["createdAt"] == shown["lastActivityAt"] == "2030-03-17T17:46:40.000Z"


def test_a_bound_session_sees_itself(make_bench, office, make_token):
    bench = make_bench()
    owner = make_token(name="night", agent_id="agt", expires_at="2032-01-01T00:00:00.000Z")
    session = bench.open("s-1", owner)
    use_projects(session, UseProjectsArgs(names=("alpha",), requested_role="reader"), office, owner)
    session.subscription = Subscription(("case",), None, "2031-01-01T00:00:00.000Z")
    bench.now += 2.5
    bench.table.resume(session, owner)
    assert current_session(session, CurrentSessionArgs(), office, owner) == {
        "sessionId": "s-1",
        "mode": "multi",
        "activeProject": None,
        "whitelist": ["alpha"],
        "effectiveRoles": {"alpha": "reader"},
        "binding_source": "client_tool",
        "createdAt": "2030-03-17T17:46:40.000Z",
        "lastActivityAt": "2030-03-17T17:46:42.500Z",
        "subscription": {
            "docTypes": ["case"],
            "project": None,
            "createdAt": "2031-01-01T00:00:00.000Z",
        },
        "token": {
            "tokenId": "tok-1",
            "role": "admin",
            "agentId": "agt",
            "name": "night",
            "expiresAt": "2032-01-01T00:00:00.000Z",
        },
    }


def test_a_stateless_caller_cannot_bind_and_has_no_session(office, make_token):
    caller = StatelessCaller(make_token())
    for bind, args in (
        (use_project, UseProjectArgs(name="alpha")),
        (use_projects, UseProjectsArgs(names=("alpha",))),
    ):
        with pytest.raises(MaadError) as caught:
            bind(caller, args, office, caller.token)
        assert caught.value.code == "SESSION_STATELESS"
        assert "`project`" in caught.value.message
    shown = current_session(caller, CurrentSessionArgs(), office, caller.token)
    assert (shown["sessionId"], shown["mode"], shown["binding_source"]) == (None, None, None)
    assert shown["note"]


def test_a_pin_marks_the_accessible_project_of_a_stateless_caller(office, make_token):
    shown = projects(StatelessCaller(make_token(), "beta"), ProjectsArgs(), office, make_token())
    assert [p["accessible"] for p in shown["projects"]] == [False, True]
