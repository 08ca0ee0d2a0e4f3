"""The ordered checks in front of MCP (spec 04 §9.1, §9.3, §9.5)."""

from __future__ import annotations

import json
import threading

import pytest

from maadd.config.rules import TrustProxy

BAD = "maad_pat_" + "0" * 32


@pytest.fixture
def own_server(start):
    """A server whose throttle has seen nothing."""
    return start()


def assert_hardened(response) -> None:
    headers = {name.lower(): value for name, value in response.headers.items()}
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["content-type"] == "application/json"
    assert "server" not in headers


def test_health_says_ok_and_nothing_else(server):
    response = server.request("GET", path="/healthz", headers={"Origin": "http://evil"})
    assert (response.status, response.body) == (200, b'{"ok":true}')
    assert_hardened(response)


def test_health_of_a_draining_server(server):
    server.state.draining = True
    response = server.request("GET", path="/healthz")
    assert (response.status, response.code) == (503, "SHUTTING_DOWN")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/healthz"),
        ("HEAD", "/healthz"),
        ("GET", "/"),
        ("GET", "/metrics"),
        ("POST", "/mcp/"),
        ("GET", "/MCP"),
        ("POST", "/%6dcp%2f"),
    ],
)
def test_there_is_nothing_else(server, method, path):
    response = server.request(method, path=path)
    assert response.status == 404
    if method != "HEAD":
        assert response.code == "NOT_FOUND"
        assert_hardened(response)


@pytest.mark.parametrize("path", ["", "mcp", "http://[", "/%zz mcp", "/m\xffcp"])
def test_an_unreadable_target_is_a_bad_request(server, path):
    response = server.raw(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode("latin-1"))
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["errors"][0]["code"] == "BAD_REQUEST"
    assert b"x-content-type-options: nosniff" in head


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil",
        "null",
        "http://localhost",
        "https://app.example.com:8443",
        "http://app.example.com",
        "https://app.example.com.evil",
        "https://user@app.example.com",
        "file://x",
        "https://app.example.com, https://app.example.com",
        "https://",
        "not an origin",
    ],
)
def test_a_foreign_origin_is_refused_whoever_asks(start, tokens, origin):
    server = start(http_allowed_origins=frozenset({"https://app.example.com"}))
    for token in (None, BAD, tokens.admin):
        response = server.request(body=server.hello, token=token, headers={"Origin": origin})
        assert (response.status, response.code) == (403, "ORIGIN_FORBIDDEN")
    assert_hardened(response)
    assert server.logged("origin_rejected")[0]["origin"] == origin
    assert len(server.sessions) == 0


@pytest.mark.parametrize(
    "origin",
    [
        "https://app.example.com",
        "https://APP.example.com",
        "https://app.example.com:443",
        "http://127.0.0.1:3000",
    ],
)
def test_an_allowed_origin_passes_in_any_spelling(start, tokens, origin):
    server = start(
        http_allowed_origins=frozenset({"https://app.example.com", "http://127.0.0.1:3000"})
    )
    response = server.request(body=server.hello, token=tokens.admin, headers={"Origin": origin})
    assert response.status == 200
    assert "access-control-allow-origin" not in {name.lower() for name in response.headers}


def test_a_repeated_or_empty_origin_is_refused(start):
    server = start(http_allowed_origins=frozenset({"https://a.example"}))
    for lines in (b"Origin: https://a.example\r\n" * 2, b"Origin:\r\n"):
        request = b"POST /mcp HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + lines + b"\r\n"
        assert server.raw(request).startswith(b"HTTP/1.1 403 ")


def test_an_options_request_is_judged_like_any(server, tokens):
    response = server.request("OPTIONS", headers={"Origin": "http://evil"})
    assert response.status == 403
    assert server.request("OPTIONS").status == 401
    assert server.request("OPTIONS", token=tokens.admin).status == 400


