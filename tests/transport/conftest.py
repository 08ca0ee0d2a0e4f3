"""A real HTTP server on a free port, with real tokens and a pipeline that echoes."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
import uvloop

from maadd.auth.issue import TokenSpec
from maadd.auth.record import ProjectGrant
from maadd.auth.registry import TokenRegistry
from maadd.config.instance import Instance, ProjectConfig
from maadd.config.settings import Settings
from maadd.ops.meter import Meter
from maadd.pipeline.envelope import CallResult
from maadd.pipeline.progress import ReportProgress
from maadd.protocol.messages import HistorySettings
from maadd.protocol.roles import Role
from maadd.protocol.size import success_text
from maadd.protocol.tools import ToolSpec, registered_tools
from maadd.sessions.session import CloseReason, Session
from maadd.sessions.stateless import StatelessCaller
from maadd.sessions.table import SessionLimits, SessionTable
from maadd.tools.face import create_server
from maadd.tools.prompts import add_prompts
from maadd.transport.app import HttpApp
from maadd.transport.http_server import HttpServer
from maadd.transport.introduction import Introduction
from maadd.transport.peer import McpFace
from maadd.transport.stdio import StdioServer

sys.path.append(str(Path(__file__).parent))

JSON_AND_EVENTS = "application/json, text/event-stream"

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}

_TOOLS = {"tools": {"listChanged": True}}
_PROMPTS = {"prompts": {"listChanged": False}}


class EchoPipeline:
    """Answers every call with what it was asked, by whom; some names behave otherwise.

    `wait` sets `waiting` and waits for `proceed`; `progress` reports twice before it answers;
    `notify` puts a notification on the session's stream.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.waiting = threading.Event()
        self.cancelled = threading.Event()
        self.proceed = asyncio.Event()

    async def call(
        self,
        caller: Session | StatelessCaller,
        tool: str,
        arguments: object,
        *,
        progress: ReportProgress | None = None,
        source: bytes | None = None,
    ) -> CallResult:
        if tool == "wait":
            self.waiting.set()
            try:
                await self.proceed.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        if tool == "progress" and progress is not None:
            await progress(1, 2, "half")
            await progress(2, 2, None)
        if tool == "notify" and isinstance(caller, Session):
            caller.notices.offer(b'{"jsonrpc":"2.0","method":"notifications/x"}')
        if tool == "refused":
            return CallResult(b'{"ok":false,"errors":[{"code":"X","message":"no"}]}', True)
        who = (
            {"session": caller.id, "bound": caller.binding and list(caller.binding.projects)}
            if isinstance(caller, Session)
            else {"token": caller.token.id, "pinned": caller.pinned}
        )
        data = msgspec.json.encode({"tool": tool, "arguments": arguments, **who})
        return CallResult(success_text(data, source=None, meta=None), False)

    def listed_tools(self, caller: Session | StatelessCaller) -> tuple[ToolSpec, ...]:
        return registered_tools()


