"""Clients that leave, or send no more, while something is still asked (spec 04 §9.7)."""

from __future__ import annotations

import asyncio
import json
import socket
import struct

import pytest

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def session(server, tokens):
    return server.initialize(tokens.admin)


@pytest.fixture
def connection(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=15) as connection:
        yield connection


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr("maadd.transport.protocol.HALF_CLOSED_S", 0.05)


def asked(tokens, session: str, method: str, message: object = None) -> bytes:
    body = b"" if message is None else json.dumps(message).encode()
    accept = "text/event-stream" if method == "GET" else "application/json"
    head = (
        f"{method} /mcp HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tokens.admin}\r\n"
        f"Mcp-Session-Id: {session}\r\nAccept: {accept}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def read_all(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65_536), b""))


def reset(connection: socket.socket) -> None:
    """Leave without the politeness of an end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def until_detached(server, session: str) -> None:
    async def detached() -> None:
        while server.sessions.get(session).notices.reading:
            await asyncio.sleep(0)

    server.run(detached())


def no_errors(server) -> bool:
    return not [event for event in server.events if event["level"] in ("error", "warning")]


def test_who_closes_a_half_gets_the_answer_and_the_end(server, tokens, session, connection):
    connection.sendall(asked(tokens, session, "POST", server.tool_call("wait")))
    assert server.pipeline.waiting.wait(10)
    connection.shutdown(socket.SHUT_WR)
    # Both are told in this order to the loop of the server.
    server.do(server.pipeline.proceed.set)
    received = read_all(connection)
    assert received.startswith(b"HTTP/1.1 200 ")
    assert json.loads(received.partition(b"\r\n\r\n")[2])["id"] == 2
    assert not server.pipeline.cancelled.is_set()


def test_who_closes_a_half_gets_every_answer(server, tokens, session, connection):
    calls = [server.tool_call("x", request_id=number) for number in range(3)]
    sent = b"".join(asked(tokens, session, "POST", call) for call in calls)
    connection.sendall(sent + HEALTH)
    connection.shutdown(socket.SHUT_WR)
    received = read_all(connection)
    assert received.count(b"HTTP/1.1 200 ") == 4
    assert received.endswith(b'{"ok":true}')


def test_nobody_waits_for_ever_with_one_half(server, tokens, session, connection, impatient):
    connection.sendall(asked(tokens, session, "POST", server.tool_call("wait")))
    assert server.pipeline.waiting.wait(10)
    connection.shutdown(socket.SHUT_WR)
    assert read_all(connection) == b""
    assert server.pipeline.cancelled.wait(10)
    assert no_errors(server)


@pytest.mark.parametrize(
    "begun", [b"", HEALTH[:-2], b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"]
)
def test_half_a_request_has_no_answer(server, connection, begun):
    connection.sendall(begun)
    connection.shutdown(socket.SHUT_WR)
    assert b" 200 " not in read_all(connection)


def test_a_stream_ends_with_the_half_that_asked_for_it(server, tokens, session, connection):
    connection.sendall(asked(tokens, session, "GET"))
    assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
    connection.shutdown(socket.SHUT_WR)
    read_all(connection)
    until_detached(server, session)


@pytest.mark.parametrize("leave", [socket.socket.close, reset])
@pytest.mark.parametrize(
    "behind",
    [
        HEALTH,
        HEALTH * 3,
        b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + b" " * 100_000,
    ],
    ids=["one", "several", "a large one"],
)
def test_requests_behind_a_stream_do_not_hide_that_its_client_left(start, tokens, behind, leave):
    server = start(http_headers_timeout_ms=200)  # how often it looks follows from it
    session = server.initialize(tokens.admin)
    with socket.create_connection(("127.0.0.1", server.port), timeout=15) as connection:
        connection.sendall(asked(tokens, session, "GET"))
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        connection.sendall(behind)
        leave(connection)
    until_detached(server, session)
    again = server.request(body=server.tool_call("x"), token=tokens.admin, session=session)
    assert again.status == 200
    assert no_errors(server)


@pytest.mark.parametrize("leave", [socket.socket.close, reset])
@pytest.mark.parametrize("behind", [HEALTH, HEALTH * 3], ids=["one", "several"])
def test_requests_behind_a_call_do_not_hide_that_its_client_left(
    server, tokens, session, connection, behind, leave, impatient
):
    connection.sendall(asked(tokens, session, "POST", server.tool_call("wait")) + behind)
    assert server.pipeline.waiting.wait(10)
    leave(connection)
    assert server.pipeline.cancelled.wait(10)
    assert no_errors(server)


@pytest.mark.parametrize("behind", [b"", HEALTH], ids=["alone", "with one behind"])
def test_an_answer_that_nobody_takes_is_no_failure(
    server, tokens, session, connection, behind, monkeypatch
):
    monkeypatch.setattr("maadd.transport.incoming._WATCH_AFTER_S", 15)  # it answers sooner
    connection.sendall(asked(tokens, session, "POST", server.tool_call("wait")) + behind)
    assert server.pipeline.waiting.wait(10)
    reset(connection)

    async def answer() -> None:
        while server.server._server._server.server_state.connections:
            await asyncio.sleep(0)
        server.pipeline.proceed.set()
        while server.sessions.get(session).in_flight:
            await asyncio.sleep(0)

    server.run(answer())
    assert not server.pipeline.cancelled.is_set()
    assert no_errors(server)


def test_a_body_that_comes_too_slowly_says_nothing_into_a_stream(start, tokens):
    server = start(http_request_timeout_ms=200)
    session = server.initialize(tokens.admin)
    behind = b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"
    received = server.raw(asked(tokens, session, "GET") + behind)
    assert received.count(b"HTTP/1.1 ") == 1
