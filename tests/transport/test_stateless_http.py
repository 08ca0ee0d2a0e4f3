"""The stateless revision over HTTP: each POST stands for itself (spec 04 §9.8)."""

from __future__ import annotations

import json
import socket

import pytest

VERSION = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
ENVELOPE = {
    f"{PREFIX}protocolVersion": VERSION,
    f"{PREFIX}clientCapabilities": {},
    f"{PREFIX}clientInfo": {"name": "test", "version": "1"},
}


def request(method: str, *, meta: object = ENVELOPE, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 9, "method": method, "params": {**params, "_meta": meta}}


def tool(name: str, **meta: object) -> dict[str, object]:
    return request("tools/call", meta=ENVELOPE | meta, name=name, arguments={"docId": "x"})


def routing(method: str, name: str = "", **more: str) -> dict[str, str]:
    return {"MCP-Protocol-Version": VERSION, "Mcp-Method": method, "Mcp-Name": name} | more


def data_of(message: dict) -> dict:
    return json.loads(message["result"]["content"][0]["text"])["data"]


def test_a_call_needs_no_session(server, tokens):
    response = server.request(
        body=tool("maad_get"), token=tokens.admin, headers=routing("tools/call", "maad_get")
    )
    assert response.status == 200
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "mcp-session-id" not in response.headers
    assert response.json["id"] == 9
    assert response.json["result"]["resultType"] == "complete"
    assert "isError" not in response.json["result"]
    assert response.json["result"]["_meta"][f"{PREFIX}serverInfo"]["name"] == "maad"
    who = tokens.registry.authenticate([f"Bearer {tokens.admin}"]).token.id
    assert data_of(response.json) == {
        "tool": "maad_get",
        "arguments": {"docId": "x"},
        "token": who,
        "pinned": None,
    }
    assert len(server.sessions) == 0


def test_a_failed_call_is_an_error_result(server, tokens):
    response = server.request(
        body=tool("refused"), token=tokens.admin, headers=routing("tools/call", "refused")
    )
    assert (response.status, response.json["result"]["isError"]) == (200, True)


def test_a_pin_goes_with_every_request(server, tokens):
    headers = routing("tools/call", "x", **{"X-Maad-Pin-Project": "beta"})
    response = server.request(body=tool("x"), token=tokens.admin, headers=headers)
    assert data_of(response.json)["pinned"] == "beta"
    headers["X-Maad-Pin-Project"] = "nope"
    refused = server.request(body=tool("x"), token=tokens.admin, headers=headers)
    assert (refused.status, refused.code) == (400, "PIN_PROJECT_NOT_FOUND")


def test_a_required_pin_is_required_here_too(start, tokens):
    response = start(pin_required=True).request(
        body=tool("x"), token=tokens.admin, headers=routing("tools/call", "x")
    )
    assert (response.status, response.code) == (400, "PIN_PROJECT_INVALID")


@pytest.mark.parametrize("version", [f"{VERSION}  ", f"\t{VERSION}"])
def test_blanks_around_routing_headers_do_not_count(server, tokens, version):
    for body, method, name in (
        (tool("x"), "tools/call", "x"),
        (request("tools/list"), "tools/list", ""),
    ):
        headers = {
            "MCP-Protocol-Version": version,
            "Mcp-Method": f" {method}\t",
            "Mcp-Name": f"{name} " if name else "",
        }
        response = server.request(body=body, token=tokens.admin, headers=headers)
        assert response.status == 200, response


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (tool("x"), routing("tools/call", "y"), 400, -32020),
        (tool("x"), routing("tools/list", "x"), 400, -32020),
        (tool("x"), routing("tools/call"), 400, -32020),
        (tool("x"), {}, 400, -32020),
        (tool("x"), {"MCP-Protocol-Version": "2025-11-25"}, 400, -32020),
        (request("tools/list"), {}, 400, -32020),
        (request("tools/list", meta={}), routing("tools/list"), 400, -32602),
        (request("tools/call", meta=None), routing("tools/call"), 400, -32602),
        (request("no/such"), routing("no/such"), 404, -32601),
        (request("initialize"), routing("initialize"), 404, -32601),
        ({"jsonrpc": "2.0", "id": 1, "result": {}}, routing("x"), 400, -32600),
        ([tool("x")], routing("tools/call", "x"), 400, -32600),
        (b"{", routing("tools/call", "x"), 400, -32700),
    ],
)
def test_requests_that_do_not_fit(server, tokens, body, headers, status, code):
    response = server.request(body=body, token=tokens.admin, headers=headers)
    assert (response.status, response.rpc_code) == (status, code), response
    assert response.headers["x-content-type-options"] == "nosniff"
    assert len(server.sessions) == 0


