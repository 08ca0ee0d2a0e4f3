"""The pool: which worker serves a project, and what becomes of each call (spec 04 §6, §13)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping

import msgspec
from structlog.typing import FilteringBoundLogger

from maadd.pool.calls import not_ready, run_call
from maadd.pool.held_calls import QUEUE_RETRY_MS, OnPermit, OnProgress
from maadd.pool.policy import PoolPolicy
from maadd.pool.relay import Relay
from maadd.pool.remote_worker import RemoteWorker
from maadd.pool.router import Router
from maadd.pool.snapshot import (
    IdleWorker,
    SweepSnapshot,
    WorkerGauges,
    WorkerSnapshot,
    now_text,
)
from maadd.pool.spawn import Spawner
from maadd.pool.supervisor import Project, State, Supervisor
from maadd.pool.worker_handle import WorkerHandle
from maadd.protocol.control import FromOwner
from maadd.protocol.errors import MaadError, WireError, error_from_wire
from maadd.protocol.messages import Call, Event, Reply, ToFront, WorkerConfig, WorkerSettings
from maadd.protocol.ownership import Server

_SHUTTING_DOWN = WireError("SHUTTING_DOWN", "the server is shutting down")

_STALL_CHECKS = 3
"""A gap of more than this many intervals between checks: this process itself stood still."""


class WorkerPool:
    """All workers of one front. Every method belongs on the event loop's thread.

    `spawner` starts their processes, `endpoint` is the ZeroMQ endpoint in the claimed runtime
    directory; `on_event` hears of every changed record (project name, event). `server` is what
    its workers call this front.
    """

    def __init__(
        self,
        *,
        spawner: Spawner,
        endpoint: str,
        control_endpoint: str | None,
        settings: WorkerSettings,
        policy: PoolPolicy,
        on_event: Callable[[str, Event], None],
        log: FilteringBoundLogger,
        server: Server | None = None,
    ) -> None:
        self._endpoint = endpoint
        self.control_endpoint = control_endpoint
        """The socket that other processes reach this front's workers through."""
        self._server = server
        self._settings = settings
        self._policy = policy
        self._on_event = on_event
        self._log = log
        self._spawner = spawner
        self._served: Mapping[str, Project] | None = None
        self._supervisors: dict[str, Supervisor] = {}
        self._removed: dict[str, asyncio.Task[None]] = {}
        """By directory, the end of workers whose project is no longer served."""
        self._workers: dict[bytes, WorkerHandle] = {}
        self._generation = 0
        self._sweep = SweepSnapshot()
        self._checked = time.monotonic()
        self._router: Router | None = None
        self._duties: list[asyncio.Task[None]] = []
        self._warming: asyncio.Task[None] | None = None
        self._closing = False
        self.before_start: Callable[[], Awaitable[None]] = _nothing
        """Awaited before each start of a worker; a MaadError is the answer of those who wait."""

    async def start(self) -> None:
        """Bind the socket and launch the fork server; no worker starts yet."""
        # Each call sends at most itself and a Cancel.
        high_water = 2 * self._policy.worker_queue + 16
        self._router = Router(self._endpoint, self._receive, high_water=high_water, log=self._log)
        self._warming = asyncio.create_task(asyncio.to_thread(self._spawner.warm))
        self._duties = [
            asyncio.create_task(self._regularly(self._policy.check_interval_s, self._check)),
            asyncio.create_task(self._regularly(self._policy.sweep_interval_s, self._sweep_idle)),
        ]

    async def close(self, timeout_s: float | None = None) -> None:
        """Stop all workers, then the fork server, then the socket; safe to call twice.

        A worker drains, gets SIGTERM, and SIGKILL after `timeout_s` at the latest (default:
        the policy's waits). Calls that wait for a start are answered SHUTTING_DOWN.
        """
        if self._closing or self._router is None:
            return
        self._closing = True
        drain_s, term_s = self._stop_waits(timeout_s)
        if self._warming is not None:
            await asyncio.wait((self._warming,))
        for duty in self._duties:
            duty.cancel()
        await asyncio.gather(
            *(s.close(drain_s, term_s, _SHUTTING_DOWN) for s in self._supervisors.values()),
            *self._removed.values(),
        )
        if not self._workers:
            await asyncio.to_thread(self._spawner.stop)
        self._router.close()

    def abandon(self) -> None:
        """Answer every call now, as the drain of a server that ends has no more time: reads and
        what no worker has with SHUTTING_DOWN, writes that one has with WORKER_LOST."""
        for supervisor in self._supervisors.values():
            supervisor.abandon(_SHUTTING_DOWN)

    async def move_to(self, endpoint: str) -> None:
        """Have workers that start from now on connect to another endpoint of the runtime
        directory, which was made anew; those that run stay connected."""
        if self._router is not None:
            self._router.bind(endpoint)
            self._endpoint = endpoint
            await asyncio.to_thread(self._spawner.renew)

    def serve(self, projects: Mapping[str, Project]) -> None:
        """Serve these projects from now on: a call that chose another before is answered
        PROJECT_UNKNOWN. Without a table any project is served."""
        self._served = projects

    async def ensure_ready(self, project: Project, timeout_s: float) -> None:
        """Have the project's worker up within `timeout_s` seconds (spec 04 §6, step 11).

        The start's own errors, PROJECT_UNAVAILABLE, OVERLOADED (reason `workers`),
        SHUTTING_DOWN.
        """
        await self._supervisor(project).ready(timeout_s)

    def require_ready(self, project: Project) -> None:
        """RECEIPT_ENGINE_NOT_READY unless the project's worker is up; nothing is started."""
        supervisor = self._supervisor(project)
        if supervisor.worker is None or supervisor.state is not State.READY:
            raise not_ready(supervisor)

    def session_ended(self, session_id: str) -> None:
        """Have the workers let go of what they keep for a session."""
        for supervisor in self._supervisors.values():
            if supervisor.worker is not None:
                supervisor.worker.forget_session(session_id)

    async def call(
        self,
        project: Project,
        call: Call,
        *,
        is_write: bool,
        timeout_s: float,
        strict: bool = False,
        on_end: Callable[[], None] | None = None,
        on_progress: OnProgress | None = None,
        on_permit: OnPermit | None = None,
    ) -> Reply:
        """Have the project's worker perform `call` within `timeout_s` seconds (steps 15, 16).

        `strict`: only by a worker that is ready already, and never a second time. `on_end`
        is called exactly once, when the call has really ended: at the latest here for a call
        that ends in time, later for one whose worker is still busy with it. `on_progress`
        hears how far a long call is, for as long as its caller waits. `on_permit` is asked at
        the publish point of a write that must not be published without it.

        Errors: those of `ensure_ready`, OVERLOADED (reason `worker_queue`), REQUEST_TIMEOUT,
        WORKER_LOST, RECEIPT_ENGINE_NOT_READY. Failures of the tool are Replies.
        """
        try:
            supervisor = self._supervisor(project)
        except MaadError:
            if on_end is not None:
                on_end()
            raise
        return await run_call(
            supervisor,
            call,
            is_write=is_write,
            timeout_s=timeout_s,
            word_s=self._policy.cancel_answer_s,
            strict=strict,
            on_end=on_end,
            on_progress=on_progress,
            on_permit=on_permit,
        )

    def relay(self, project: Project, send: Callable[[FromOwner], None]) -> Relay:
        """The way of another front's, or a command's, calls to the project's worker; `send`
        takes what is to be told in return."""
        log = self._log.bind(project=project.name)
        return Relay(lambda: self._supervisor(project), send, log)

    async def stop_project(self, name: str) -> None:
        """Drain and end a project's worker; the next call starts it again."""
        supervisor = self._supervisors.get(name)
        if supervisor is not None:
            await supervisor.stop(self._policy.drain_s, self._policy.term_s)

    async def restart_project(self, project: Project, drain_s: float) -> None:
        """Have a project run under a changed configuration: its worker, if one is up, has
        `drain_s` seconds for what it holds and is followed by another. Returns at its end."""
        supervisor = self._supervisors.get(project.name)
        if supervisor is not None:
            await supervisor.restart(project, drain_s, self._policy.term_s)

    async def remove_project(self, name: str, drain_s: float) -> None:
        """End a project's worker for good: it has `drain_s` seconds for what it holds, calls that
        wait for it are answered PROJECT_UNKNOWN. Returns when the worker is gone."""
        supervisor = self._supervisors.pop(name, None)
        if supervisor is None:
            return
        refusal = _not_served(name).wire()
        ending = asyncio.create_task(supervisor.close(drain_s, self._policy.term_s, refusal))
        path = supervisor.project.path
        self._removed[path] = ending
        ending.add_done_callback(lambda _: self._removed.pop(path, None))
        await asyncio.shield(ending)

    def idle_workers(self) -> list[IdleWorker]:
        """The workers that nothing would be lost by closing, least recently used first."""
        return [
            IdleWorker(supervisor.project.name, supervisor.snapshot().rss_mb or 0.0)
            for supervisor in self._idle()
        ]

    async def evict_idle(self, at_most: int) -> list[str]:
        """Close up to `at_most` idle workers, least recently used first; their projects."""
        return await self._evict(self._idle()[:at_most])

    async def evict(self, projects: Collection[str]) -> list[str]:
        """Close the workers of these projects that are idle; whose they were."""
        return await self._evict([s for s in self._idle() if s.project.name in projects])

    @property
    def memory_limit_mb(self) -> int | None:
        """MiB above which a worker is replaced."""
        return self._policy.memory_limit_mb

    def in_flight(self) -> int:
        """Calls that workers hold, those included whose callers have given up."""
        borrowed = [s.worker for s in self._supervisors.values()]
        return sum(len(worker.calls) for worker in self._workers.values()) + sum(
            len(worker.calls) for worker in borrowed if isinstance(worker, RemoteWorker)
        )

    def queue_depth(self) -> int:
        """Calls that wait or run in the workers, by their last heartbeats."""
        beats = (worker.heartbeat for worker in self._workers.values())
        return sum(beat.queue_depth for beat in beats if beat is not None)

    @property
    def jobs_alone(self) -> int:
        """Background jobs of the workers that no call waits for."""
        return sum(worker.jobs_alone for worker in self._workers.values())

    def index_empty(self, project: Project) -> int | None:
        """How many Markdown files the ready worker found over an empty index at its start."""
        worker = self._supervisor(project).worker
        return None if worker is None else worker.index_empty

    def doc_types(self, project: Project) -> list[str] | None:
        """The types of a project by its worker's last heartbeat; None while there is none."""
        worker = self._supervisor(project).worker
        beat = None if worker is None else worker.heartbeat
        return None if beat is None else beat.doc_types

    def snapshot(self, project: Project) -> WorkerSnapshot:
        """The `worker` block of a project's health."""
        return self._supervisor(project).snapshot()

    def snapshots(self) -> dict[str, WorkerSnapshot]:
        """The same for every project that was ever called."""
        return {name: s.snapshot() for name, s in self._supervisors.items()}

    def gauges(self) -> dict[str, WorkerGauges]:
        """In figures, every project that was ever called."""
        return {name: s.gauges() for name, s in self._supervisors.items()}

    def sweep_snapshot(self) -> SweepSnapshot:
        """Counters of the idle sweep."""
        return self._sweep

    # -- Surroundings of the supervisors -------------------------------------------------

    def new_worker(self, project: Project, supervisor: Supervisor) -> WorkerHandle:
        """A handle of the next generation, known to the router."""
        if self._router is None:
            raise RuntimeError("the pool is not started")
        self._generation += 1
        settings = self._settings
        if supervisor.rebuilds:
            settings = msgspec.structs.replace(settings, boot_reindex=True)
        config = WorkerConfig(
            project=project.name,
            root=project.path,
            generation=self._generation,
            endpoint=self._endpoint,
            control_endpoint=self.control_endpoint,
            history=project.history,
            settings=settings,
            server=self._server,
            served=supervisor.served == project.path,
        )
        worker = WorkerHandle(config, self._router, self._policy, supervisor, self._log)
        self._workers[worker.identity] = worker
        return worker

    def forget_worker(self, worker: WorkerHandle) -> None:
        """The worker has ended; what it may still send is dropped."""
        self._workers.pop(worker.identity, None)

    async def make_room(self, supervisor: Supervisor) -> None:
        """Count one more live worker, after closing an idle one if there are too many.

        A directory that another project has just given up is waited for: its old worker still
        owns it.
        """
        await self.before_start()
        while (ending := self._removed.get(supervisor.project.path)) is not None:
            await asyncio.wait((ending,))
        while sum(s.occupies_room for s in self._supervisors.values()) >= self._policy.worker_max:
            if not await self.evict_idle(1):
                raise MaadError(
                    "OVERLOADED",
                    f"{self._policy.worker_max} projects are in use, as many as may be; "
                    "retry later or raise MAAD_WORKER_MAX",
                    {
                        "reason": "workers",
                        "limit": self._policy.worker_max,
                        "retryAfterMs": QUEUE_RETRY_MS,
                    },
                )
        supervisor.occupies_room = True

    def project_event(self, project: str, event: Event) -> None:
        """A record changed."""
        self._on_event(project, event)

    # -- inside --------------------------------------------------------------------------

    def _supervisor(self, project: Project) -> Supervisor:
        if self._served is not None:
            served = self._served.get(project.name)
            if served is None or served.path != project.path:
                raise _not_served(project.name)
            project = served
        supervisor = self._supervisors.get(project.name)
        if supervisor is None:
            if self._closing:
                raise error_from_wire(_SHUTTING_DOWN)
            supervisor = Supervisor(project, self, self._spawner, self._policy, self._log)
            self._supervisors[project.name] = supervisor
        return supervisor

    def _idle(self) -> list[Supervisor]:
        idle = [s for s in self._supervisors.values() if s.state is State.READY and s.is_idle()]
        return sorted(idle, key=lambda supervisor: supervisor.touched)

    def _receive(self, identity: bytes, message: ToFront) -> None:
        worker = self._workers.get(identity)
        if worker is not None:
            worker.receive(message)

    def _stop_waits(self, timeout_s: float | None) -> tuple[float, float]:
        drain_s, term_s = self._policy.drain_s, self._policy.term_s
        if timeout_s is None:
            return drain_s, term_s
        share = timeout_s / (drain_s + term_s)
        return drain_s * share, term_s * share

    async def _regularly(self, interval_s: float, duty: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                await duty()
            except Exception as error:
                self._log.error("pool_duty_failed", exc_info=error)

    async def _check(self) -> None:
        now = time.monotonic()
        stood_still = now - self._checked > _STALL_CHECKS * self._policy.check_interval_s
        self._checked = now
        if stood_still:
            for worker in self._workers.values():
                worker.grant_time(now)
        for supervisor in self._supervisors.values():
            supervisor.check(now)

    async def _sweep_idle(self) -> None:
        now, limit = time.monotonic(), self._policy.idle_timeout_s
        idle = [
            supervisor
            for supervisor in self._supervisors.values()
            if limit > 0 and supervisor.is_idle() and now - supervisor.touched >= limit
        ]
        await self._evict(idle)
        old = self._sweep
        self._sweep = SweepSnapshot(
            old.evictions_total,
            old.last_eviction_at,
            old.last_eviction_projects,
            old.sweeps_run + 1,
            now_text(),
        )

    async def _evict(self, supervisors: list[Supervisor]) -> list[str]:
        waits = self._policy.drain_s, self._policy.term_s

        async def close(supervisor: Supervisor) -> bool:
            # Once more, in the same step as the stop: a call may have come since it was chosen.
            if not supervisor.is_idle():
                return False
            await supervisor.stop(*waits)
            return True

        closed = await asyncio.gather(*map(close, supervisors))
        names = [s.project.name for s, done in zip(supervisors, closed, strict=True) if done]
        if not names:
            return []
        self._log.info("workers_evicted", projects=names)
        old = self._sweep
        self._sweep = SweepSnapshot(
            old.evictions_total + len(names),
            now_text(),
            tuple(names),
            old.sweeps_run,
            old.last_sweep_at,
        )
        return names


async def _nothing() -> None:
    """Everything is ready for a start."""


def _not_served(name: str) -> MaadError:
    return MaadError("PROJECT_UNKNOWN", f"project {name!r} is no longer served", {"project": name})