class State:
    """The running front, as the transport sees it."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.draining = False


class RunningServer:
    """An HttpServer on its own loop in a thread, and everything it was made of."""

    def __init__(self, settings: Settings, tokens: TokenRegistry, instance: Instance) -> None:
        self.settings = settings
        self.tokens = tokens
        self.state = State(instance)
        self._instance = instance
        self.events: list[dict[str, Any]] = []
        self.closed: list[tuple[str, CloseReason]] = []
        self.meter = Meter()
        self.port = 0
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        try:
            self.run(self._start())
        except BaseException:
            self._end_loop()
            raise

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def do(self, action: Callable[[], Any]) -> Any:
        """Call a function on the server's loop."""

        async def work() -> Any:
            return action()

        return self.run(work())

    def renew(self) -> None:
        """As after the start: no session, no event, nothing that waits."""

        def forget() -> None:
            self.sessions.close_all(CloseReason.SHUTDOWN)
            self.pipeline.renew()
            self.state.instance = self._instance
            self.state.draining = False

        self.do(forget)
        self.events.clear()
        self.closed.clear()

    def stop(self) -> None:
        self.run(self.server.close())
        self._end_loop()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        self.pipeline = EchoPipeline()
        log = capturing_log(self.events)
        limits = SessionLimits(
            self.settings.session_max,
            self.settings.session_max_per_token,
            self.settings.session_idle_ms / 1000,
        )
        self.sessions = SessionTable(
            limits,
            log,
            on_close=[lambda session, reason: self.closed.append((session.id, reason))],
        )
        mcp_server = create_server(self.pipeline, version="1.2.3")
        add_prompts(mcp_server, self.state)
        app = self.app = HttpApp(
            state=self.state,
            settings=self.settings,
            tokens=self.tokens,
            sessions=self.sessions,
            face=McpFace(
                lambda: mcp_server, Introduction("1.2.3", _PROMPTS | _TOOLS), self.pipeline, log
            ),
            log=log,
            meter=self.meter,
        )
        self.server = HttpServer(app, self.settings, self.sessions, log)
        await self.server.start()
        self.port = self.server.port or 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def request(
        self,
        method: str = "POST",
        body: object = None,
        *,
        token: str | None = None,
        session: str | None = None,
        path: str = "/mcp",
        headers: dict[str, str] | None = None,
    ) -> Response:
        """One request on a connection of its own; a header given as "" is left out."""
        sent = {"Accept": JSON_AND_EVENTS, "Content-Type": "application/json"}
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        if session is not None:
            sent["Mcp-Session-Id"] = session
        sent |= headers or {}
        payload = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=15)
        try:
            connection.request(
                method, path, payload, {name: value for name, value in sent.items() if value}
            )
            raw = connection.getresponse()
            return Response(raw.status, dict(raw.headers.items()), raw.read())
        finally:
            connection.close()

    def initialize(self, token: str, headers: dict[str, str] | None = None) -> str:
        """Open a session; its id."""
        response = self.request(body=INITIALIZE, token=token, headers=headers)
        assert response.status == 200, response
        return response.headers["mcp-session-id"]

    def reading(self) -> int:
        """How many requests wait for more of their bodies."""
        return len(self.app._bodies._waiting)

    def later(self, seconds: float, action: Callable[[], Any]) -> None:
        """Call a function on the server's loop after a while."""
        self.do(lambda: self._loop.call_later(seconds, action))

    hello = INITIALIZE

    @staticmethod
    def tool_call(
        tool: str, arguments: object = None, request_id: object = 2, **params: object
    ) -> Any:
        """A `tools/call` request."""
        return {
            "jsonrpc": "2.0",
            "id": request_id,
            "method": "tools/call",
            "params": {"name": tool, "arguments": arguments or {}, **params},
        }

    def raw(self, request: bytes, *, until: bytes | None = None) -> bytes:
        """Send bytes as they are; all that comes until the server closes, or `until` came."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=15) as connection:
            connection.sendall(request)
            received = b""
            while until is None or until not in received:
                chunk = connection.recv(65_536)
                if not chunk:
                    break
                received += chunk
            return received

    def logged(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.events if line["event"] == event]


async def serve_stdio(reading: int, writing: int, pipeline: EchoPipeline) -> None:
    """Serve one client on two descriptors, as a front does on standard input and output."""
    log = capturing_log([])
    server = StdioServer(
        face=McpFace(
            lambda: create_server(pipeline, version="1.2.3"),
            Introduction("1.2.3", _TOOLS),
            pipeline,
            log,
        ),
        sessions=SessionTable(SessionLimits(1, 1, 0.001), log),
        settings=Settings(rl_payload_bytes=1000),
        log=log,
        reading=reading,
        writing=writing,
    )
    await server.run()
    await server.close()


class Response(msgspec.Struct):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error of our own layer."""
        return self.json["errors"][0]["code"]

    @property
    def rpc_code(self) -> int:
        return self.json["error"]["code"]

    @property
    def messages(self) -> list[Any]:
        """The messages of an event stream."""
        blocks = self.body.decode().split("\n\n")
        assert blocks.pop() == ""
        assert all(block.startswith("event: message\ndata: ") for block in blocks)
        return [json.loads(block.removeprefix("event: message\ndata: ")) for block in blocks]

    @property
    def result(self) -> Any:
        (message,) = self.messages
        return message["result"]


