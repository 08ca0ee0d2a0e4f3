"""Sockets, slow clients and the end of the server (spec 04 §9.7, §15)."""

from __future__ import annotations

import os
import socket
import stat

import pytest

from maadd.protocol.errors import MaadError
from maadd.transport.sockets import listen_tcp, listen_unix, remove_socket


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"POST /mcp HTTP/1.1\r\nHost: x\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /hea",
    ],
)
def test_headers_that_never_end_are_cut_off(start, begun):
    server = start(http_headers_timeout_ms=200)
    answer = server.raw(begun)
    assert answer.rpartition(b"HTTP/1.1 ")[2].startswith(b"408 ")
    assert b"REQUEST_TIMEOUT" in answer


def test_a_body_that_never_ends_is_cut_off(start, tokens):
    server = start(http_request_timeout_ms=200)
    head = f"POST /mcp HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tokens.admin}\r\n"
    answer = server.raw(head.encode() + b"Content-Length: 100\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert not server.logged("http_request_failed")


def test_a_slow_answer_is_no_slow_request(start, tokens):
    server = start(http_request_timeout_ms=200, http_headers_timeout_ms=200)
    session = server.initialize(tokens.admin)

    server.later(0.7, server.pipeline.proceed.set)
    response = server.request(body=server.tool_call("wait"), token=tokens.admin, session=session)
    assert response.status == 200


def test_endless_headers_are_cut_off(server):
    def send_for_ever(connection: socket.socket) -> None:
        connection.sendall(b"GET /mcp HTTP/1.1\r\nHost: x\r\n")
        while True:
            connection.sendall(b"X-Filler: " + b"x" * 4000 + b"\r\n")

    connection = socket.create_connection(("127.0.0.1", server.port), timeout=15)
    with connection, pytest.raises((ConnectionResetError, BrokenPipeError)):
        send_for_ever(connection)


def test_requests_that_are_sent_ahead_are_answered_in_order(server):
    asked = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nHEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    asked += b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = server.raw(asked + b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answers = [head_and_body(one) for one in answer.split(b"HTTP/1.1 ")[1:]]
    assert [head[:3] for head, _ in answers] == [b"200", b"404", b"404", b"200"]
    assert [len(body) > 0 for _, body in answers] == [True, False, True, True]
    for head, body in (answers[0], *answers[2:]):
        assert f"content-length: {len(body)}".encode() in head
    assert [b"connection: close" in head for head, _ in answers] == [False] * 3 + [True]


def head_and_body(answer: bytes) -> tuple[bytes, bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


def test_trailers_say_nothing_about_who_asks(server, tokens):
    asked = b"POST /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    answer = server.raw(
        asked + f"Authorization: Bearer {tokens.admin}\r\n\r\n".encode(), until=b'"}]}'
    )
    assert answer.startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("piece", [b"X-Filler: " + b"x" * 4000 + b"\r\n", b"x" * 4000])
def test_endless_trailers_are_cut_off(server, piece):
    def send_for_ever(connection: socket.socket) -> None:
        connection.sendall(b"POST /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.sendall(b"0\r\nX-Filler: ")
        while True:
            connection.sendall(piece)

    connection = socket.create_connection(("127.0.0.1", server.port), timeout=15)
    with connection, pytest.raises((ConnectionResetError, BrokenPipeError)):
        send_for_ever(connection)


def test_trailers_do_not_count_as_headers(server, tokens):
    body = b"{}"
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tokens.admin}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
        "Connection: close\r\n\r\n"
    )
    chunk = b"%x\r\n%s\r\n0\r\nOrigin: http://evil.example\r\n\r\n" % (len(body), body)
    answer = server.raw(head.encode() + chunk)
    assert not answer.startswith(b"HTTP/1.1 403 ")


def test_an_idle_connection_outlasts_the_minute_of_proxies(server):
    assert server.server._server._server.config.timeout_keep_alive == 75


def test_a_connection_is_used_again(server):
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    answers = server.raw(request * 3 + request.replace(b"x\r\n", b"x\r\nConnection: close\r\n"))
    assert answers.count(b'{"ok":true}') == 4


def test_an_address_in_use_is_a_clear_error(server, start):
    with pytest.raises(MaadError) as caught:
        start(http_port=server.port)
    assert caught.value.code == "INSTANCE_CONFIG_INVALID"
    assert str(server.port) in caught.value.message


def test_a_bind_beyond_loopback_is_logged(server):
    with listen_tcp("0.0.0.0", 0, server.sessions._log):
        pass
    assert server.logged("http_bound_beyond_loopback")
    server.events.clear()
    with listen_tcp("::1", 0, server.sessions._log):
        pass
    assert not server.events


def test_a_unix_socket_serves_with_bearer_and_goes_at_the_end(start, tokens, tmp_path):
    path = str(tmp_path / "maad.sock")
    server = start(transport="unix", unix_socket=path, unix_socket_mode=0o600)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert server.server.port is None

    def ask(headers: str) -> bytes:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.sendall(
                f"GET /mcp HTTP/1.1\r\nHost: x\r\n{headers}Connection: close\r\n\r\n".encode()
            )
            return b"".join(iter(lambda: connection.recv(65_536), b""))

    assert ask("").startswith(b"HTTP/1.1 401 ")
    assert server.logged("auth_failure")[0]["remote_addr"] == "unix"
    assert ask(f"Authorization: Bearer {tokens.admin}\r\n").startswith(b"HTTP/1.1 400 ")
    server.run(server.server.close())
    assert not os.path.exists(path)


def test_a_dead_socket_is_replaced_a_live_one_and_a_file_are_not(server, tmp_path):
    log = server.sessions._log
    path = str(tmp_path / "s.sock")
    live = listen_unix(path, 0o660, log)
    with pytest.raises(MaadError, match="another server"):
        listen_unix(path, 0o660, log)
    live.close()
    again = listen_unix(path, 0o660, log)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
    again.close()
    remove_socket(path)
    remove_socket(path)
    precious = tmp_path / "precious"
    precious.write_text("kept")
    with pytest.raises(MaadError, match="no socket"):
        listen_unix(str(precious), 0o660, log)
    assert precious.read_text() == "kept"


def test_a_socket_path_that_is_too_long_says_so(server):
    with pytest.raises(MaadError, match="107"):
        listen_unix("/tmp/" + "x" * 120, 0o660, server.sessions._log)