def test_a_declared_oversize_comes_before_the_bearer(start):
    server = start(http_max_body=1000)
    response = server.request(body=b" " * 1001)
    assert (response.status, response.code) == (413, "PAYLOAD_TOO_LARGE")
    assert_hardened(response)
    assert server.request(body=b" " * 1000).status == 401


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "Basic abc", "Bearer nope", f"Bearer {BAD}", f"Bearer {BAD}0"],
)
def test_every_bad_bearer_gets_the_same_answer(own_server, authorization):
    response = own_server.request(body=own_server.hello, headers={"Authorization": authorization})
    assert (response.status, response.code) == (401, "UNAUTHORIZED")
    assert response.headers["www-authenticate"] == "Bearer"
    assert_hardened(response)
    assert response.body == own_server.request(body=own_server.hello).body


def test_two_authorization_headers_are_none(server, tokens):
    line = f"Authorization: Bearer {tokens.admin}\r\n".encode()
    request = b"POST /mcp HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + line * 2 + b"\r\n"
    assert server.raw(request).startswith(b"HTTP/1.1 401 ")


def test_the_scheme_is_compared_in_any_case(server, tokens):
    headers = {"Authorization": f"bEARER   {tokens.admin} "}
    assert server.request(body=server.hello, headers=headers).status == 200


def test_the_reason_is_only_in_the_log(own_server, doomed_tokens):
    dead = doomed_tokens.registry.authenticate([f"Bearer {doomed_tokens.other}"]).token.id
    doomed_tokens.registry.revoke(dead)
    own_server.request(body=own_server.hello, token=doomed_tokens.other)
    own_server.request(body=own_server.hello)
    logged = own_server.logged("auth_failure")
    assert [line["reason"] for line in logged] == ["revoked", "missing"]
    assert logged[0]["token_id"] == dead
    assert logged[0]["remote_addr"] == "127.0.0.1"
    assert doomed_tokens.other not in repr(own_server.events)


def test_the_log_has_the_address_that_a_trusted_proxy_tells(start):
    forwarded = {"X-Forwarded-For": "6.6.6.6, 203.0.113.7"}
    for trust, address in ((TrustProxy(), "127.0.0.1"), (TrustProxy(hops=1), "203.0.113.7")):
        server = start(trust_proxy=trust)
        assert server.request(body=server.hello, headers=forwarded).status == 401
        assert server.logged("auth_failure")[0]["remote_addr"] == address


def test_no_bearer_comes_before_the_session(server):
    assert server.request(body=server.tool_call("x"), session="unknown").status == 401


def test_repeated_failures_are_throttled_but_good_tokens_pass(own_server, tokens):
    statuses = [own_server.request(body=own_server.hello, token=BAD).status for _ in range(60)]
    assert statuses[:10] == [401] * 10
    assert 429 in statuses
    throttled = next(
        response
        for response in (own_server.request(token=BAD) for _ in range(60))
        if response.status == 429
    )
    assert throttled.code == "RATE_LIMITED"
    assert own_server.request(body=own_server.hello, token=tokens.admin).status == 200
    assert len(own_server.logged("auth_failure")) < 120


def test_an_unknown_session_and_a_foreign_one_look_the_same(server, tokens):
    session = server.initialize(tokens.admin)
    for method in ("POST", "GET", "DELETE"):
        foreign = server.request(method, server.tool_call("x"), token=tokens.other, session=session)
        unknown = server.request(method, server.tool_call("x"), token=tokens.other, session="nope")
        assert foreign.status == unknown.status == 404
        assert foreign.body == unknown.body
        assert foreign.code == "SESSION_NOT_FOUND"
        assert {k: v for k, v in foreign.headers.items() if k != "date"} == {
            k: v for k, v in unknown.headers.items() if k != "date"
        }
    assert (
        server.request(body=server.tool_call("x"), token=tokens.admin, session=session).status
        == 200
    )
    mismatch = server.logged("session_principal_mismatch")[0]
    assert mismatch["session_id"] == session
    assert mismatch["bound_token_id"] != mismatch["presented_token_id"]


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH"])
def test_only_a_post_goes_without_a_session(server, tokens, method):
    response = server.request(method, token=tokens.admin)
    assert (response.status, response.code) == (400, "BAD_REQUEST")


def chunked(server, token: str, size: int, session: str = "") -> bytes:
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        f"{session}Transfer-Encoding: chunked\r\n\r\n"
    )
    body = b"%x\r\n" % size + b" " * size + b"\r\n"
    return server.raw(head.encode() + body)


