"""The rooms of a front put together on the test's own loop, over workers that hold calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import held_engine
import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from maadd.auth.issue import TokenSpec, parse_grants
from maadd.auth.registry import IssuedToken, TokenRegistry
from maadd.config.instance import Instance, load_instance
from maadd.config.settings import Settings
from maadd.front.reload import Reloader
from maadd.front.state import RunningFront
from maadd.front.token_follower import TokenFollower
from maadd.ops.meter import Meter
from maadd.ops.notify import ServiceNotifier
from maadd.pipeline.front_tools import EnginelessHandler
from maadd.pipeline.heavy import FreeMemory, HeavyGuard, heavy_limits
from maadd.pipeline.limits import Limiter, limit_settings
from maadd.pipeline.pipeline import Pipeline
from maadd.pool.policy import PoolPolicy
from maadd.pool.pool import WorkerPool
from maadd.pool.runtime_dir import RuntimeDir
from maadd.pool.spawn import Spawner, WorkerProgram
from maadd.protocol.roles import Role, parse_role
from maadd.protocol.tools import registered_tools
from maadd.sessions.table import SessionLimits, SessionTable
from maadd.tools import sessions as session_tools
from maadd.tools.face import create_server
from maadd.tools.tokens import TokenTools
from maadd.transport.app import HttpApp
from maadd.transport.http_server import HttpServer
from maadd.transport.introduction import Introduction
from maadd.transport.peer import McpFace
from maadd.transport.stdio import StdioServer

PROJECT = "main"


class FrontBench:
    """A started front. `now` is the clock of its sessions and limits, in seconds, which the test
    moves."""

    def __init__(
        self, folder: Path, runtime: RuntimeDir, roles: Mapping[str, Role], settings: Settings,
        log_into: Callable[[list[dict[str, Any]]], Any],
    ) -> None:  # fmt: skip
        self.now = 1000.0
        self.events: list[dict[str, Any]] = []
        self.closed: list[tuple[str, str]] = []
        self.folder = folder
        self.settings = settings
        self.log = log_into(self.events)
        self._project = folder / PROJECT
        self.state = RunningFront(self.declared(roles))
        limits = SessionLimits(
            settings.session_max, settings.session_max_per_token, settings.session_idle_ms / 1000
        )
        self.sessions = SessionTable(
            limits,
            self.log,
            clock=lambda: self.now,
            on_close=[lambda session, reason: self.closed.append((session.id, str(reason)))],
        )
        self.tokens = TokenRegistry.load(str(folder / "_auth/tokens.yaml"))
        self.follower = TokenFollower(
            self.tokens, self.sessions, self.log, lambda *_: None, poll_s=0, watch=False
        )
        program = WorkerProgram(held_engine.enter, ("maadd_worker.process.main",))
        self.pool = WorkerPool(
            spawner=Spawner(runtime.path, program),
            endpoint=runtime.workers_endpoint,
            control_endpoint=None,
            settings=settings.worker(),
            policy=PoolPolicy(drain_s=5, term_s=2),
            on_event=lambda _project, _event: None,
            log=self.log,
        )
        token_tools = TokenTools(self.tokens, self.follower, settings, lambda *_: None)
        reloader = Reloader(
            state=self.state,
            settings=settings,
            sessions=self.sessions,
            pool=self.pool,
            follower=self.follower,
            log=self.log,
            audit=lambda *_: None,
            notifier=ServiceNotifier(None, None),
            on_change=lambda: None,
        )
        pipeline = Pipeline(
            state=self.state,
            settings=settings,
            tools=registered_tools(),
            sessions=self.sessions,
            limiter=Limiter(limit_settings(settings), lambda: self.now),
            heavy=HeavyGuard(heavy_limits(settings)),
            measure_memory=lambda _project: FreeMemory(None, None),
            pool=self.pool,
            tokens=self.tokens,
            engineless={
                **SESSION_TOOLS,
                **token_tools.handlers(),
                "maad_instance_reload": reloader.answer_tool,
            },
            merge_health=lambda _caller, _project, report: report or b"{}",
            log=self.log,
            meter=Meter(),
            audit=lambda _event, _fields: None,
        )
        introduction = Introduction("1", {"tools": {"listChanged": True}})
        self._face = McpFace(
            lambda: create_server(pipeline, version="1"), introduction, pipeline, self.log
        )

    def declared(self, roles: Mapping[str, Role]) -> Instance:
        """The instance of these projects and ceilings, from its file, which is written anew."""
        lines = ["name: test", "projects:"]
        for name, role in roles.items():
            (self.folder / name).mkdir(exist_ok=True)
            lines.append(f"  - {{name: {name}, path: {name}, role: {role.text}}}")
        path = self.folder / "instance.yaml"
        path.write_text("\n".join(lines) + "\n")
        return load_instance(str(path), self.settings)

    def issue(self, text: str, **members: str) -> IssuedToken:
        """A token of role and grants, as in `admin *,vault:reader`."""
        role, _, grants = text.partition(" ")
        parsed = parse_role(role)
        assert parsed is not None
        return self.tokens.issue(TokenSpec(parsed, parse_grants(grants), **members))

    def logged(self, name: str) -> list[dict[str, Any]]:
        """The lines of that name."""
        return [event for event in self.events if event["event"] == name]

    def calls(self) -> list[str]:
        """What the worker noted."""
        path = self._project / "calls"
        return path.read_text().splitlines() if path.exists() else []

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for something that the worker does."""
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.005)

    async def noted(self, line: str) -> None:
        """Wait until the worker has noted this."""
        await self.until(lambda: line in self.calls())

    async def let_go(self) -> None:
        """Let the held call go on."""
        await asyncio.to_thread((self._project / "gate").write_bytes, b"")

    @contextlib.asynccontextmanager
    async def http(self) -> AsyncIterator[Callable[[str], Client]]:
        """Serves HTTP inside; yields what makes SDK clients of an era."""
        token = self.issue("admin *").plaintext

        async with self.listening() as url:

            def client(mode: str) -> Client:
                web = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60)
                return Client(streamable_http_client(url, http_client=web), mode=mode)

            yield client

    @contextlib.asynccontextmanager
    async def wire(self) -> AsyncIterator[Callable[[str], WireClient]]:
        """Serves HTTP inside; yields what makes clients of a bearer."""
        async with self.listening() as url, httpx2.AsyncClient(timeout=20) as web:
            yield lambda bearer: WireClient(web, url, bearer)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Serves HTTP inside; yields the address."""
        app = HttpApp(
            state=self.state,
            settings=self.settings,
            tokens=self.tokens,
            sessions=self.sessions,
            face=self._face,
            log=self.log,
            meter=Meter(),
        )
        server = HttpServer(app, self.settings, self.sessions, self.log)
        await server.start()
        try:
            yield f"http://127.0.0.1:{server.port}/mcp"
        finally:
            await server.close()

    @contextlib.asynccontextmanager
    async def stdio(self) -> AsyncIterator[Pipes]:
        """Serves one client on a pair of pipes inside."""
        reading, to_server = os.pipe()
        from_server, writing = os.pipe()
        server = StdioServer(
            face=self._face,
            sessions=self.sessions,
            settings=self.settings,
            log=self.log,
            reading=reading,
            writing=writing,
        )
        serving = asyncio.create_task(server.run())
        with Pipes(to_server, from_server) as pipes:
            yield pipes
        await serving
        await server.close()
        for descriptor in (reading, writing):
            os.close(descriptor)


class Pipes:
    """The client's ends: messages as lines."""

    def __init__(self, to_server: int, from_server: int) -> None:
        self._out = os.fdopen(to_server, "wb", buffering=0)
        self._in = os.fdopen(from_server, "rb")

    def __enter__(self) -> Pipes:
        return self

    def __exit__(self, *_: object) -> None:
        self._out.close()

    def send(self, **message: Any) -> None:
        self._out.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def receive(self) -> Any:
        return json.loads(await asyncio.to_thread(self._in.readline))


