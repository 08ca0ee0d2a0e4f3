"""The MCP layer of the handshake revisions (spec 04 §9.2)."""

from __future__ import annotations

import json
import socket
import threading

import pytest


@pytest.fixture
def session(server, tokens):
    return server.initialize(tokens.admin)


def post(server, tokens, body, session=None, **headers):
    return server.request(
        body=body,
        token=tokens.admin,
        session=session,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


def test_initialize_opens_a_session(server, tokens):
    response = post(server, tokens, server.hello)
    assert response.status == 200
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert len(response.headers["mcp-session-id"]) == 22
    assert response.result["serverInfo"] == {"name": "maad", "version": "1.2.3"}
    assert response.result["capabilities"]["tools"] == {"listChanged": True}
    assert response.result["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize(
    ("offered", "negotiated"),
    [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2024-11-05", "2024-11-05"),
        ("1999-01-01", "2025-11-25"),
    ],
)
def test_the_version_is_negotiated(server, tokens, offered, negotiated):
    hello = {**server.hello, "params": {**server.hello["params"], "protocolVersion": offered}}
    assert post(server, tokens, hello).result["protocolVersion"] == negotiated


def test_a_failed_initialize_opens_nothing(server, tokens):
    broken = {**server.hello, "params": {"protocolVersion": 7}}
    response = post(server, tokens, broken)
    assert response.status == 200
    assert "mcp-session-id" not in response.headers
    assert response.messages[0]["error"]["code"] == -32602
    assert len(server.sessions) == 0


def test_a_draining_server_opens_no_session(server, tokens, session):
    server.state.draining = True
    response = post(server, tokens, server.hello)
    assert (response.status, response.code) == (503, "SHUTTING_DOWN")
    assert post(server, tokens, server.tool_call("x"), session).status == 200


def test_a_tool_call_answers_one_event(server, tokens, session):
    response = post(server, tokens, server.tool_call("maad_get", {"docId": "ä"}, "id-1"), session)
    assert response.status == 200
    assert response.headers["content-type"] == "text/event-stream"
    (message,) = response.messages
    assert message["id"] == "id-1"
    (item,) = message["result"].pop("content")
    assert message["result"] == {}
    assert item["type"] == "text"
    assert json.loads(item["text"]) == {
        "ok": True,
        "data": {
            "tool": "maad_get",
            "arguments": {"docId": "ä"},
            "session": session,
            "bound": None,
        },
    }
    assert "ä" in item["text"]


def test_a_failed_call_is_an_error_result(server, tokens, session):
    result = post(server, tokens, server.tool_call("refused"), session).result
    assert result["isError"] is True
    assert json.loads(result["content"][0]["text"])["ok"] is False


@pytest.mark.parametrize("arguments", [None, [], "text", 7, {"a": None}])
def test_arguments_reach_the_pipeline_as_they_came(server, tokens, session, arguments):
    body = server.tool_call("x")
    body["params"]["arguments"] = arguments
    text = post(server, tokens, body, session).result["content"][0]["text"]
    assert json.loads(text)["data"]["arguments"] == arguments


@pytest.mark.parametrize("params", [{}, {"name": 7}, {"arguments": {}}, None])
def test_a_call_without_a_name_is_refused(server, tokens, session, params):
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    assert post(server, tokens, body, session).messages[0]["error"]["code"] == -32602


def test_tools_are_listed_with_schemas_and_hints(server, tokens, session):
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    first, again = (post(server, tokens, body, session) for _ in range(2))
    assert first.body == again.body
    tools = {tool["name"]: tool for tool in first.result["tools"]}
    assert tools["maad_get"]["inputSchema"]["additionalProperties"] is False
    assert tools["maad_get"]["annotations"]["readOnlyHint"] is True
    assert tools["maad_get"]["title"]


def test_ping_and_unknown_methods(server, tokens, session):
    ping = post(server, tokens, {"jsonrpc": "2.0", "id": 1, "method": "ping"}, session)
    assert ping.result == {}
    unknown = post(server, tokens, {"jsonrpc": "2.0", "id": 1, "method": "no/such"}, session)
    assert unknown.messages[0]["error"]["code"] == -32601


def test_notifications_and_responses_are_accepted(server, tokens, session):
    for body in (
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}},
        {"jsonrpc": "2.0", "method": "notifications/unknown"},
        {"jsonrpc": "2.0", "id": 5, "result": {}},
        [{"jsonrpc": "2.0", "method": "notifications/initialized"}],
    ):
        response = post(server, tokens, body, session)
        assert (response.status, response.body) == (202, b"")
        assert response.headers["x-content-type-options"] == "nosniff"