def test_a_streamed_oversize_is_noticed_as_it_arrives(start, tokens):
    server = start(http_max_body=1000)
    answer = chunked(server, tokens.admin, 1001)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer
    assert b"PAYLOAD_TOO_LARGE" in answer
    unknown = chunked(server, tokens.admin, 1001, "Mcp-Session-Id: nope\r\nConnection: close\r\n")
    assert unknown.startswith(b"HTTP/1.1 404 ")


def test_bodies_of_all_requests_together_are_bounded(start, tokens):
    server = start(http_max_body=1000, http_max_inflight_bytes=500)
    response = server.request(body=b" " * 501, token=tokens.admin)
    assert (response.status, response.code) == (503, "OVERLOADED")
    assert response.json["errors"][0]["details"]["reason"] == "http_bytes"
    assert server.request(body=server.hello, token=tokens.admin).status == 200


def test_held_bytes_are_given_back(start, tokens):
    server = start(http_max_body=1000, http_max_inflight_bytes=600)
    session = server.initialize(tokens.admin)
    body = server.tool_call("wait", {"text": "x" * 300})
    slow = threading.Thread(
        target=server.request, kwargs={"body": body, "token": tokens.admin, "session": session}
    )
    slow.start()
    assert server.pipeline.waiting.wait(10)
    refused = server.request(body=server.tool_call("x", {"text": "y" * 300}), token=tokens.admin)
    assert refused.status == 503
    server.do(server.pipeline.proceed.set)
    slow.join()
    response = server.request(
        body=server.tool_call("x", {"text": "y" * 300}), token=tokens.admin, session=session
    )
    assert response.status == 200


def test_an_unexpected_failure_tells_nothing(own_server, tokens):
    def fail(*_args):
        raise RuntimeError("secret detail")

    own_server.sessions.get = fail
    response = own_server.request(body=own_server.tool_call("x"), token=tokens.admin, session="s")
    assert (response.status, response.code) == (500, "INTERNAL")
    assert b"secret" not in response.body
    assert own_server.logged("http_request_failed")


@pytest.mark.parametrize(
    "lines",
    [
        "",
        "Host: x\r\nHost: x\r\n",
        "Host: x\r\nhost: y\r\n",
        "Host: x y\r\n",
        "Host: http://x/\r\n",
        "Host: x:port\r\n",
        "Host: u@x\r\n",
        "Host: [::1\r\n",
    ],
)
def test_a_request_that_names_no_host_or_two_is_a_bad_one(server, tokens, lines):
    for asked in ("GET /healthz", "POST /mcp", "GET /nothing"):
        request = f"{asked} HTTP/1.1\r\n{lines}Authorization: Bearer {tokens.admin}\r\n\r\n"
        head, _, body = server.raw(request.encode()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert b"connection: close" in head
        assert json.loads(body)["errors"][0] == {
            "code": "BAD_REQUEST",
            "message": "the request must have one Host header, with a host",
        }


@pytest.mark.parametrize(
    ("version", "lines"),
    [
        ("1.1", "Host: maad.example.com\r\n"),
        ("1.1", "Host: 127.0.0.1:7733\r\n"),
        ("1.1", "Host: [2001:db8::1]:80\r\n"),
        ("1.1", "Host: a_service.internal.:80\r\n"),
        ("1.1", "Host:\r\n"),
        ("1.0", ""),
    ],
)
def test_the_host_that_is_named_may_be_any(server, version, lines):
    """A proxy keeps the name that it was asked by; the bearer is what counts."""
    request = f"GET /healthz HTTP/{version}\r\n{lines}Connection: close\r\n\r\n"
    assert server.raw(request.encode()).endswith(b'{"ok":true}')


def test_a_page_whose_name_was_pointed_here_gets_no_further_than_any_other(server, tokens):
    """The origin that a browser sends is refused, and where it sends none there is no bearer."""
    sent = {"Host": "evil.example", "Origin": "http://evil.example"}
    assert server.request(body=server.hello, token=tokens.admin, headers=sent).status == 403
    assert server.request("GET", headers={"Host": "evil.example"}).status == 401
