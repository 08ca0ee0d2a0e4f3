"""What is answered without the SDK is what the SDK would answer."""

import asyncio
import copy
import json
import subprocess
import sys

import pytest
from mcp_types import version as sdk_versions
from mcp_types.methods import serialize_server_result

from maadd import __version__
from maadd.config.settings import Settings
from maadd.front.mcp_server import make_mcp_server
from maadd.protocol.json_schema import tool_entry
from maadd.protocol.tools import TOOLS
from maadd.sessions.notices import NoticeQueue
from maadd.sessions.table import SessionLimits, SessionTable
from maadd.tools.listing import ToolListing
from maadd.transport.introduction import CAPABILITIES, Introduction
from maadd.transport.messages import decode_message
from maadd.transport.peer import McpFace, Peer
from maadd.transport.revisions import (
    HANDSHAKE_REVISIONS,
    LATEST_HANDSHAKE,
    STATELESS_REVISIONS,
)

PLAIN = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


class _Pipeline:
    """Lists every tool."""

    def listed_tools(self, _caller):
        return tuple(TOOLS.values())


class _State:
    draining = False


def _face():
    pipeline = _Pipeline()
    return McpFace(
        lambda: make_mcp_server(pipeline, _State(), None, Settings()),
        Introduction(__version__, CAPABILITIES),
        pipeline,
        None,
    )


def _changed(**changes):
    """The plain params, with members replaced, or removed where None is given."""
    params = copy.deepcopy(PLAIN) | changes
    return {name: value for name, value in params.items() if value is not None}


def _client(**members):
    return _changed(clientInfo={"name": "test", "version": "1", **members})


def _able(**members):
    return _changed(capabilities=members)


_PLAIN = [
    *(_changed(protocolVersion=revision) for revision in HANDSHAKE_REVISIONS),
    _changed(protocolVersion="2026-07-28"),
    _changed(protocolVersion="1999-01-01"),
    _changed(protocolVersion=""),
    _able(roots={"listChanged": True}, sampling={}, elicitation={"form": {}, "url": {}}),
    _able(experimental={"x": {"y": [1, None]}}, extensions={"io.example/a": {}}, roots={}),
    _able(sampling={"tools": {}, "context": {}}, elicitation=None, roots={"listChanged": None}),
    _client(title="A test", description="ü", websiteUrl="https://example.org"),
    _client(title=None),
]

_OTHER = [
    None,
    [],
    {},
    {"protocolVersion": "2025-11-25"},
    _changed(protocolVersion=20251125),
    _changed(capabilities=None),
    _changed(capabilities=[]),
    _changed(clientInfo={"name": "test"}),
    _changed(clientInfo="test"),
    _changed(_meta={"progressToken": 1}),
    _changed(_meta=5),
    _changed(more=1),
    _able(roots={"listChanged": "perhaps"}),
    _able(roots={"listChanged": 1}),
    _able(roots=True),
    _able(experimental={"x": 1}),
    _able(sampling={"tools": 5}),
    _able(tasks={"requests": {}}),
    _able(tasks={"requests": 5}),
    _able(own={"a": 1}),
    _client(icons=[{"src": "https://example.org/i.png"}]),
    _client(icons="none"),
    _client(title=5),
    _client(title="\ud800"),
]


@pytest.fixture(scope="module")
def answers():
    """For each of the params: what a peer answers, whether the SDK did, and what it would."""

    async def judge():
        kernel = await _face().kernel()
        for params in (*_PLAIN, *_OTHER):
            body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
            try:
                request = decode_message(json.dumps(body).encode())
            except ValueError:
                continue
            face = _face()
            peer = Peer(face, NoticeQueue(1))
            answer = await peer.answer(request)
            conversation = kernel.converse(NoticeQueue(1))
            expected = await conversation.answer(None, request, None)
            judged.append((params, face.is_loaded, answer, expected))
            assert peer.initialized == conversation.initialized

    judged = []
    asyncio.run(judge())
    return judged


def test_params_of_the_plain_form_are_answered_without_the_sdk(answers):
    assert [params for params, by_sdk, _, _ in answers if not by_sdk] == _PLAIN


def test_every_initialize_is_answered_as_the_sdk_answers_it(answers):
    for params, _, answer, expected in answers:
        assert answer == expected, params


def test_the_kernel_knows_of_the_handshake_when_it_is_first_asked():
    async def scenario():
        face = _face()
        peer = Peer(face, NoticeQueue(1))

        async def ask(method, params=None):
            body = {"jsonrpc": "2.0", "id": method, "method": method, "params": params or {}}
            return json.loads(await peer.answer(decode_message(json.dumps(body).encode())))

        await ask("initialize", _changed(protocolVersion="2025-03-26"))
        sessions = SessionTable(SessionLimits(1, 1, 1), None)
        peer.join(sessions.open("s", transport="stdio", notices=NoticeQueue(1), permanent=True))
        greeting = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await peer.take(decode_message(json.dumps(greeting).encode()))
        assert "result" in await ask("tools/list")
        assert await ask("ping") == {"jsonrpc": "2.0", "id": "ping", "result": {}}
        assert not face.is_loaded
        both = await asyncio.gather(ask("prompts/list"), ask("resources/templates/list"))
        assert face.is_loaded
        assert [sorted(answer["result"]) for answer in both] == [["prompts"], ["resourceTemplates"]]
        again = await ask("initialize", PLAIN)
        assert again["error"]["message"] == "initialized already"

    asyncio.run(scenario())


def test_a_withdrawn_request_does_not_stop_the_sdk_from_loading():
    async def scenario():
        face = _face()
        peer = Peer(face, NoticeQueue(1))
        hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": PLAIN}
        await peer.answer(decode_message(json.dumps(hello).encode()))

        def listing(number):
            body = {"jsonrpc": "2.0", "id": number, "method": "prompts/list", "params": {}}
            return asyncio.create_task(peer.answer(decode_message(json.dumps(body).encode())))

        first, second = listing(1), listing(2)
        await asyncio.sleep(0)
        cancelled = {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": 1},
        }
        await peer.take(decode_message(json.dumps(cancelled).encode()))
        assert await first is None
        assert b'"prompts"' in await second

    asyncio.run(scenario())


def test_the_revisions_are_those_of_the_sdk():
    assert HANDSHAKE_REVISIONS == sdk_versions.HANDSHAKE_PROTOCOL_VERSIONS
    assert STATELESS_REVISIONS == sdk_versions.MODERN_PROTOCOL_VERSIONS
    assert LATEST_HANDSHAKE == sdk_versions.LATEST_HANDSHAKE_VERSION


@pytest.mark.parametrize("revision", [*HANDSHAKE_REVISIONS, *STATELESS_REVISIONS])
def test_tools_are_listed_as_the_sdk_lists_them(revision):
    listing = ToolListing(_Pipeline())
    shown = json.loads(listing.text(None, stateless=revision in STATELESS_REVISIONS))
    assert [tool["name"] for tool in shown["tools"]] == list(TOOLS)
    assert shown["tools"] == [tool_entry(spec) for spec in TOOLS.values()]
    assert shown == serialize_server_result("tools/list", revision, listing.result(None))


def test_a_front_starts_without_the_sdk_and_without_the_engine():
    code = (
        "import sys, maadd.cli.serve, maadd.front.front, maadd.transport.stdio, "
        "maadd.transport.http_server, maadd.transport.metrics_http\n"
        "heavy = {'mcp', 'mcp_types', 'pydantic', 'starlette', 'httpx2', 'maadd_worker.engine', "
        "'git', 'pygit2', 'numpy', 'apsw'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