def test_a_batch_answers_each_request(server, tokens, session):
    batch = [
        server.tool_call("a", request_id=1),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        server.tool_call("b", request_id="two"),
        {"jsonrpc": "2.0", "id": 3, "method": "no/such"},
    ]
    messages = post(server, tokens, batch, session).messages
    assert {message["id"] for message in messages} == {1, "two", 3}
    assert len(messages) == 3
    plain = post(server, tokens, batch, session, Accept="application/json")
    assert {message["id"] for message in plain.json} == {1, "two", 3}


REQUEST_ERRORS = [
    ("no method", {"Accept": "text/html"}, None, 406, -32000),
    ("no json", {"Accept": "text/event-stream"}, None, 406, -32000),
    ("no accept", {"Accept": ""}, None, 406, -32000),
    ("wrong type", {"Content-Type": "text/plain"}, None, 415, -32000),
    ("no type", {"Content-Type": ""}, None, 415, -32000),
    ("bad json", {}, b"{", 400, -32700),
    ("empty", {}, b"", 400, -32700),
    ("not an object", {}, b"7", 400, -32700),
    ("no version", {}, b'{"id":1,"method":"ping"}', 400, -32700),
    ("null id", {}, b'{"jsonrpc":"2.0","id":null,"method":"ping"}', 400, -32700),
    ("list params", {}, b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', 400, -32700),
    ("nothing asked", {}, b'{"jsonrpc":"2.0","id":1}', 400, -32700),
    ("empty batch", {}, b"[]", 400, -32700),
    ("mixed batch", {}, b'[{"jsonrpc":"2.0","id":1,"method":"ping"},7]', 400, -32700),
    (
        "not utf-8",
        {},
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\xff"}}',
        400,
        -32700,
    ),
    (
        "too deep",
        {},
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":' + b"[" * 50_000,
        400,
        -32700,
    ),
    ("unsupported version", {"MCP-Protocol-Version": "1999-01-01"}, None, 400, -32000),
    ("stateless version", {"MCP-Protocol-Version": "2026-07-28"}, None, 400, -32000),
]


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [row[1:] for row in REQUEST_ERRORS],
    ids=[row[0] for row in REQUEST_ERRORS],
)
def test_requests_that_do_not_fit(server, tokens, session, headers, body, status, code):
    if body is None:
        body = server.tool_call("x")
    response = server.request(body=body, token=tokens.admin, session=session, headers=headers)
    assert (response.status, response.rpc_code) == (status, code)
    assert response.json["jsonrpc"] == "2.0"
    assert response.json["id"] is None
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"', "Input data was truncated"),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', "object"),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', "Invalid enum value '1.0'"),
        (b"[]", "the batch is empty"),
        (b"[7]", "Expected `object`, got `int`"),
    ],
)
def test_a_body_that_cannot_be_read_is_told_why(server, tokens, session, body, reason):
    response = server.request(body=body, token=tokens.admin, session=session)
    message = response.json["error"]["message"]
    assert message.startswith("The body is no JSON-RPC message: ")
    assert reason in message


def test_initialize_on_a_session_or_in_a_batch_is_refused(server, tokens, session):
    assert post(server, tokens, server.hello, session).rpc_code == -32600
    batch = [server.hello, server.tool_call("x")]
    for known in (None, session):
        response = post(server, tokens, batch, known)
        assert (response.status, response.rpc_code) == (400, -32600)
    assert post(server, tokens, [server.hello]).status == 200


