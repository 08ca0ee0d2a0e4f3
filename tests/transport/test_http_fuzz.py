"""Whatever comes in, the answer is an orderly refusal and the server goes on."""

from __future__ import annotations

import json
import random
import socket

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SETTINGS = settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "arguments", "_meta", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
messages = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.sampled_from(["2.0", "1.0", 2]),
        "id": json_values,
        "method": st.sampled_from(
            ["tools/call", "tools/list", "initialize", "ping", "notifications/cancelled", "x", 7]
        ),
        "params": json_values,
        "result": json_values,
    },
)


@SETTINGS
@given(body=messages | st.lists(messages, max_size=3) | json_values)
def test_any_json_is_answered(server, tokens, body):
    session = server.initialize(tokens.admin)
    for known in (None, session):
        response = server.request(body=body, token=tokens.admin, session=known)
        assert response.status in (200, 202, 400), (body, response)


@SETTINGS
@given(
    version=st.sampled_from(["", "2025-11-25", "2026-07-28", "x"]),
    method=st.sampled_from(["", "tools/call", "tools/list"]),
    name=st.text(alphabet="ab=?/ ", max_size=6),
    body=messages,
)
def test_any_routing_header_is_answered(server, tokens, version, method, name, body):
    headers = {"MCP-Protocol-Version": version, "Mcp-Method": method, "Mcp-Name": name}
    response = server.request(body=body, token=tokens.admin, headers=headers)
    assert response.status in (200, 202, 400, 404), (body, response)


def test_any_bytes_are_answered(server, tokens):
    dice = random.Random(7)
    body = json.dumps(server.tool_call("x")).encode()
    good = (
        f"POST /mcp HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept: */*\r\nAuthorization: "
        f"Bearer {tokens.admin}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    for _ in range(300):
        request = bytearray(good)
        for _ in range(dice.randint(1, 4)):
            request[dice.randrange(len(request))] = dice.randrange(256)
        answer = exchange(server, request)
        assert b" 500 " not in answer.split(b"\r\n", 1)[0], bytes(request)
    assert not server.logged("http_request_failed")
    assert server.request("GET", path="/healthz").status == 200


def exchange(server, request: bytearray) -> bytes:
    """Send, then close our side, so that nobody waits for what never comes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=15) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65_536), b""))
