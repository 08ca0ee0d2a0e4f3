"""Sessions over HTTP: streams, ends, caps, principals (spec 04 §9.2, §9.4, §15)."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from maadd.sessions.session import Binding, BindingSource, CloseReason, Mode
from maadd.transport.messages import notification


class Stream:
    """An open GET stream, read as raw bytes."""

    def __init__(self, server, token: str, session: str) -> None:
        self.connection = socket.create_connection(("127.0.0.1", server.port), timeout=15)
        self.connection.sendall(
            f"GET /mcp HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
            f"Mcp-Session-Id: {session}\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
        self.received = b""
        self.read_until(b"\r\n\r\n")

    def read_until(self, end: bytes) -> bytes:
        while end not in self.received:
            chunk = self.connection.recv(65_536)
            assert chunk, self.received
            self.received += chunk
        return self.received

    def read_to_end(self) -> bytes:
        """Everything up to the last, empty chunk."""
        return self.read_until(b"\r\n0\r\n\r\n")


@pytest.fixture
def opened(server, tokens):
    session = server.initialize(tokens.admin)
    stream = Stream(server, tokens.admin, session)
    yield session, stream
    stream.connection.close()


def notify(server, session: str, text: str) -> bool:
    message = notification("notifications/x", {"text": text})
    return server.do(lambda: server.sessions.get(session).notices.offer(message))


def test_a_stream_carries_notifications(server, opened):
    session, stream = opened
    assert stream.received.startswith(b"HTTP/1.1 200 ")
    assert b"content-type: text/event-stream" in stream.received
    assert b"cache-control: no-cache, no-transform" in stream.received
    assert b"x-content-type-options: nosniff" in stream.received
    assert notify(server, session, "hello")
    stream.read_until(b"\n\n\r\n")
    assert b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/x"' in stream.received


def test_a_silent_stream_is_kept_open_with_comments(server, tokens, monkeypatch):
    monkeypatch.setattr("maadd.transport.handshake.KEEP_ALIVE_S", 0.05)
    stream = Stream(server, tokens.admin, server.initialize(tokens.admin))
    stream.read_until(b": keep-alive\n\n\r\n")
    stream.received = b""
    stream.read_until(b": keep-alive\n\n\r\n")
    stream.connection.close()


def test_a_session_has_one_stream_at_a_time(server, tokens, opened):
    session, stream = opened
    second = server.request("GET", token=tokens.admin, session=session)
    assert (second.status, second.rpc_code) == (409, -32000)
    stream.connection.close()
    _until_detached(server, session)
    Stream(server, tokens.admin, session).connection.close()


def _until_detached(server, session: str) -> None:
    async def detached() -> None:
        while server.sessions.get(session).notices.reading:
            await asyncio.sleep(0)

    server.run(detached())


def test_an_end_of_the_handshake_without_its_beginning_opens_no_session(server, tokens):
    stray = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert server.request(body=stray, token=tokens.admin).status == 400
    assert len(server.sessions) == 0
    session = server.initialize(tokens.admin)
    again = server.request(body=[stray, stray], token=tokens.admin, session=session)
    assert again.status == 202
    assert (
        server.request(body=server.tool_call("x"), token=tokens.admin, session=session).status
        == 200
    )


@pytest.mark.parametrize("accept", ["application/json", ""])
def test_a_stream_must_be_wanted(server, tokens, accept):
    session = server.initialize(tokens.admin)
    response = server.request(
        "GET", token=tokens.admin, session=session, headers={"Accept": accept}
    )
    assert (response.status, response.rpc_code) == (406, -32000)
    assert not server.do(lambda: server.sessions.get(session).notices.reading)


def test_delete_ends_the_session_and_its_stream(server, tokens, opened):
    session, stream = opened
    response = server.request("DELETE", token=tokens.admin, session=session)
    assert (response.status, response.body) == (200, b"")
    stream.read_to_end()
    assert server.closed == [(session, CloseReason.TRANSPORT)]
    gone = server.request(body=server.tool_call("x"), token=tokens.admin, session=session)
    assert (gone.status, gone.code) == (404, "SESSION_NOT_FOUND")


def test_a_removed_project_ends_the_stream_but_not_yet_the_session(server, tokens, opened):
    session, stream = opened

    def remove_the_only_project() -> None:
        bound = server.sessions.get(session)
        bound.binding = Binding(Mode.SINGLE, ("gone",), None, BindingSource.CLIENT_TOOL)
        server.sessions.remove_projects(["gone"])

    server.do(remove_the_only_project)
    stream.read_to_end()
    assert server.closed == []
    again = server.request("GET", token=tokens.admin, session=session)
    assert (again.status, again.code) == (404, "SESSION_NOT_FOUND")
    assert server.do(lambda: server.sessions.get(session).cancelled)


def test_a_revoked_token_ends_its_streams(server, doomed_tokens):
    tokens = doomed_tokens
    session = server.initialize(tokens.admin)
    stream = Stream(server, tokens.admin, session)
    record = tokens.registry.authenticate([f"Bearer {tokens.admin}"]).token
    tokens.registry.revoke(record.id)
    server.do(lambda: server.sessions.close_dead_tokens(tokens.registry.death_of))
    stream.read_to_end()
    stream.connection.close()
    assert server.closed == [(session, CloseReason.AUTH)]
    assert server.request(body=server.tool_call("x"), token=tokens.admin).status == 401


def test_a_rotated_token_never_resumes_the_old_session(server, doomed_tokens):
    tokens = doomed_tokens
    session = server.initialize(tokens.admin)
    record = tokens.registry.authenticate([f"Bearer {tokens.admin}"]).token
    fresh = tokens.registry.rotate(record.id).plaintext
    call = server.tool_call("x")
    assert server.request(body=call, token=tokens.admin, session=session).status == 401
    assert server.request(body=call, token=fresh, session=session).status == 404
    assert server.initialize(fresh) != session


def test_an_idle_session_is_swept_and_then_unknown(start, tokens):
    server = start(session_idle_ms=1)
    session = server.initialize(tokens.admin)
    while not server.closed:
        server.do(lambda: server.sessions.sweep(lambda token: None))
    assert server.closed == [(session, CloseReason.IDLE)]
    response = server.request(body=server.tool_call("x"), token=tokens.admin, session=session)
    assert (response.status, response.code) == (404, "SESSION_NOT_FOUND")
    assert server.logged("idle_sweep") == [
        {"level": "info", "event": "idle_sweep", "swept": 1, "remaining": 0}
    ]


def test_the_cap_evicts_the_longest_inactive_session(start, tokens):
    server = start(session_max=3, session_max_per_token=3)
    sessions = [server.initialize(tokens.admin) for _ in range(3)]
    call = server.tool_call("x")
    server.request(body=call, token=tokens.admin, session=sessions[0])
    server.initialize(tokens.admin)
    statuses = [
        server.request(body=call, token=tokens.admin, session=session).status
        for session in sessions
    ]
    assert statuses == [200, 404, 200]
    assert server.closed == [(sessions[1], CloseReason.CAPACITY)]


def test_a_session_with_an_open_stream_goes_when_no_other_is_left(start, tokens):
    server = start(session_max=2, session_max_per_token=2)
    streaming = server.initialize(tokens.admin)
    stream = Stream(server, tokens.admin, streaming)
    quiet = server.initialize(tokens.admin)
    server.initialize(tokens.admin)
    assert server.closed == [(quiet, CloseReason.CAPACITY)]

    def occupy():
        (newest,) = (s for s in server.sessions if s.id != streaming)
        newest.in_flight = 1

    server.do(occupy)
    server.initialize(tokens.admin)
    assert server.closed[1:] == [(streaming, CloseReason.CAPACITY)]
    stream.read_to_end()
    stream.connection.close()


def test_a_session_that_ends_while_a_body_comes_in_is_not_served(server, tokens):
    session = server.initialize(tokens.admin)
    body = json.dumps(server.tool_call("x")).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept: */*\r\n"
        f"Authorization: Bearer {tokens.admin}\r\nContent-Type: application/json\r\n"
        f"Mcp-Session-Id: {session}\r\nContent-Length: {len(body)}\r\n\r\n"
    )

    async def taken_up() -> None:
        while not server.sessions.get(session).in_flight:
            await asyncio.sleep(0)

    with socket.create_connection(("127.0.0.1", server.port), timeout=15) as connection:
        connection.sendall(head.encode() + body[:10])
        server.run(taken_up())
        server.request("DELETE", token=tokens.admin, session=session)
        connection.sendall(body[10:])
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 404 ")


class HalfSent:
    """A request of which the server has all but the end of its body."""

    def __init__(self, server, token: str, *, chunked: bool = False) -> None:
        self.connection = socket.create_connection(("127.0.0.1", server.port), timeout=15)
        self.body = json.dumps(server.hello).encode()
        length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(self.body)}"
        begun = b"3\r\n" + self.body[:3] + b"\r\n" if chunked else self.body[:3]
        before = server.reading()
        self.connection.sendall(
            f"POST /mcp HTTP/1.1\r\nHost: x\r\nAccept: */*\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\n{length}\r\n\r\n".encode()
            + begun
        )
        while server.reading() == before:
            pass

    def read_all(self) -> bytes:
        with self.connection:
            return b"".join(iter(lambda: self.connection.recv(65_536), b""))


@pytest.mark.parametrize("chunked", [False, True])
def test_the_end_of_a_server_waits_for_no_body(start, tokens, chunked):
    server = start()
    half = HalfSent(server, tokens.admin, chunked=chunked)
    later = socket.create_connection(("127.0.0.1", server.port), timeout=15)
    server.request("GET", path="/healthz")
    server.run(server.server.stop_accepting())
    head, _, body = half.read_all().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    for header in (
        b"content-type: application/json",
        b"connection: close",
        b"no-store",
        b"nosniff",
    ):
        assert header in head
    assert json.loads(body)["errors"][0]["code"] == "SHUTTING_DOWN"
    # A whole request on a connection that is there already is still answered.
    with later:
        later.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert later.recv(65_536).startswith(b"HTTP/1.1 200 ")
    assert server.meter.refused["SHUTTING_DOWN", ""] == 1


def test_what_runs_when_the_server_closes_is_told_so(start, tokens):
    server = start()
    body = json.dumps(server.tool_call("wait")).encode()
    session = server.initialize(tokens.admin)
    with socket.create_connection(("127.0.0.1", server.port), timeout=15) as connection:
        connection.sendall(
            f"POST /mcp HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\n"
            f"Authorization: Bearer {tokens.admin}\r\nContent-Type: application/json\r\n"
            f"Mcp-Session-Id: {session}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        assert server.pipeline.waiting.wait(10)
        server.run(server.server.close(at_once=True))
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b'"SHUTTING_DOWN"' in answer


def test_a_request_that_comes_as_the_sessions_end_is_told_that_the_server_does(start, tokens):
    server = start()
    session = server.initialize(tokens.admin)
    half = HalfSent(server, tokens.admin)

    def end():
        server.server._app.end()
        server.sessions.close_all(CloseReason.SHUTDOWN)

    server.do(end)
    half.connection.sendall(half.body[3:])
    answers = [half.read_all()]
    for token in (tokens.admin, "none"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=15) as connection:
            connection.sendall(
                f"DELETE /mcp HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
                f"Mcp-Session-Id: {session}\r\n\r\n".encode()
            )
            answers.append(connection.recv(65_536))
    for answer in answers[:2]:
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"connection: close" in answer
        assert b'"SHUTTING_DOWN"' in answer
    assert answers[2].startswith(b"HTTP/1.1 401 ")


def test_a_token_that_dies_while_a_body_comes_in_is_turned_away_and_logged(start, doomed_tokens):
    server = start()
    doomed = doomed_tokens.registry.authenticate([f"Bearer {doomed_tokens.other}"]).token
    half = HalfSent(server, doomed_tokens.other)
    doomed_tokens.registry.revoke(doomed.id)
    half.connection.sendall(half.body[3:])
    assert half.connection.recv(65_536).startswith(b"HTTP/1.1 401 ")
    half.connection.close()
    (line,) = server.logged("auth_failure")
    assert (line["reason"], line["token_id"]) == ("revoked", doomed.id)
    assert server.meter.refused["UNAUTHORIZED", "revoked"] == 1


def test_no_room_is_said_when_every_session_is_busy(start, tokens):
    server = start(session_max=1, session_max_per_token=1)
    session = server.initialize(tokens.admin)

    def occupy():
        server.sessions.get(session).in_flight = 1

    server.do(occupy)
    response = server.request(body=server.hello, token=tokens.admin)
    assert (response.status, response.code) == (503, "OVERLOADED")
    assert response.json["errors"][0]["details"]["reason"] == "sessions"


def test_a_session_keeps_where_it_came_from(server, tokens):
    session = server.initialize(tokens.admin, headers={"User-Agent": "agent/1"})
    found = server.do(lambda: server.sessions.get(session))
    assert (found.remote_addr, found.user_agent, found.transport) == (
        "127.0.0.1",
        "agent/1",
        "http",
    )


def test_an_open_stream_does_not_hold_up_the_end(start, tokens):
    server = start()
    session = server.initialize(tokens.admin)
    stream = Stream(server, tokens.admin, session)
    server.run(server.server.stop_accepting())
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", server.port), timeout=5)
    assert notify(server, session, "still there")
    server.run(server.server.close())
    stream.read_to_end()
    assert b"still there" in stream.received
    assert server.closed == [(session, CloseReason.SHUTDOWN)]
    stream.connection.close()