def capturing_log(events: list[dict[str, Any]]) -> Any:
    """A logger that keeps its events in a list."""

    def keep(_logger: object, level: str, event: dict[str, Any]) -> Any:
        events.append({"level": level, **event})
        raise structlog.DropEvent

    return structlog.wrap_logger(
        None, processors=[keep], wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG)
    )


def make_instance(*names: str, role: Role = Role.ADMIN, source: str = "file") -> Instance:
    projects = {
        name: ProjectConfig(
            name, f"/srv/{name}", role, None, HistorySettings("feed", None, "inferred")
        )
        for name in names
    }
    return Instance("test", source, None, "/srv", projects)


class Tokens(msgspec.Struct):
    registry: TokenRegistry
    admin: str
    other: str
    alpha_only: str


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> TokenRegistry:
    return TokenRegistry.load(str(tmp_path_factory.mktemp("instance") / "_auth" / "tokens.yaml"))


@pytest.fixture(scope="module")
def tokens(registry: TokenRegistry) -> Tokens:
    """Three tokens that stay alive."""
    return issue_tokens(registry)


@pytest.fixture
def doomed_tokens(registry: TokenRegistry) -> Tokens:
    """Three tokens of the test's own, to revoke or rotate."""
    return issue_tokens(registry)


def issue_tokens(registry: TokenRegistry) -> Tokens:
    def issue(name: str, project: str) -> str:
        spec = TokenSpec(role=Role.ADMIN, projects=(ProjectGrant(project),), name=name)
        return registry.issue(spec).plaintext

    return Tokens(registry, issue("one", "*"), issue("two", "*"), issue("three", "alpha"))


@pytest.fixture
def start(registry: TokenRegistry) -> Iterator[Callable[..., RunningServer]]:
    """Starts servers of the test's own, with the given settings."""
    running: list[RunningServer] = []

    def start_one(instance: Instance | None = None, **settings: Any) -> RunningServer:
        chosen = Settings(**{"transport": "http", "http_port": 0} | settings)
        server = RunningServer(chosen, registry, instance or make_instance("alpha", "beta"))
        running.append(server)
        return server

    yield start_one
    for server in running:
        server.stop()


@pytest.fixture(scope="module")
def shared_server(registry: TokenRegistry) -> Iterator[RunningServer]:
    settings = Settings(transport="http", http_port=0)
    server = RunningServer(settings, registry, make_instance("alpha", "beta"))
    yield server
    server.stop()


@pytest.fixture
def server(shared_server: RunningServer) -> RunningServer:
    """A server with default settings and no sessions."""
    shared_server.renew()
    return shared_server


@pytest.fixture
def make_projects() -> Callable[..., Instance]:
    return make_instance


class PipedClient:
    """A client of a stdio server that runs in a thread; talks in messages."""

    def __init__(self) -> None:
        self.pipeline = EchoPipeline()
        reading, self._to_server = os.pipe()
        from_server, writing = os.pipe()
        self._from_server = os.fdopen(from_server, "rb")
        self._ours = (reading, writing)
        self._thread = threading.Thread(
            target=lambda: uvloop.run(serve_stdio(reading, writing, self.pipeline)), daemon=True
        )
        self._thread.start()

    def send(self, *messages: object) -> None:
        """Send messages, or bytes as they are."""
        for message in messages:
            text = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
            rest = memoryview(text)
            while rest:
                rest = rest[os.write(self._to_server, rest) :]

    def receive(self) -> Any:
        return json.loads(self._from_server.readline())

    def ask(self, message: object) -> Any:
        self.send(message)
        return self.receive()

    def end(self) -> list[Any]:
        """End the server's input; the messages that still came."""
        os.close(self._to_server)
        self._thread.join(10)
        assert not self._thread.is_alive()
        for descriptor in self._ours:
            os.close(descriptor)
        with self._from_server:
            return [json.loads(line) for line in self._from_server]


@pytest.fixture
def piped() -> Iterator[PipedClient]:
    client = PipedClient()
    yield client
    if client._thread.is_alive():
        client.end()
