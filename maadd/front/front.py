"""The front process: builds every room once, serves, and ends in order (spec 04 §15, §19.1)."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from maadd import __version__
from maadd.auth.boot import check_bootable
from maadd.auth.record import TokenRecord
from maadd.auth.registry import TokenRegistry
from maadd.auth.timestamps import format_timestamp
from maadd.config.instance import Instance, ProjectConfig
from maadd.config.settings import Settings
from maadd.front.control import ControlServer
from maadd.front.drain import DrainEnd, drain
from maadd.front.health import FrontHealth, SessionCounts
from maadd.front.launch import Launched
from maadd.front.memory_pressure import (
    PressureGauge,
    PressureLimits,
    free_memory,
    watch_memory,
)
from maadd.front.metrics import Observed, serving_metrics
from maadd.front.reload import Reloader
from maadd.front.runtime_keeper import RuntimeKeeper
from maadd.front.session_hooks import make_sessions
from maadd.front.state import RunningFront
from maadd.front.token_follower import TokenFollower
from maadd.ops.audit import AuditLog
from maadd.ops.logs import capture_library_logs, log_channel_ready, open_ops_log
from maadd.ops.memory import cgroup_levels, cgroup_reader
from maadd.ops.meter import Meter
from maadd.ops.notify import ServiceNotifier
from maadd.pipeline.front_tools import EnginelessHandler
from maadd.pipeline.heavy import HeavyGuard, heavy_limits
from maadd.pipeline.limits import Limiter, limit_settings
from maadd.pipeline.pipeline import Pipeline
from maadd.pool.policy import PoolPolicy
from maadd.pool.pool import WorkerPool
from maadd.pool.runtime_dir import RuntimeDir
from maadd.protocol.errors import MaadError
from maadd.protocol.messages import Event
from maadd.protocol.ownership import STDIO_SERVER, Server, this_server
from maadd.protocol.tools import check_table, registered_tools
from maadd.sessions.notifier import ChangeNotifier
from maadd.sessions.session import CloseReason
from maadd.sessions.sweeper import sweep_sessions
from maadd.sessions.table import SessionTable
from maadd.tools import sessions as session_tools
from maadd.tools import subscriptions as subscription_tools
from maadd.tools.tokens import TOKEN_TOOLS, TokenTools, refuse_without_registry
from maadd.transport.introduction import CAPABILITIES, Introduction
from maadd.transport.peer import McpFace

if TYPE_CHECKING:
    from mcp.server.lowlevel.server import Server as McpServer

_STDIO_DRAIN_S = 1.0
_STDIO_STOP_S = 2.0
"""From the end of the input to the end of the last worker: nobody can be answered any longer, and
what is left of the history stays in the journal (spec 04 §10)."""
_FORCED_STOP_S = 0.5
"""What workers get to end in when somebody asked twice for it."""
_EAGER_START_S = 3600.0
"""A first start in single-project mode may rebuild a large index."""

_SESSION_TOOLS: dict[str, EnginelessHandler] = {
    "maad_projects": session_tools.projects,
    "maad_use_project": session_tools.use_project,
    "maad_use_projects": session_tools.use_projects,
    "maad_current_session": session_tools.current_session,
    "maad_unsubscribe": subscription_tools.unsubscribe,
}


class Front:
    """Everything that one daemon holds. `run` serves until a signal or the end of stdin."""

    def __init__(self, settings: Settings, instance: Instance, launched: Launched) -> None:
        self._settings = settings
        self._launched = launched
        self._state = RunningFront(instance)
        self._log = open_ops_log(
            settings.log_level, pretty=settings.log_pretty, sink=launched.stderr
        )
        self._audit = AuditLog.open(settings.audit_path, launched.stderr, self._on_audit_fault)
        self._meter = Meter()
        self._notifier = ServiceNotifier.from_environ(os.environ)
        self._signals: asyncio.Queue[str] = asyncio.Queue()
        self._tokens: TokenRegistry | None = None
        self._changes: ChangeNotifier | None = None
        self._follower: TokenFollower | None = None
        self._reloader: Reloader | None = None
        self._control: ControlServer | None = None
        self._reloading: set[asyncio.Task[None]] = set()
        self._read_cgroup = cgroup_reader(cgroup_levels())
        self._drained: DrainEnd | None = None
        self._input_ended_at: float | None = None

    async def run(self) -> int:
        """Start, serve, stop; the exit code. MaadError and MaadErrors refuse the start."""
        settings, instance = self._settings, self._state.instance
        check_table()
        log_channel_ready(self._log, settings.log_level, pretty=settings.log_pretty)
        capture_library_logs(self._log)
        for warning in instance.warnings:
            self._log.warning("instance_warning", message=warning)
        try:
            self._tokens = self._load_tokens()
            pool = self._make_pool()
            pool.serve(instance.projects)
            with self._launched.runtime.placing_sockets():
                await pool.start()
            try:
                return await self._serve(pool, self._launched.runtime)
            finally:
                await pool.close(self._time_for_workers())
                if self._control is not None:
                    await self._control.close()
        finally:
            self._audit.close()

    def _time_for_workers(self) -> float | None:
        """Seconds until workers that do not end are killed, None for the usual ones."""
        if self._drained is DrainEnd.FORCED:
            return _FORCED_STOP_S
        if self._input_ended_at is None:
            return None
        left = self._input_ended_at + _STDIO_STOP_S - time.monotonic()
        return max(_FORCED_STOP_S, left)

    def _load_tokens(self) -> TokenRegistry | None:
        settings, instance = self._settings, self._state.instance
        if instance.source != "file":
            return None
        registry = TokenRegistry.load(instance.tokens_path, lax_permissions=settings.auth_lax_perms)
        for warning in registry.warnings:
            self._log.warning("tokens_warning", message=warning)
        if settings.transport != "stdio":
            check_bootable(registry, legacy_token=settings.legacy_auth_token)
        return registry

    def _make_pool(self) -> WorkerPool:
        settings, runtime = self._settings, self._launched.runtime
        policy = PoolPolicy(
            worker_queue=settings.worker_queue,
            worker_max=settings.worker_max,
            memory_limit_mb=settings.worker_memory_mb,
            idle_timeout_s=settings.project_idle_timeout_ms / 1000,
            sweep_interval_s=settings.project_sweep_interval_ms / 1000,
            start_timeout_s=settings.worker_start_timeout_ms / 1000,
            attaches=settings.transport == "stdio",
        )
        return WorkerPool(
            spawner=self._launched.spawner,
            endpoint=runtime.workers_endpoint,
            control_endpoint=runtime.control_path,
            settings=settings.worker(),
            policy=policy,
            on_event=self._take_event,
            log=self._log,
            server=self._as_owner(),
        )

    def _as_owner(self) -> Server:
        """What others are told of this process while it has their project."""
        transport, instance = self._settings.transport, self._state.instance
        return this_server(
            STDIO_SERVER if transport == "stdio" else f"{transport} daemon",
            os.path.abspath(instance.config_path or instance.root),
            format_timestamp(self._state.started_at),
        )

    async def _serve(self, pool: WorkerPool, runtime: RuntimeDir) -> int:
        settings, state, inherited = self._settings, self._state, self._launched.inherited
        counts = SessionCounts()
        limiter = Limiter(limit_settings(settings), time.monotonic)
        sessions = make_sessions(
            settings, counts, limiter, pool, self._audit, self._meter, self._log
        )
        self._changes = ChangeNotifier(state, sessions, self._live_token, self._log)
        self._follower = self._make_follower(sessions)
        reloader = self._reloader = Reloader(
            state=state,
            settings=settings,
            sessions=sessions,
            pool=pool,
            follower=self._follower,
            log=self._log,
            audit=self._write_audit,
            notifier=self._notifier,
            on_change=self._let_go,
        )
        heavy = HeavyGuard(heavy_limits(settings), jobs_alone=lambda: pool.jobs_alone)
        pressure = PressureGauge(
            PressureLimits(
                settings.memory_pressure_interval_ms,
                settings.memory_pressure_ratio,
                settings.memory_pressure_cooldown_ms / 1000,
            )
        )
        health = FrontHealth(
            state,
            settings,
            sessions,
            counts,
            pool,
            heavy,
            pressure,
            reloader.counts,
            self._follower,
        )
        role = None if state.instance.source == "file" else settings.role
        pipeline = Pipeline(
            state=state,
            settings=settings,
            tools=registered_tools(role, settings.tools),
            sessions=sessions,
            limiter=limiter,
            heavy=heavy,
            measure_memory=lambda project: free_memory(pool, project, self._read_cgroup()),
            pool=pool,
            engineless=_SESSION_TOOLS | self._instance_tools(sessions, reloader, pool),
            tokens=self._tokens,
            merge_health=health.merge,
            log=self._log,
            audit=self._write_audit,
            meter=self._meter,
        )
        observed = Observed(
            state,
            self._meter,
            sessions,
            counts,
            pool,
            reloader.counts,
            lambda: pipeline.in_flight,
            lambda: {"ops": self._launched.stderr.lost, "audit": self._audit.lost},
        )
        self._install_signals()
        self._control = ControlServer(
            runtime.control_path,
            state=state,
            pool=pool,
            reloader=reloader,
            follower=self._follower,
            transport=settings.transport,
            log=self._log,
            audit=self._write_audit,
        )
        with runtime.placing_sockets():
            await self._control.start()
        keeper = RuntimeKeeper(runtime, pool, self._control, self._log)
        pool.before_start = keeper.check
        if state.instance.source != "file":
            (project,) = state.instance.projects.values()
            await self._open_eagerly(pool, project)
        duties = [
            asyncio.create_task(work)
            for work in (
                self._keep_sessions(sessions),
                self._feed_watchdog(),
                keeper.run(),
                watch_memory(pressure, pool, self._read_cgroup, self._log),
            )
        ]
        if self._follower is not None:
            duties.append(asyncio.create_task(self._follower.run()))
        for duty in duties:
            duty.add_done_callback(self._report_failure)
        try:
            async with serving_metrics(settings, inherited.metrics, observed, self._log):
                if settings.transport == "stdio":
                    return await self._serve_stdio(pipeline, sessions, pool)
                return await self._serve_http(pipeline, sessions, pool, health)
        finally:
            duties += self._reloading
            for task in duties:
                task.cancel()
            await asyncio.gather(*duties, return_exceptions=True)

    async def _open_eagerly(self, pool: WorkerPool, project: ProjectConfig) -> None:
        """Single-project mode opens its project at boot; what refuses it ends the start."""
        await pool.ensure_ready(project, _EAGER_START_S)
        found = pool.index_empty(project)
        if found is not None:
            raise MaadError(
                "INDEX_EMPTY",
                f"the index of {found} Markdown files is empty or was never finished; run "
                f"`maad reindex --project {project.path}` or start with MAAD_BOOT_REINDEX=1",
                {"onDiskMarkdownFiles": found},
            )

    async def _serve_stdio(
        self, pipeline: Pipeline, sessions: SessionTable, pool: WorkerPool
    ) -> int:
        from maadd.transport.stdio import StdioServer

        assert self._launched.stdio is not None
        reading, writing = self._launched.stdio
        server = StdioServer(
            face=self._make_face(pipeline, sessions),
            sessions=sessions,
            settings=self._settings,
            log=self._log,
            reading=reading,
            writing=writing,
        )
        serving = asyncio.create_task(server.run())
        self._notifier.ready()
        stopping = asyncio.create_task(self._wait_for_stop())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        input_ended = serving.done()
        if input_ended:
            self._input_ended_at = time.monotonic()
        code = await self._drain(pool, pipeline, _STDIO_DRAIN_S if input_ended else None)
        for task in (serving, stopping):
            task.cancel()
        await asyncio.gather(serving, stopping, return_exceptions=True)
        await server.close(CloseReason.CLIENT if input_ended else CloseReason.SHUTDOWN)
        if input_ended:
            serving.result()
            return 0
        return code

    def _make_face(self, pipeline: Pipeline, sessions: SessionTable) -> McpFace:
        settings, state = self._settings, self._state

        def make_server() -> McpServer[Any]:
            from maadd.front.mcp_server import make_mcp_server  # imports the SDK

            return make_mcp_server(pipeline, state, sessions, settings)

        introduction = Introduction(__version__, CAPABILITIES)
        return McpFace(
            make_server, introduction, pipeline, self._log, structured=settings.structured_content
        )

    async def _serve_http(
        self,
        pipeline: Pipeline,
        sessions: SessionTable,
        pool: WorkerPool,
        health: FrontHealth,
    ) -> int:
        from maadd.transport.app import HttpApp
        from maadd.transport.http_server import HttpServer

        settings = self._settings
        assert self._tokens is not None
        app = HttpApp(
            state=self._state,
            settings=settings,
            tokens=self._tokens,
            sessions=sessions,
            face=self._make_face(pipeline, sessions),
            log=self._log,
            meter=self._meter,
        )
        http = HttpServer(app, settings, sessions, self._log, self._launched.inherited.mcp)
        await http.start()
        health.port = http.port
        self._log.info(
            "listening",
            transport=settings.transport,
            host=settings.http_host if settings.transport == "http" else None,
            port=http.port,
            socket_path=http.socket_path,
        )
        self._notifier.ready(f"serving {len(self._state.instance.projects)} projects")
        await self._wait_for_stop()
        await http.stop_accepting()
        code = await self._drain(pool, pipeline)
        # What the drain did not see finished had its time.
        await http.close(at_once=code != 0)
        return code

    def _take_event(self, project: str, event: Event) -> None:
        if self._changes is not None:
            self._changes.take(project, event)
        if self._control is not None:
            self._control.take_event(project, event)

    def _let_go(self) -> None:
        if self._control is not None:
            self._control.let_go()

    def _live_token(self, token: TokenRecord) -> TokenRecord | None:
        registry = self._tokens
        if registry is None or registry.death_of(token) is not None:
            return None
        return registry.find(token.id)

    async def _keep_sessions(self, sessions: SessionTable) -> None:
        registry = self._tokens
        await sweep_sessions(
            sessions, lambda token: None if registry is None else registry.death_of(token)
        )

    def _make_follower(self, sessions: SessionTable) -> TokenFollower | None:
        if self._tokens is None:
            return None
        return TokenFollower(
            self._tokens,
            sessions,
            self._log,
            self._write_audit,
            poll_s=self._settings.tokens_poll_ms / 1000,
            watch=self._settings.watch == "auto",
        )

    def _instance_tools(
        self, sessions: SessionTable, reloader: Reloader, pool: WorkerPool
    ) -> dict[str, EnginelessHandler]:
        tools: dict[str, EnginelessHandler] = {
            "maad_subscribe": subscription_tools.subscribe_knowing(pool.doc_types),
            "maad_subscriptions": subscription_tools.inventory_of(sessions),
            "maad_instance_reload": reloader.answer_tool,
        }
        if self._tokens is None or self._follower is None:
            return tools | dict.fromkeys(TOKEN_TOOLS, refuse_without_registry)
        of_tokens = TokenTools(self._tokens, self._follower, self._settings, self._write_audit)
        return {**tools, **of_tokens.handlers()}

    def _write_audit(self, event: str, fields: dict[str, Any]) -> None:
        self._audit.write(event, **fields)

    def _on_audit_fault(self, reason: str | None) -> None:
        if reason is None:
            self._log.warning("audit_recovered", lines_lost=self._audit.lost)
        else:
            self._log.warning("audit_failed", path=self._audit.path, reason=reason)

    async def _feed_watchdog(self) -> None:
        interval = self._notifier.watchdog_s
        while interval:
            self._notifier.watchdog()
            await asyncio.sleep(interval / 2)

    # -- signals and the end -------------------------------------------------------------

    def _install_signals(self) -> None:
        loop = asyncio.get_running_loop()
        handlers: dict[signal.Signals, Callable[[], None]] = {
            signal.SIGTERM: lambda: self._signals.put_nowait("SIGTERM"),
            signal.SIGINT: lambda: self._signals.put_nowait("SIGINT"),
            signal.SIGHUP: lambda: self._signals.put_nowait("SIGHUP"),
            signal.SIGUSR1: self._audit.reopen,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)

    async def _wait_for_stop(self) -> None:
        while True:
            name = await self._signals.get()
            self._log.info("signal_received", signal=name)
            if name != "SIGHUP":
                return
            if self._reloader is not None and not self._state.draining:
                self._reload_on_signal(self._reloader)

    def _reload_on_signal(self, reloader: Reloader) -> None:
        """Reload beside everything else: the next signal may be the one that ends the server."""
        task = asyncio.create_task(reloader.on_sighup())
        self._reloading.add(task)
        task.add_done_callback(self._reloading.discard)
        task.add_done_callback(self._report_failure)

    def _report_failure(self, task: asyncio.Task[None]) -> None:
        """A task of the server's own that ended by an exception."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("front_duty_failed", exc_info=error)

    async def _drain(
        self, pool: WorkerPool, pipeline: Pipeline, limit_s: float | None = None
    ) -> int:
        """The exit code: 0 when what ran ended in time."""
        self._drained = await drain(
            pool,
            pipeline,
            self._control,
            limit_s=self._settings.shutdown_timeout_ms / 1000 if limit_s is None else limit_s,
            state=self._state,
            notifier=self._notifier,
            log=self._log,
            wait_for_stop=self._wait_for_stop,
        )
        return 0 if self._drained is DrainEnd.DONE else 1