def test_a_batch_is_bounded(server, tokens, session):
    batch = [{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in range(101)]
    assert post(server, tokens, batch, session).rpc_code == -32600
    assert len(post(server, tokens, batch[:100], session).messages) == 100


@pytest.mark.parametrize("method", ["ping", "tools/call", "tools/list"])
def test_without_a_session_only_initialize_is_answered(server, tokens, method):
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"name": "x"}}
    response = post(server, tokens, body)
    assert (response.status, response.rpc_code) == (400, -32000)
    notification = post(server, tokens, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (notification.status, notification.rpc_code) == (400, -32000)
    assert len(server.sessions) == 0


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "HEAD"])
def test_other_methods_are_told_what_is_allowed(server, tokens, session, method):
    response = server.request(method, token=tokens.admin, session=session)
    assert response.status == 405
    assert response.headers["allow"] == "GET, POST, DELETE"


@pytest.mark.parametrize("accept", ["*/*", "application/*, text/*", "text/event-stream, */*;q=0.1"])
def test_wildcards_are_accepted(server, tokens, session, accept):
    response = post(server, tokens, server.tool_call("x"), session, Accept=accept)
    assert response.headers["content-type"] == "text/event-stream"
    assert len(response.messages) == 1


def test_a_client_without_events_gets_plain_json(server, tokens):
    hello = post(server, tokens, server.hello, Accept="application/json")
    assert hello.json["result"]["serverInfo"]["name"] == "maad"
    session = hello.headers["mcp-session-id"]
    response = post(server, tokens, server.tool_call("x"), session, Accept="application/json")
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-store"
    assert response.json["id"] == 2


def test_progress_comes_before_the_answer_of_whoever_asked(server, tokens, session):
    asked = server.tool_call("progress", _meta={"progressToken": "p-1"})
    first, second, answer = post(server, tokens, asked, session).messages
    assert first["params"] == {
        "progressToken": "p-1",
        "progress": 1,
        "total": 2,
        "message": "half",
    }
    assert second["method"] == "notifications/progress"
    assert second["params"]["progress"] == 2
    assert answer["id"] == 2
    assert len(post(server, tokens, server.tool_call("progress"), session).messages) == 1


def test_a_slow_answer_is_kept_open_with_comments(server, tokens, session, monkeypatch):
    monkeypatch.setattr("maadd.transport.incoming.KEEP_ALIVE_S", 0.05)
    server.later(0.3, server.pipeline.proceed.set)
    response = post(server, tokens, server.tool_call("wait"), session)
    assert response.body.startswith(b": keep-alive\n\n")
    assert response.headers["content-type"] == "text/event-stream"
    answer = response.body[response.body.index(b"event:") :]
    assert json.loads(answer.removeprefix(b"event: message\ndata: "))["id"] == 2


def test_a_cancelled_request_is_not_answered(server, tokens, session):
    answers = []

    def ask():
        answers.append(post(server, tokens, server.tool_call("wait", request_id=77), session))

    asking = threading.Thread(target=ask)
    asking.start()
    assert server.pipeline.waiting.wait(10)
    cancel = {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": 77, "reason": "enough"},
    }
    assert post(server, tokens, cancel, session).status == 202
    asking.join(10)
    assert server.pipeline.cancelled.is_set()
    assert (answers[0].status, answers[0].body) == (200, b"")
    assert server.do(lambda: server.sessions.get(session).in_flight) == 0


@pytest.mark.parametrize("tool_calls", [1, 2])
def test_a_client_that_leaves_cancels_its_calls(server, tokens, session, tool_calls, monkeypatch):
    monkeypatch.setattr("maadd.transport.protocol.HALF_CLOSED_S", 0.05)
    calls = [server.tool_call("wait", request_id=n) for n in range(tool_calls)]
    body = json.dumps(calls[0] if tool_calls == 1 else calls).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tokens.admin}\r\n"
        f"Mcp-Session-Id: {session}\r\nAccept: */*\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(head.encode() + body)
        assert server.pipeline.waiting.wait(10)
    assert server.pipeline.cancelled.wait(10)
    assert not [event for event in server.events if event["level"] == "error"]
    assert post(server, tokens, server.tool_call("x"), session).status == 200