class WireClient:
    """Sends what it is told to, as JSON that is answered in JSON."""

    def __init__(self, web: httpx2.AsyncClient, url: str, bearer: str) -> None:
        self._web = web
        self._url = url
        self.number = 0
        self.headers = {"Authorization": f"Bearer {bearer}", "Accept": "application/json"}

    @property
    def session(self) -> str:
        """The id of its session."""
        return self.headers["Mcp-Session-Id"]

    async def post(self, method: str, params: dict[str, Any], **headers: str) -> httpx2.Response:
        """One request, with the next `number`."""
        self.number += 1
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        return await self._web.post(self._url, json=message, headers=self.headers | headers)

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """One notification."""
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        answer = await self._web.post(self._url, json=message, headers=self.headers)
        assert answer.status_code == 202

    async def hello(self, **headers: str) -> httpx2.Response:
        """`initialize`; the session that it opened, if it did, is the client's from now on."""
        self.headers.pop("Mcp-Session-Id", None)
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        answer = await self.post("initialize", params, **headers)
        if answer.status_code == 200:
            self.headers["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
        return answer

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The envelope of a tool call."""
        answer = await self.post("tools/call", {"name": tool, "arguments": arguments})
        assert answer.status_code == 200, answer.text
        result = answer.json()["result"]
        envelope: dict[str, Any] = json.loads(result["content"][0]["text"])
        assert result.get("isError", False) is not envelope["ok"]
        return envelope

    async def data(self, tool: str, **arguments: Any) -> Any:
        """What a call that succeeds answers."""
        envelope = await self.call(tool, **arguments)
        assert envelope["ok"], envelope
        return envelope["data"]

    async def error(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The one error of a call that fails."""
        envelope = await self.call(tool, **arguments)
        assert not envelope["ok"], envelope
        (error,) = envelope["errors"]
        return error

    async def code(self, tool: str, **arguments: Any) -> str | None:
        """The code of a call's error; None when it succeeds."""
        envelope = await self.call(tool, **arguments)
        return None if envelope["ok"] else envelope["errors"][0]["code"]

    async def ping(self) -> int:
        """The status of a request that changes nothing."""
        return (await self.post("ping", {})).status_code

    @contextlib.asynccontextmanager
    async def stream(self) -> AsyncIterator[httpx2.Response]:
        """The standing stream of the session."""
        headers = {**self.headers, "Accept": "text/event-stream"}
        async with self._web.stream("GET", self._url, headers=headers) as answer:
            assert answer.status_code == 200
            yield answer


SESSION_TOOLS: dict[str, EnginelessHandler] = {
    "maad_projects": session_tools.projects,
    "maad_use_project": session_tools.use_project,
    "maad_use_projects": session_tools.use_projects,
    "maad_current_session": session_tools.current_session,
}


@contextlib.asynccontextmanager
async def opened_front(
    folder: Path,
    runtime_dir: str,
    log_into: Callable[[list[dict[str, Any]]], Any],
    roles: Mapping[str, Role] | None = None,
    **settings: Any,
) -> AsyncIterator[FrontBench]:
    """A bench of projects with these ceilings, `main` alone unless given; a worker starts with
    the first call."""
    runtime = RuntimeDir.claim(runtime_dir, {"MAADD_RUNTIME_DIR": runtime_dir})
    chosen = Settings(**{"transport": "http", "http_port": 0, "rl_disable": True} | settings)
    bench = FrontBench(folder, runtime, roles or {PROJECT: Role.ADMIN}, chosen, log_into)
    os.mkfifo(folder / next(iter(bench.state.instance.projects)) / "gate")
    await bench.pool.start()
    try:
        yield bench
    finally:
        await bench.pool.close()
        runtime.release()