def test_a_version_that_is_not_served_names_those_that_are(server, tokens):
    meta = ENVELOPE | {f"{PREFIX}protocolVersion": "2099-01-01"}
    headers = routing("tools/call", "x") | {"MCP-Protocol-Version": "2099-01-01"}
    body = request("tools/call", meta=meta, name="x")
    response = server.request(body=body, token=tokens.admin, headers=headers)
    assert (response.status, response.rpc_code) == (400, -32022)
    assert response.json["error"]["data"]["supported"] == [VERSION]
    handshake = server.request(
        body=server.hello, token=tokens.admin, headers={"MCP-Protocol-Version": "2099-01-01"}
    )
    assert (handshake.status, handshake.rpc_code) == (400, -32000)


def test_a_repeated_routing_header_is_refused(server, tokens):
    body = json.dumps(tool("x")).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer "
        f"{tokens.admin}\r\nAccept: */*\r\nContent-Type: application/json\r\n"
        f"MCP-Protocol-Version: {VERSION}\r\nMcp-Method: tools/call\r\nMcp-Name: x\r\n"
        f"Mcp-Name: x\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    answer = server.raw(head.encode() + body)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"-32020" in answer


def test_discovery_and_the_tool_list(server, tokens):
    found = server.request(
        body=request("server/discover"), token=tokens.admin, headers=routing("server/discover")
    )
    assert found.json["result"]["supportedVersions"] == [VERSION]
    listed = server.request(
        body=request("tools/list"), token=tokens.admin, headers=routing("tools/list")
    )
    assert listed.status == 200
    assert listed.headers["x-content-type-options"] == "nosniff"
    assert listed.body.count(b"resultType") == 1
    assert listed.json["result"]["_meta"][f"{PREFIX}serverInfo"]["name"] == "maad"
    assert "maad_get" in [entry["name"] for entry in listed.json["result"]["tools"]]


def test_notifications_are_accepted(server, tokens):
    body = {"jsonrpc": "2.0", "method": "notifications/x"}
    response = server.request(body=body, token=tokens.admin, headers=routing("notifications/x"))
    assert (response.status, response.body) == (202, b"")


def test_progress_turns_the_answer_into_events(server, tokens):
    response = server.request(
        body=tool("progress", progressToken="p"),
        token=tokens.admin,
        headers=routing("tools/call", "progress"),
    )
    assert response.headers["content-type"] == "text/event-stream"
    blocks = response.body.decode().replace("\r\n", "\n").strip().split("\n\n")
    messages = [json.loads(block.partition("data: ")[2]) for block in blocks]
    assert [message.get("method") for message in messages] == ["notifications/progress"] * 2 + [
        None
    ]
    assert data_of(messages[-1])["tool"] == "progress"


def test_a_client_without_events_is_served_as_well(server, tokens):
    for body, headers in (
        (tool("x"), routing("tools/call", "x")),
        (request("tools/list"), routing("tools/list")),
        (tool("progress", progressToken="p"), routing("tools/call", "progress")),
    ):
        response = server.request(
            body=body, token=tokens.admin, headers=headers | {"Accept": "application/json"}
        )
        assert (response.status, response.headers["content-type"]) == (200, "application/json")
    refused = server.request(
        body=tool("x"), token=tokens.admin, headers=routing("x") | {"Accept": "text/event-stream"}
    )
    assert refused.status == 406


def test_a_slow_answer_becomes_events(server, tokens, monkeypatch):
    monkeypatch.setattr("maadd.transport.incoming.KEEP_ALIVE_S", 0.05)
    server.later(0.3, server.pipeline.proceed.set)
    response = server.request(
        body=tool("wait"), token=tokens.admin, headers=routing("tools/call", "wait")
    )
    assert response.headers["content-type"] == "text/event-stream"
    answer = response.body[response.body.index(b"data: ") :].removeprefix(b"data: ")
    assert data_of(json.loads(answer))["tool"] == "wait"


def test_a_client_that_leaves_cancels_its_call(server, tokens, monkeypatch):
    monkeypatch.setattr("maadd.transport.protocol.HALF_CLOSED_S", 600)  # at once
    body = json.dumps(tool("wait")).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tokens.admin}\r\nAccept: */*\r\n"
        f"MCP-Protocol-Version: {VERSION}\r\nMcp-Method: tools/call\r\nMcp-Name: wait\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(head.encode() + body)
        assert server.pipeline.waiting.wait(10)
    assert server.pipeline.cancelled.wait(10)


def test_without_a_bearer_nothing_is_said(start):
    response = start().request(body=tool("x"), headers=routing("tools/call", "x"))
    assert (response.status, response.code) == (401, "UNAUTHORIZED")
