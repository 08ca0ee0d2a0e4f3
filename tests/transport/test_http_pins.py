"""`X-Maad-Pin-Project`, set by a trusted gateway (spec 04 §9.6)."""

from __future__ import annotations

import json

import pytest

from maadd.protocol.roles import Role
from maadd.sessions.session import BindingSource

PIN = "X-Maad-Pin-Project"


def test_a_pin_binds_at_initialize(server, tokens):
    session = server.initialize(tokens.admin, headers={PIN: " alpha "})
    binding = server.do(lambda: server.sessions.get(session).binding)
    assert binding.projects == ("alpha",)
    assert binding.source is BindingSource.GATEWAY_PIN


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("Alpha", "PIN_PROJECT_INVALID"),
        ("alpha,beta", "PIN_PROJECT_INVALID"),
        ("1alpha", "PIN_PROJECT_INVALID"),
        (" ", "PIN_PROJECT_INVALID"),
        ("gamma", "PIN_PROJECT_NOT_FOUND"),
    ],
)
def test_a_bad_pin_opens_nothing(server, tokens, value, code):
    response = server.request(body=server.hello, token=tokens.admin, headers={PIN: value})
    assert (response.status, response.code) == (400, code)
    assert len(server.sessions) == 0
    (logged,) = server.logged("pin_rejected")
    assert (logged["code"], logged["project"]) == (code, value.strip() or None)


def test_a_repeated_pin_is_refused(server, tokens):
    body = json.dumps(server.hello).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        f"Authorization: Bearer {tokens.admin}\r\nAccept: */*\r\nContent-Type: application/json\r\n"
        f"{PIN}: alpha\r\n{PIN}: alpha\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    answer = server.raw(head.encode() + body)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"PIN_PROJECT_INVALID" in answer


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_a_pin_and_a_session_id_exclude_each_other(server, tokens, method):
    session = server.initialize(tokens.admin)
    for known in (session, "unknown"):
        response = server.request(
            method, server.tool_call("x"), token=tokens.admin, session=known, headers={PIN: "alpha"}
        )
        assert (response.status, response.code) == (400, "PIN_ON_EXISTING_SESSION")
    assert server.request(body=server.tool_call("x"), token=tokens.admin, session=session).status


def test_a_token_that_forbids_the_pin_gets_no_session_at_all(server, tokens):
    response = server.request(body=server.hello, token=tokens.alpha_only, headers={PIN: "beta"})
    assert (response.status, response.code) == (403, "TOKEN_PROJECT_FORBIDDEN")
    assert len(server.sessions) == 0
    assert server.logged("pin_rejected")[0]["project"] == "beta"


def test_pins_follow_the_live_projects(server, tokens):
    projects = dict(server.state.instance.projects)
    removed = projects.pop("alpha")
    projects["gamma"] = removed
    server.state.instance = type(server.state.instance)("test", "file", None, "/srv", projects)
    assert (
        server.request(body=server.hello, token=tokens.admin, headers={PIN: "alpha"}).code
        == "PIN_PROJECT_NOT_FOUND"
    )
    server.initialize(tokens.admin, headers={PIN: "gamma"})


def test_a_required_pin(start, tokens):
    server = start(pin_required=True)
    response = server.request(body=server.hello, token=tokens.admin)
    assert (response.status, response.code) == (400, "PIN_PROJECT_INVALID")
    session = server.initialize(tokens.admin, headers={PIN: "alpha"})
    call = server.tool_call("x")
    assert server.request(body=call, token=tokens.admin, session=session).status == 200


def test_a_pinned_role(server, tokens):
    session = server.initialize(tokens.admin, headers={PIN: "alpha", "X-Maad-Pin-Role": "reader"})
    assert server.do(lambda: server.sessions.get(session).binding.requested) is Role.READER
    for headers in ({PIN: "alpha", "X-Maad-Pin-Role": "king"}, {"X-Maad-Pin-Role": "reader"}):
        response = server.request(body=server.hello, token=tokens.admin, headers=headers)
        assert (response.status, response.code) == (400, "PIN_PROJECT_INVALID")


def test_a_single_project_instance_ignores_pins_and_says_so_once(start, tokens, make_projects):
    server = start(make_projects("default", source="synthetic"))
    for _ in range(2):
        session = server.initialize(tokens.admin, headers={PIN: "no such project"})
        assert server.do(lambda known=session: server.sessions.get(known).binding) is None
    assert len(server.logged("pin_ignored_legacy")) == 1
