"""Keeps one project's worker up: starts it, starts it again, gives up for a while, stops it.

Where another process may own the project, its worker does instead for as long as it lives.
"""

from __future__ import annotations

import asyncio
import enum
import math
import time
from typing import Protocol

import msgspec
from structlog.typing import FilteringBoundLogger

from maadd.pool.policy import PoolPolicy
from maadd.pool.remote_worker import RemoteWorker, find_owner
from maadd.pool.restart_policy import RestartPolicy
from maadd.pool.snapshot import WorkerExit, WorkerGauges, WorkerSnapshot, now_text
from maadd.pool.spawn import Spawner
from maadd.pool.worker_handle import Stage, Staged, WorkerHandle
from maadd.protocol.errors import MaadError, MaadErrors, WireError, error_from_wire
from maadd.protocol.messages import RESYNC, Event, HistorySettings
from maadd.protocol.ownership import last_owner, read_owner

_START_RETRY_MS = 1_000
_CONTENDED_S = 0.1
"""Pause after another process was quicker to own the project."""

Worker = WorkerHandle | RemoteWorker


class Project(Protocol):
    """What the pool needs to know of a project; `maadd.config`'s ProjectConfig is one."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def history(self) -> HistorySettings: ...


class State(enum.Enum):
    """Of a project, as health shows it (spec 04 §13)."""

    ABSENT = "absent"
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    BACKOFF = "backoff"
    FAILED = "failed"


class _StartFailure(msgspec.Struct, frozen=True):
    errors: list[WireError]
    valid_until: float


class Surroundings(Protocol):
    """What a supervisor asks of the pool."""

    @property
    def control_endpoint(self) -> str | None:
        """This front's own control socket."""
        ...

    def new_worker(self, project: Project, supervisor: Supervisor) -> WorkerHandle:
        """A handle of the next generation, known to the router."""
        ...

    def forget_worker(self, worker: WorkerHandle) -> None:
        """The worker has ended."""
        ...

    async def make_room(self, supervisor: Supervisor) -> None:
        """Return when one more worker may start, and count it; OVERLOADED when none may."""
        ...

    def project_event(self, project: str, event: Event) -> None:
        """A record of the project changed."""
        ...


