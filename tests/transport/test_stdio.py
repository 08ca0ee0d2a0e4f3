"""MCP over standard input and output, with a real process at the other end (spec 04 §10)."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import subprocess
import sys

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

CHILD = [sys.executable, str(pathlib.Path(__file__).with_name("stdio_child.py"))]
PREFIX = "io.modelcontextprotocol/"
ENVELOPE = {f"{PREFIX}protocolVersion": "2026-07-28", f"{PREFIX}clientCapabilities": {}}
HELLO = {
    "jsonrpc": "2.0",
    "id": "hello",
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def request(method: str, request_id: object = 1, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def tool(name: str, request_id: object = 1, **params: object) -> dict[str, object]:
    return request("tools/call", request_id, name=name, arguments={}, **params)


def line(message: object) -> bytes:
    return json.dumps(message).encode() + b"\n"


def data_of(message: dict) -> dict:
    return json.loads(message["result"]["content"][0]["text"])["data"]


def test_a_handshake_and_a_call(piped):
    hello = piped.ask(HELLO)
    assert hello["result"]["serverInfo"]["name"] == "maad"
    piped.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    answered = piped.ask(tool("maad_get", "seven"))
    assert answered["id"] == "seven"
    assert data_of(answered)["session"].startswith("stdio-")
    assert "isError" not in answered["result"]
    assert piped.ask(tool("refused"))["result"]["isError"] is True
    listed = piped.ask(request("tools/list"))
    assert "maad_get" in [entry["name"] for entry in listed["result"]["tools"]]


def test_nothing_but_messages_reaches_standard_output():
    done = subprocess.run(CHILD, input=line(HELLO), capture_output=True, timeout=20)
    assert done.returncode == 0
    (message,) = map(json.loads, done.stdout.splitlines())
    assert message["id"] == "hello"
    log = done.stderr.decode()
    assert "a print" in log
    assert "a child's output" in log
    assert "stdin holds ''" in log


def test_discovery_and_then_a_handshake_are_both_answered(piped):
    found = piped.ask(request("server/discover", "d", _meta=ENVELOPE))
    assert found["result"]["supportedVersions"] == ["2026-07-28"]
    assert piped.ask(HELLO)["result"]["protocolVersion"] == "2025-11-25"
    assert data_of(piped.ask(tool("x")))["session"]


def test_discovery_and_then_a_stateless_call(piped):
    piped.ask(request("server/discover", _meta=ENVELOPE))
    answered = piped.ask(tool("x", _meta=ENVELOPE))
    assert answered["result"]["resultType"] == "complete"
    assert data_of(answered)["session"].startswith("stdio-")
    assert piped.ask(request("tools/list", _meta=ENVELOPE))["result"]["tools"]
    refused = piped.ask(HELLO)
    assert refused["error"]["code"] == -32022
    assert refused["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2025-11-25"}
    assert piped.ask(tool("x"))["error"]["code"] == -32602
    assert piped.ask(request("no/such", _meta=ENVELOPE))["error"]["code"] == -32601
    assert "result" in piped.ask(request("server/discover", _meta=ENVELOPE))


def test_a_handshake_connection_refuses_envelopes(piped):
    piped.ask(HELLO)
    assert piped.ask(tool("x", _meta=ENVELOPE))["error"]["code"] == -32600
    assert piped.ask(HELLO)["error"]["code"] == -32600
    assert "result" in piped.ask(tool("x"))


def test_before_the_handshake_calls_are_refused(piped):
    assert piped.ask(tool("x"))["error"]["code"] == -32602
    assert piped.ask(request("ping"))["result"] == {}
    assert "result" in piped.ask(HELLO)


@pytest.mark.parametrize("method", ["initialized", "roots/list_changed", "x"])
@pytest.mark.parametrize("revision", ["2025-11-25", "1999-01-01"])
def test_notifications_before_the_handshake_are_ignored(piped, method, revision):
    stray = {"jsonrpc": "2.0", "method": f"notifications/{method}"}
    piped.send(stray, stray)
    assert piped.ask(tool("x"))["error"]["code"] == -32602
    piped.send(stray)
    hello = HELLO | {"params": HELLO["params"] | {"protocolVersion": revision}}
    assert piped.ask(hello)["result"]["protocolVersion"] == "2025-11-25"
    piped.send({"jsonrpc": "2.0", "method": "notifications/initialized"}, stray)
    assert "result" in piped.ask(tool("x"))
    assert "error" in piped.ask(request("x"))


def test_requests_sent_behind_the_handshake_find_it_done(piped):
    piped.send(HELLO, tool("x", 2), request("ping", 3))
    answers = [piped.receive() for _ in range(3)]
    assert answers[0]["id"] == "hello"
    assert {answer["id"] for answer in answers[1:]} == {2, 3}
    assert all("result" in answer for answer in answers)


@pytest.mark.parametrize("text", [b"{\n", b"not json\n", b"7\n", b"[]\n", b'{"id":1}\n', b"\xff\n"])
def test_a_line_that_is_no_message_is_answered(piped, text):
    refused = piped.ask(text)
    assert refused["error"]["code"] == -32700
    assert refused["id"] is None
    assert "result" in piped.ask(HELLO)


def test_a_number_that_no_json_has_leaves_the_request_its_answer(piped):
    piped.ask(HELLO)
    refused = piped.ask(b'{"jsonrpc":"2.0","id":6,"method":"ping","params":{"x":NaN}}\n')
    assert (refused["id"], refused["error"]["code"]) == (6, -32700)
    assert "no JSON-RPC message: JSON is malformed" in refused["error"]["message"]


def test_half_a_character_leaves_the_request_its_answer(piped):
    """Whose id would be lost, and its client waiting, if the line counted as no JSON."""
    piped.ask(HELLO)
    refused = piped.ask(line(request("prompts/get", 5, name="\ud800")))
    assert (refused["id"], refused["error"]["code"]) == (5, -32601)
    for text in (b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}\n', b'{"a":"\\ud800"}\n'):
        unreadable = piped.ask(text)
        assert (unreadable["id"], unreadable["error"]["code"]) == (None, -32700)
    assert "result" in piped.ask(tool("x"))


def test_blank_lines_are_nothing(piped):
    piped.send(b"\n  \r\n")
    assert piped.ask(HELLO)["id"] == "hello"


def test_a_line_that_is_too_long_is_refused_and_the_next_is_served(piped):
    piped.ask(HELLO)
    allowed = tool("x", "fits", filler="x" * 60_000)
    assert piped.ask(allowed)["id"] == "fits"
    refused = piped.ask(b'{"filler":"' + b"x" * 5_000_000 + b'"}\n')
    assert (refused["id"], refused["error"]["code"]) == (None, -32600)
    assert "result" in piped.ask(tool("x"))


def test_progress_and_notifications_go_out_between_answers(piped):
    piped.ask(HELLO)
    piped.send(tool("progress", 5, _meta={"progressToken": 9}))
    first, second, answer = (piped.receive() for _ in range(3))
    assert first["params"] == {"progressToken": 9, "progress": 1, "total": 2, "message": "half"}
    assert second["method"] == "notifications/progress"
    assert answer["id"] == 5
    piped.send(tool("notify", 6))
    both = [piped.receive(), piped.receive()]
    assert {message.get("id", message.get("method")) for message in both} == {6, "notifications/x"}


def test_a_cancelled_request_is_not_answered(piped):
    piped.ask(HELLO)
    piped.send(tool("wait", 5))
    assert piped.pipeline.waiting.wait(10)
    piped.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}})
    assert piped.pipeline.cancelled.wait(10)
    assert piped.ask(request("ping", 6))["id"] == 6
    assert piped.end() == []


def test_the_end_of_input_ends_the_process_and_what_is_under_way():
    calls = line(HELLO) + line(tool("wait", 5)) + json.dumps(request("ping", 6)).encode()
    done = subprocess.run(CHILD, input=calls, capture_output=True, timeout=20)
    assert done.returncode == 0
    assert [json.loads(text)["id"] for text in done.stdout.splitlines()] == ["hello", 6]
    assert b"cancelled=True" in done.stderr


def test_a_client_that_stops_reading_for_good_ends_the_process():
    with subprocess.Popen(
        CHILD, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        process.stdout.close()
        process.stdin.write(line(HELLO))
        process.stdin.flush()
        assert process.wait(20) == 0


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_client_of_the_sdk(mode):
    async def scenario():
        parameters = StdioServerParameters(command=CHILD[0], args=CHILD[1:], env=dict(os.environ))
        async with Client(parameters, mode=mode) as client:
            listed = await client.list_tools()
            answered = await client.call_tool("maad_get", {"docId": "x"})
            return listed, answered

    listed, answered = asyncio.run(scenario())
    assert listed.tools
    assert json.loads(answered.content[0].text)["data"]["arguments"] == {"docId": "x"}
