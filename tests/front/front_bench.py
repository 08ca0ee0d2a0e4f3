"""The rooms of a front put together on the test's own loop, over a worker that holds calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import held_engine
import httpx2
import structlog
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from maadd.auth.issue import TokenSpec
from maadd.auth.record import ProjectGrant
from maadd.auth.registry import TokenRegistry
from maadd.config.instance import Instance, ProjectConfig
from maadd.config.settings import Settings
from maadd.front.state import RunningFront
from maadd.ops.meter import Meter
from maadd.pipeline.heavy import FreeMemory, HeavyGuard, heavy_limits
from maadd.pipeline.limits import Limiter, LimitSettings
from maadd.pipeline.pipeline import Pipeline
from maadd.pool.policy import PoolPolicy
from maadd.pool.pool import WorkerPool
from maadd.pool.runtime_dir import RuntimeDir
from maadd.pool.spawn import Spawner, WorkerProgram
from maadd.protocol.messages import HistorySettings
from maadd.protocol.roles import Role
from maadd.protocol.tools import registered_tools
from maadd.sessions.table import SessionLimits, SessionTable
from maadd.tools import sessions as session_tools
from maadd.tools.face import create_server
from maadd.transport.app import HttpApp
from maadd.transport.http_server import HttpServer
from maadd.transport.introduction import Introduction
from maadd.transport.peer import McpFace
from maadd.transport.stdio import StdioServer

PROJECT = "main"


class FrontBench:
    """A started front over one project."""

    def __init__(
        self,
        folder: Path,
        state: RunningFront,
        pool: WorkerPool,
        pipeline: Pipeline,
        sessions: SessionTable,
        log: Any,
    ) -> None:
        self.pool = pool
        self._folder = folder
        self._project = folder / PROJECT
        self._state = state
        self._sessions = sessions
        self._log = log
        introduction = Introduction("1", {"tools": {"listChanged": True}})
        self._face = McpFace(
            lambda: create_server(pipeline, version="1"), introduction, pipeline, log
        )

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
        """Let the held write go on."""
        await asyncio.to_thread((self._project / "gate").write_bytes, b"")

    @contextlib.asynccontextmanager
    async def http(self) -> AsyncIterator[Callable[[str], Client]]:
        """Serves HTTP inside; yields what makes SDK clients of an era."""
        tokens = TokenRegistry.load(str(self._folder / "_auth/tokens.yaml"))
        token = tokens.issue(TokenSpec(Role.ADMIN, (ProjectGrant("*"),))).plaintext
        settings = Settings(transport="http", http_port=0)
        app = HttpApp(
            state=self._state,
            settings=settings,
            tokens=tokens,
            sessions=self._sessions,
            face=self._face,
            log=self._log,
            meter=Meter(),
        )
        server = HttpServer(app, settings, self._sessions, self._log)
        await server.start()

        def client(mode: str) -> Client:
            web = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60)
            url = f"http://127.0.0.1:{server.port}/mcp"
            return Client(streamable_http_client(url, http_client=web), mode=mode)

        try:
            yield client
        finally:
            await server.close()

    @contextlib.asynccontextmanager
    async def stdio(self) -> AsyncIterator[Pipes]:
        """Serves one client on a pair of pipes inside."""
        reading, to_server = os.pipe()
        from_server, writing = os.pipe()
        server = StdioServer(
            face=self._face,
            sessions=self._sessions,
            settings=Settings(),
            log=self._log,
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


@contextlib.asynccontextmanager
async def opened_front(folder: Path, runtime_dir: str) -> AsyncIterator[FrontBench]:
    """A bench; the worker starts with the first call."""
    project = folder / PROJECT
    project.mkdir()
    os.mkfifo(project / "gate")
    history = HistorySettings("feed", None, "inferred")
    config = ProjectConfig(PROJECT, str(project), Role.ADMIN, None, history)
    state = RunningFront(Instance("test", "file", None, str(folder), {PROJECT: config}))
    settings = Settings()
    log = structlog.wrap_logger(
        structlog.PrintLogger(), wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR)
    )
    sessions = SessionTable(SessionLimits(10, 10, 3600), log)
    runtime = RuntimeDir.claim(runtime_dir, {"MAADD_RUNTIME_DIR": runtime_dir})
    program = WorkerProgram(held_engine.enter, ("maadd_worker.process.main",))
    pool = WorkerPool(
        spawner=Spawner(runtime.path, program),
        endpoint=runtime.workers_endpoint,
        control_endpoint=None,
        settings=settings.worker(),
        policy=PoolPolicy(drain_s=5, term_s=2),
        on_event=lambda _project, _event: None,
        log=log,
    )
    await pool.start()
    pipeline = Pipeline(
        state=state,
        settings=settings,
        tools=registered_tools(),
        sessions=sessions,
        limiter=Limiter(LimitSettings(100, 100, 100, 1_000_000, True), time.monotonic),
        heavy=HeavyGuard(heavy_limits(settings)),
        measure_memory=lambda _project: FreeMemory(None, None),
        pool=pool,
        tokens=None,
        engineless={"maad_use_project": session_tools.use_project},
        merge_health=lambda _caller, _project, report: report or b"{}",
        log=log,
        meter=Meter(),
        audit=lambda _event, _fields: None,
    )
    try:
        yield FrontBench(folder, state, pool, pipeline, sessions, log)
    finally:
        await pool.close()
        runtime.release()