class Supervisor:
    """One project's worker through all its starts. Lives on the event loop."""

    def __init__(
        self,
        project: Project,
        surroundings: Surroundings,
        spawner: Spawner,
        policy: PoolPolicy,
        log: FilteringBoundLogger,
    ) -> None:
        self.project = project
        """As configured; the next start uses it."""
        self.state = State.ABSENT
        self.worker: Worker | None = None
        self.touched = time.monotonic()
        self.occupies_room = False
        """Whether it counts as a live worker."""
        self.rebuilds = False
        """Whether the next worker makes a missing index anew instead of refusing to serve."""
        self.served: str | None = None
        """The folder that a worker has served."""
        self._surroundings = surroundings
        self._spawner = spawner
        self._policy = policy
        self._log = log.bind(project=project.name)
        self._restarts = RestartPolicy(policy.restart)
        self._restart_count = 0
        self._next_start = 0.0
        self._failure: _StartFailure | None = None
        self._last_error: WireError | None = None
        self._last_exit: WorkerExit | None = None
        self._locked_until: float | None = None
        """Until when an owner that cannot be reached is waited for."""
        self._recycled_at = -math.inf
        self._recycling = False
        self._stopping = False
        self._refusal: WireError | None = None
        """What every call is answered once the supervisor is closed."""
        self._stop_asked = asyncio.Event()
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    # -- for callers ---------------------------------------------------------------------

    async def ready(self, timeout_s: float) -> Worker:
        """The ready worker, started if need be and shared by all who wait.

        The start's own errors; PROJECT_UNAVAILABLE `{state, retryAfterMs}` when it cannot
        be up within `timeout_s`, and at once when the project is failed.
        """
        deadline = time.monotonic() + timeout_s
        earlier = self._failure
        while True:
            self.touched = now = time.monotonic()
            if self._refusal is not None:
                raise error_from_wire(self._refusal)
            if self.state is State.READY and self.worker is not None:
                return self.worker
            failure = self._failure
            if failure is not None and (now < failure.valid_until or failure is not earlier):
                raise _as_exception(failure.errors)
            if self.state is State.FAILED:
                raise self.unavailable()
            if self.state is State.BACKOFF and self._next_start > deadline:
                raise self.unavailable()
            if now >= deadline:
                raise self.unavailable()
            if self._task is None:
                self._task = asyncio.create_task(self._supervise())
            await asyncio.wait((self._changed,), timeout=deadline - now)

    def unavailable(self) -> MaadError:
        """PROJECT_UNAVAILABLE as things are now."""
        wait_ms = _START_RETRY_MS
        if self.state in (State.BACKOFF, State.FAILED):
            wait_ms = max(1, math.ceil((self._next_start - time.monotonic()) * 1000))
        return MaadError(
            "PROJECT_UNAVAILABLE",
            f'the worker of project "{self.project.name}" is {self.state.value}; retry later',
            {"state": self.state.value, "retryAfterMs": wait_ms},
        )

    def is_idle(self) -> bool:
        """Whether nothing would be lost by stopping it. Another front's worker tells of changes."""
        if isinstance(self.worker, RemoteWorker):
            return False
        if self._stopping or self.state not in (State.READY, State.BACKOFF, State.FAILED):
            return False
        return self.worker is None or not (self.worker.calls or self.worker.jobs_alone)

    def snapshot(self) -> WorkerSnapshot:
        """The `worker` block of health."""
        worker = self.worker
        beat = None if worker is None else worker.heartbeat
        return WorkerSnapshot(
            pid=None if worker is None else worker.pid,
            state=self.state.value,
            started_at=None if worker is None else worker.started_at,
            restarts=self._restart_count,
            last_heartbeat_at=None if worker is None else worker.last_heartbeat_at,
            rss_mb=None if beat is None else round(beat.rss_bytes / 1_048_576, 1),
            queue_depth=0 if beat is None else beat.queue_depth,
            last_error=self._last_error,
            last_exit=self._last_exit,
        )

    def gauges(self) -> WorkerGauges:
        """The worker in figures."""
        worker = self.worker
        held = 0 if worker is None else len(worker.calls)
        beat = None if worker is None else worker.heartbeat
        if beat is None:
            return WorkerGauges(self.state.value, self._restart_count, held)
        return WorkerGauges(
            self.state.value,
            self._restart_count,
            held,
            beat.rss_bytes,
            beat.queue_depth,
            beat.pending_history,
            beat.pending_changes,
        )

    # -- for the pool --------------------------------------------------------------------

    async def stop(self, drain_s: float, term_s: float) -> None:
        """Drain and end the worker, and cancel a restart that is due. The next call starts."""
        task = self._task
        if task is None:
            return
        self._stopping = True
        self._stop_asked.set()
        if self.worker is not None:
            await self.worker.stop(drain_s, term_s)
        await asyncio.wait((task,), timeout=self._policy.kill_s)

    async def restart(self, project: Project, drain_s: float, term_s: float) -> None:
        """Have the worker run as `project` says: one that is up drains and is followed by
        another, one that is not starts that way when it is needed."""
        self.project = project
        self._failure = None
        if self.worker is not None and not self._stopping:
            self._recycling = True
            await self.worker.stop(drain_s, term_s)

    def abandon(self, refusal: WireError) -> None:
        """Let nobody wait any longer: calls that wait for a start are answered
        `refusal`, those that the worker has are ABANDONED."""
        self._refusal = refusal
        self._tell_waiting()
        if self.worker is not None:
            self.worker.calls.abandon_all()

    async def close(self, drain_s: float, term_s: float, refusal: WireError) -> None:
        """Stop for good: calls that come or wait are answered `refusal`."""
        self._refusal = refusal
        await self.stop(drain_s, term_s)

    def check(self, now: float) -> None:
        """Once in a while: look for a silent worker and for one that grew too large."""
        worker = self.worker
        if worker is None:
            return
        worker.check(now)
        limit = self._policy.memory_limit_mb
        if limit is None or worker.heartbeat is None or self.state is not State.READY:
            return
        rss_mb = worker.heartbeat.rss_bytes / 1_048_576
        if rss_mb > limit and now - self._recycled_at >= self._policy.recycle_interval_s:
            self._recycled_at = now
            self._recycling = True
            self._log.warning(
                "worker_recycled",
                rss_mb=round(rss_mb, 1),
                limit_mb=limit,
            )
            worker.drain()

    # -- Listener ------------------------------------------------------------------------

    def worker_changed(self, worker: Staged) -> None:
        """The worker's stage changed."""
        if worker is not self.worker:
            return
        if worker.stage is Stage.READY:
            self._restarts.ready(time.monotonic())
            self._locked_until = None
            self._last_error = None
            self.rebuilds = False
            self.served = self.project.path
            self._become(State.READY)
        else:
            self._become(State.DRAINING)

    def worker_event(self, event: Event) -> None:
        """A record changed."""
        self._surroundings.project_event(self.project.name, event)

    # -- life ----------------------------------------------------------------------------

    async def _supervise(self) -> None:
        try:
            while await self._one_life() and not self._stopping:
                self.occupies_room = False
        except Exception as error:
            self._log.error("supervisor_failed", exc_info=error)
            self._fail([WireError("INTERNAL", "the worker could not be started; see the log")])
        finally:
            self.occupies_room = False
            self._task = None
            self.worker = None
            if self._stopping:
                self._restarts.forget()
            self._stopping = False
            self._stop_asked.clear()
            self._become(State.ABSENT)

    async def _one_life(self) -> bool:
        """Start a worker and see it through to its end. True: another one is to follow."""
        self._become(State.STARTING)
        if self._policy.attaches:
            owner = await self._find_owner()
            if self._stopping or owner is not None:
                return await self._borrow(owner)
        try:
            await self._surroundings.make_room(self)
        except MaadError as refusal:
            # Told to those who wait; the next caller may have more luck.
            self._fail([refusal.wire()], ttl_s=0)
            return False
        if self._stopping:
            return False
        self._recycling = False
        worker = self._surroundings.new_worker(self.project, self)
        self.worker = worker
        try:
            await worker.launch(self._spawner)
            end = await worker.ended
        finally:
            self._surroundings.forget_worker(worker)
            self.worker = None
        self._last_exit = end or self._last_exit
        if worker.failure is not None:
            return await self._refused(worker.failure)
        self.rebuilds = self.rebuilds or worker.displaced
        if self._stopping or self._recycling:
            return self._recycling
        if worker.displaced:
            self._tell_resync()
            return True
        if worker.said_goodbye and end is not None and end.code in (0, None) and not end.signal:
            # Told to end by somebody else. A caller that waits has it started again.
            return False
        self.occupies_room = False
        await self._mourn(worker, end)
        return True

    async def _find_owner(self) -> RemoteWorker | None:
        """The worker of another process that owns the project, if there is one."""
        if self._locked_until is None:
            self._locked_until = time.monotonic() + self._policy.attach_wait_s
        finding = asyncio.create_task(
            find_owner(
                self.project.path,
                self.project.name,
                self._surroundings.control_endpoint,
                self._locked_until,
                self._policy,
                self,
                self._log,
            )
        )
        stopped = asyncio.create_task(self._stop_asked.wait())
        await asyncio.wait((finding, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not finding.done():
            finding.cancel()
            await asyncio.wait((finding,))
        return None if finding.cancelled() else finding.result()

    async def _borrow(self, owner: RemoteWorker | None) -> bool:
        """Use another front's worker to its end. True: the search is to begin again."""
        if owner is None or self._stopping:
            if owner is not None:
                await owner.stop(0, 0)
            return False
        self._recycling = False
        self.worker = owner
        owner.begin()
        try:
            await owner.ended
        finally:
            self.worker = None
        if owner.failure is not None:
            return await self._refused(owner.failure)
        if self._stopping:
            return self._recycling
        # What it had to tell at its end is not known here.
        self._tell_resync()
        return True

    def _tell_resync(self) -> None:
        self.worker_event(Event(0, RESYNC, "", "", now_text(), "tool"))

    async def _refused(self, errors: list[WireError]) -> bool:
        """The project could not be opened. True: the process that has it is to be found, or is a
        command without a control socket, which is over soon."""
        until = self._locked_until or time.monotonic() + self._policy.attach_wait_s
        self._locked_until = None
        if errors[0].code == "PROJECT_LOCKED" and time.monotonic() < until:
            owner = await asyncio.to_thread(last_owner, self.project.path)
            if self._policy.attaches or owner.endpoint is None:
                self._locked_until = until
                await self._until_free(until)
                return not self._stopping
        self._fail(errors)
        return False

    async def _until_free(self, deadline: float) -> None:
        """Wait for the end of a command that owns the project."""
        await self._pause(_CONTENDED_S)
        while not self._policy.attaches and time.monotonic() < deadline and not self._stopping:
            if await asyncio.to_thread(read_owner, self.project.path) is None:
                return
            await self._pause(_CONTENDED_S)

    async def _pause(self, seconds: float) -> None:
        """Wait, but not for longer than until somebody asks for the end."""
        try:
            await asyncio.wait_for(self._stop_asked.wait(), seconds)
        except TimeoutError:
            return

    async def _mourn(self, worker: WorkerHandle, end: WorkerExit | None) -> None:
        """Wait out the back-off after a death."""
        restart = self._restarts.died(time.monotonic())
        self._restart_count += 1
        self._next_start = time.monotonic() + restart.delay_s
        how = worker.death or _describe(end)
        self._last_error = WireError("WORKER_LOST", f"the worker ended: {how}")
        self._log.error(
            "worker_died",
            worker_pid=worker.pid,
            reason=how,
            retry_in_ms=round(restart.delay_s * 1000),
            failed=restart.failed,
        )
        self._become(State.FAILED if restart.failed else State.BACKOFF)
        await self._pause(restart.delay_s)

    def _fail(self, errors: list[WireError], ttl_s: float | None = None) -> None:
        ttl = self._policy.start_failure_ttl_s if ttl_s is None else ttl_s
        self._failure = _StartFailure(errors, time.monotonic() + ttl)
        self._last_error = errors[0]
        self._log.error(
            "worker_start_failed",
            code=errors[0].code,
            message=errors[0].message,
        )

    def _become(self, state: State) -> None:
        if state is self.state and state is not State.ABSENT:
            return
        self.state = state
        self._tell_waiting()

    def _tell_waiting(self) -> None:
        self._changed.set_result(None)
        self._changed = asyncio.get_running_loop().create_future()


def _describe(end: WorkerExit | None) -> str:
    if end is None:
        return "it could not be started"
    if end.signal is not None:
        return f"by {end.signal}"
    return f"with exit code {end.code}" if end.code is not None else "for an unknown reason"


def _as_exception(errors: list[WireError]) -> MaadError | MaadErrors:
    found = [error_from_wire(error) for error in errors]
    return found[0] if len(found) == 1 else MaadErrors(found)
