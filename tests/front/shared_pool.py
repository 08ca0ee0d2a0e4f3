"""The rooms of a front over a pool that several fronts of a test module share, each with limits of
its own, a clock and free memory that the test sets. Workers run `gated_engine`."""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import gated_engine

from maadd.auth.issue import TokenSpec
from maadd.auth.record import ProjectGrant
from maadd.auth.registry import TokenRegistry
from maadd.config.instance import Instance, ProjectConfig
from maadd.config.settings import Settings
from maadd.front.health import FrontHealth, SessionCounts
from maadd.front.memory_pressure import PressureGauge, PressureLimits
from maadd.front.reload import ReloadCounts
from maadd.front.session_hooks import make_sessions
from maadd.front.state import RunningFront
from maadd.ops.audit import AuditLog
from maadd.ops.meter import Meter
from maadd.pipeline.front_tools import EnginelessHandler
from maadd.pipeline.heavy import FreeMemory, HeavyGuard, heavy_limits
from maadd.pipeline.limits import Limiter, limit_settings
from maadd.pipeline.pipeline import Pipeline
from maadd.pool.policy import PoolPolicy
from maadd.pool.pool import WorkerPool
from maadd.pool.runtime_dir import RuntimeDir
from maadd.pool.spawn import Spawner, WorkerProgram
from maadd.protocol.messages import HistorySettings
from maadd.protocol.roles import Role
from maadd.protocol.tools import registered_tools
from maadd.tools import sessions as session_tools
from maadd.tools.face import create_server
from maadd.transport.app import HttpApp
from maadd.transport.http_server import HttpServer
from maadd.transport.introduction import Introduction
from maadd.transport.peer import McpFace

UNLIMITED = Settings(transport="http", http_port=0, rl_disable=True)

SESSION_TOOLS: Mapping[str, EnginelessHandler] = {
    "maad_use_project": session_tools.use_project,
    "maad_use_projects": session_tools.use_projects,
    "maad_current_session": session_tools.current_session,
}


class GatedProject:
    """The folder of a project, as far as its worker and the test talk through it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: BinaryIO | None = None
        path.mkdir()
        (path / "gate").touch()

    def calls(self) -> list[str]:
        """What the worker noted."""
        path = self.path / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def logged(self) -> list[dict[str, Any]]:
        """The lines of the worker's log."""
        return [json.loads(line) for line in (self.path / "log").read_text().splitlines()]

    def behave(self, behaviour: str) -> None:
        """How the starts from now on are to be."""
        (self.path / "behaviour").write_text(behaviour)

    def hold(self) -> None:
        """Have calls wait from now on."""
        self._held = (self.path / "gate").open("rb")
        fcntl.flock(self._held, fcntl.LOCK_EX)

    def let_go(self) -> None:
        """Let them go on."""
        if self._held is not None:
            self._held.close()
            self._held = None


class Rooms:
    """A front from its sockets to the pool, with a clock and free memory that the test sets."""

    def __init__(
        self,
        folder: Path,
        state: RunningFront,
        pool: WorkerPool,
        tokens: TokenRegistry,
        log: Any,
        settings: Settings = UNLIMITED,
        **engineless: EnginelessHandler,
    ) -> None:
        self.now = 1000.0
        self.free = FreeMemory(None, None)
        self.samples = 0
        """How often the free memory was asked for."""
        self.state, self.pool, self.log = state, pool, log
        self._settings = settings
        self._tokens = tokens
        self._meter = Meter()
        self._audit = AuditLog.open(str(folder / "audit.log"))
        counts = SessionCounts()
        limiter = Limiter(limit_settings(settings), self.clock)
        self._sessions = make_sessions(
            settings, counts, limiter, pool, self._audit, self._meter, log
        )
        heavy = HeavyGuard(heavy_limits(settings), self.clock)
        self.pressure = PressureGauge(
            PressureLimits(
                settings.memory_pressure_interval_ms,
                settings.memory_pressure_ratio,
                settings.memory_pressure_cooldown_ms / 1000,
            )
        )
        health = FrontHealth(
            state,
            settings,
            self._sessions,
            counts,
            pool,
            heavy,
            self.pressure,
            ReloadCounts(),
            None,
        )
        pipeline = Pipeline(
            state=state,
            settings=settings,
            tools=registered_tools(),
            sessions=self._sessions,
            limiter=limiter,
            heavy=heavy,
            measure_memory=self._measure,
            pool=pool,
            tokens=tokens,
            engineless={**SESSION_TOOLS, **engineless},
            merge_health=health.merge,
            log=log,
            meter=self._meter,
            audit=lambda event, fields: self._audit.write(event, **fields),
        )
        introduction = Introduction("1", {"tools": {"listChanged": True}})
        self._face = McpFace(
            lambda: create_server(pipeline, version="1"), introduction, pipeline, log
        )

    def clock(self) -> float:
        """The time by which this front counts, in seconds."""
        return self.now

    def _measure(self, _project: ProjectConfig) -> FreeMemory:
        self.samples += 1
        return self.free

    async def serve_http(self) -> HttpServer:
        """Listen on a free port."""
        app = HttpApp(
            state=self.state,
            settings=self._settings,
            tokens=self._tokens,
            sessions=self._sessions,
            face=self._face,
            log=self.log,
            meter=self._meter,
        )
        server = HttpServer(app, self._settings, self._sessions, self.log)
        await server.start()
        return server

    def close(self) -> None:
        self._audit.close()


@contextlib.asynccontextmanager
async def opened_pool(
    folder: Path, runtime_dir: str, log: Any, policy: PoolPolicy, *names: str
) -> AsyncIterator[tuple[RunningFront, WorkerPool, dict[str, GatedProject]]]:
    """A pool over new projects of these names; workers start with the first calls."""
    projects = {name: GatedProject(folder / name) for name in names}
    history = HistorySettings("feed", None, "inferred")
    configs = {
        name: ProjectConfig(name, str(project.path), Role.ADMIN, None, history)
        for name, project in projects.items()
    }
    state = RunningFront(Instance("test", "file", None, str(folder), configs))
    runtime = RuntimeDir.claim(runtime_dir, {"MAADD_RUNTIME_DIR": runtime_dir})
    program = WorkerProgram(gated_engine.enter, ("maadd_worker.process.main",))
    pool = WorkerPool(
        spawner=Spawner(runtime.path, program),
        endpoint=runtime.workers_endpoint,
        control_endpoint=None,
        settings=UNLIMITED.worker(),
        policy=policy,
        on_event=lambda _project, _event: None,
        log=log,
    )
    await pool.start()
    try:
        yield state, pool, projects
    finally:
        for project in projects.values():
            project.let_go()
        await pool.close()
        runtime.release()


def new_tokens(folder: Path) -> TokenRegistry:
    """An empty registry."""
    return TokenRegistry.load(str(folder / "_auth/tokens.yaml"))


def admin_token(tokens: TokenRegistry) -> str:
    """A new token for everything."""
    return tokens.issue(TokenSpec(Role.ADMIN, (ProjectGrant("*"),))).plaintext
