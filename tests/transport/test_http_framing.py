"""Where one request ends and the next begins (RFC 9112 §6, RFC 9110 §7.8)."""

from __future__ import annotations

import json
import socket

import pytest

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
H2C = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
OFFERS = {
    "h2c": H2C,
    "websocket": "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n",
    "two": "Upgrade: a\r\nConnection: upgrade\r\nUPGRADE: b/1, c\r\n",
    "nothing": "Connection: Upgrade\r\nUpgrade:\r\n",
}


@pytest.fixture
def session(server, tokens):
    return server.initialize(tokens.admin)


def post(tokens, session: str, body: bytes, *, offer: str = "", chunked: bool = False) -> bytes:
    """A POST in the name of a session, with its body in one piece or in chunks."""
    coding = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}"
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tokens.admin}\r\n{offer}"
        f"Mcp-Session-Id: {session}\r\nAccept: application/json\r\n"
        f"Content-Type: application/json\r\n{coding}\r\n\r\n"
    )
    if chunked:
        body = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\nUpgrade: h2c\r\n\r\n"
    return head.encode() + body


def call(server, number: int) -> bytes:
    return json.dumps(server.tool_call("x", {"n": number}, number)).encode()


def answers_of(received: bytes) -> list[tuple[bytes, bytes]]:
    """Status and body of each answer."""
    found = []
    for answer in received.split(b"HTTP/1.1 ")[1:]:
        head, _, body = answer.partition(b"\r\n\r\n")
        found.append((head[:3], body))
    return found


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS.keys())
def test_an_offer_of_another_protocol_is_ignored(server, tokens, session, offer, chunked):
    sent = [
        post(tokens, session, call(server, number), offer=offer, chunked=chunked)
        for number in (11, 12)
    ]
    answers = answers_of(server.raw(sent[0] + HEALTH + sent[1] + LAST))
    assert [status for status, _ in answers] == [b"200"] * 4
    assert [json.loads(body).get("id") for _, body in answers] == [11, None, 12, None]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_request_with_an_offer_may_come_in_pieces(server, tokens, session, chunked):
    asked = post(tokens, session, call(server, 5), offer=H2C, chunked=chunked) + LAST
    with socket.create_connection(("127.0.0.1", server.port), timeout=15) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(asked)):
            connection.sendall(asked[at : at + 1])
        received = b"".join(iter(lambda: connection.recv(65_536), b""))
    answers = answers_of(received)
    assert [status for status, _ in answers] == [b"200", b"200"]
    assert json.loads(answers[0][1])["id"] == 5


@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS.keys())
def test_a_body_behind_an_offer_is_no_request(server, offer):
    """The request is refused unread, and what it carries is still its body."""
    asked = f"POST /nothing HTTP/1.1\r\nHost: x\r\n{offer}Content-Length: {len(HEALTH)}\r\n\r\n"
    answers = answers_of(server.raw(asked.encode() + HEALTH + LAST))
    assert [status for status, _ in answers] == [b"404", b"200"]


def test_many_offers_in_a_row_are_each_answered(server):
    asked = f"GET /healthz HTTP/1.1\r\nHost: x\r\n{H2C}\r\n".encode()
    assert server.raw(asked * 200 + LAST).count(b'{"ok":true}') == 201


def test_the_client_of_an_old_proxy_offers_too(server):
    asked = f"GET /healthz HTTP/1.0\r\n{H2C}\r\n"
    answers = answers_of(server.raw(asked.encode() + HEALTH))
    assert [status for status, _ in answers] == [b"200"]


def test_a_faulty_head_with_an_offer_is_refused(server):
    for lines in ("", "Host: x\r\nHost: y\r\n", "Host: x\r\nTransfer-Encoding: gzip, chunked\r\n"):
        received = server.raw(f"POST /mcp HTTP/1.1\r\n{lines}{H2C}\r\n".encode() + HEALTH)
        assert [status in (b"400", b"501") for status, _ in answers_of(received)] == [True]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /healthz HTTP/2.0\r\nHost: x\r\n\r\n", b"505"),
        ("GET /healthz HTTP/0.9\r\nHost: x\r\n\r\n", b"505"),
        ("GET /healthz HTTP/1.2\r\nHost: x\r\n\r\n", b"400"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
        ("CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", b"501"),
        ("CONNECT /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"501"),
    ],
)
def test_what_is_no_request_of_http_1_is_refused(server, head, status):
    received = server.raw(head.encode() + HEALTH)
    assert [found for found, _ in answers_of(received)] == [status]
    assert b"connection: close" in received
    assert b"x-content-type-options: nosniff" in received


@pytest.mark.parametrize(
    ("version", "coding", "status"),
    [
        ("1.1", "gzip, chunked", b"501"),
        ("1.1", "chunked, chunked", b"400"),
        ("1.1", "identity", b"501"),
        ("1.1", "", b"400"),
        ("1.0", "chunked", b"400"),
    ],
)
def test_a_coding_that_is_not_plain_chunks_is_refused(server, version, coding, status):
    head = f"POST /mcp HTTP/{version}\r\nHost: x\r\nTransfer-Encoding: {coding}\r\n\r\n"
    received = server.raw(head.encode() + b"0\r\n\r\n" + HEALTH)
    (answer,) = answers_of(received)
    assert answer[0] == status
    assert json.loads(answer[1])["errors"][0]["code"] == "BAD_REQUEST"


def test_chunks_are_announced_in_any_case(server):
    head = b"POST /nothing HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \tChunked \r\n\r\n"
    answers = answers_of(server.raw(head + b"2\r\n{}\r\n0\r\n\r\n" + LAST))
    assert [status for status, _ in answers] == [b"404", b"200"]
