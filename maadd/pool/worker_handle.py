"""One start of one worker: its process, its messages, the calls it holds, its end."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import signal
import time
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from maadd.pool.held_calls import CallEnd, HeldCalls, PendingCall, Terms
from maadd.pool.policy import PoolPolicy
from maadd.pool.router import PeerFull, PeerGone, Router
from maadd.pool.snapshot import WorkerExit, now_text
from maadd.pool.spawn import Spawner, WorkerProcess
from maadd.protocol.errors import WireError
from maadd.protocol.messages import (
    EXIT_NOT_OPENED,
    Bye,
    Call,
    CallProgress,
    Cancel,
    Cancelled,
    Drain,
    Event,
    Failed,
    Heartbeat,
    Hello,
    Permit,
    PermitRequest,
    Ready,
    Reply,
    SessionEnded,
    ToFront,
    WorkerConfig,
)


class Stage(enum.Enum):
    """How far a worker process is in its life."""

    STARTING = "starting"
    READY = "ready"
    LEAVING = "leaving"
    """It takes no more calls: it drains, was told to end, or cannot be reached."""
    ENDED = "ended"


class Staged(Protocol):
    """A worker, as far as whoever follows its life has to know it."""

    @property
    def stage(self) -> Stage: ...


class Listener(Protocol):
    """Who follows a worker's life."""

    def worker_changed(self, worker: Staged) -> None:
        """The stage changed."""
        ...

    def worker_event(self, event: Event) -> None:
        """A record changed."""
        ...


class WorkerHandle:
    """Made before the process exists, because its first message may come at any time."""

    def __init__(
        self,
        config: WorkerConfig,
        router: Router,
        policy: PoolPolicy,
        listener: Listener,
        log: FilteringBoundLogger,
    ) -> None:
        self.identity = config.wire_identity
        self.project = config.project
        self.stage = Stage.STARTING
        self.failure: list[WireError] | None = None
        """Why the project could not be opened, from the worker itself."""
        self.index_empty: int | None = None
        """Markdown files over an empty index, as found at the start."""
        self.said_goodbye = False
        self.displaced = False
        """Whether it left because its files were taken away."""
        self.pid: int | None = None
        self.started_at = now_text()
        self.last_heartbeat_at: str | None = None
        self.heartbeat: Heartbeat | None = None
        self.death: str | None = None
        """Why this side killed it."""
        self.ended: asyncio.Future[WorkerExit | None]
        self._config = config
        self._router = router
        self._policy = policy
        self._listener = listener
        self._log = log.bind(project=config.project)
        self.calls = HeldCalls(config.project, policy.worker_queue, self._log)
        self._loop = asyncio.get_running_loop()
        self.ended = self._loop.create_future()
        self._heard = time.monotonic()
        self._process: WorkerProcess | None = None
        self._stop_asked = False
        self._farewell = asyncio.Event()
        """Its last message is here."""
        self._collecting: asyncio.Task[None] | None = None

    # -- process -------------------------------------------------------------------------

    async def launch(self, spawner: Spawner) -> None:
        """Start the process. A failure to do so is an end like any other."""
        try:
            process = await asyncio.to_thread(spawner.start, self._config)
        except Exception as error:
            self._log.error("worker_not_started", exc_info=error)
            self._finish(None)
            return
        self._process = process
        self.pid = process.pid
        self._heard = time.monotonic()
        self._loop.add_reader(process.end_fd, self._process_ended)
        self._log.info("worker_started", worker_pid=process.pid)
        if self._stop_asked:
            self._signal(signal.SIGKILL)

    def kill(self, reason: str) -> None:
        """End the process at once."""
        if self.death is None and self.stage is not Stage.ENDED:
            self.death = reason
            self._log.warning("worker_killed", worker_pid=self.pid, reason=reason)
        self._signal(signal.SIGKILL)
        self._leave()

    async def stop(self, drain_s: float, term_s: float) -> None:
        """Ask, then SIGTERM after `drain_s`, then SIGKILL after `term_s` more."""
        self._stop_asked = True
        self._leave()
        if self.pid is None or self.heartbeat is None:
            # Nothing was accepted yet, and nobody may be listening.
            self._signal(signal.SIGTERM)
        else:
            self._tell(Drain())
        if await self._ends_within(drain_s):
            return
        self._log.warning("worker_stop_slow", worker_pid=self.pid)
        self._signal(signal.SIGTERM)
        if await self._ends_within(term_s):
            return
        self.kill("did not stop in time")
        if not await self._ends_within(self._policy.kill_s):
            self._log.error("worker_unkillable", worker_pid=self.pid)

    def drain(self) -> None:
        """Ask the worker to finish what it has and end, without any pressure."""
        self._leave()
        self._tell(Drain())

    def check(self, now: float) -> None:
        """Kill a worker that has been silent for too long."""
        silent = now - self._heard
        if self.stage is Stage.STARTING:
            if self._process is not None and silent > self._policy.start_timeout_s:
                self.kill(f"no sign of life for {silent:.0f} s while starting")
        elif self.stage is not Stage.ENDED and silent > self._policy.heartbeat_limit_s:
            self.kill(f"no heartbeat for {silent:.0f} s")

    def grant_time(self, now: float) -> None:
        """This process itself stood still, so the worker's silence says nothing."""
        self._heard = now

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self.stage is not Stage.ENDED:
            self._process.signal(number)

    async def _ends_within(self, seconds: float) -> bool:
        await asyncio.wait((self.ended,), timeout=seconds)
        return self.ended.done()

    def _process_ended(self) -> None:
        if self._process is not None:
            self._loop.remove_reader(self._process.end_fd)
            self._collecting = self._loop.create_task(self._collect(self._process))

    async def _collect(self, process: WorkerProcess) -> None:
        code = await asyncio.to_thread(process.collect)
        self._router.drain()
        # Answers that were sent just before the end may still be on their way.
        in_order = code in (0, EXIT_NOT_OPENED)
        patience_s = self._policy.farewell_s if in_order else self._policy.last_words_s
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._farewell.wait(), patience_s)
        self._router.drain()
        died_of = signal.Signals(-code).name if code is not None and code < 0 else None
        if died_of == "SIGKILL" and self.death is None and not self._stop_asked:
            self._log.error(
                "worker_killed_from_outside",
                worker_pid=self.pid,
                hint="perhaps the system ran out of memory; see the kernel's log",
            )
        exit_code = code if code is not None and code >= 0 else None
        self._finish(WorkerExit(now_text(), exit_code, died_of))

    def _finish(self, end: WorkerExit | None) -> None:
        self.stage = Stage.ENDED
        self.calls.lose_all()
        self.ended.set_result(end)
        self._listener.worker_changed(self)

    def _leave(self) -> None:
        if self.stage in (Stage.STARTING, Stage.READY):
            self.stage = Stage.LEAVING
            self._listener.worker_changed(self)

    # -- calls ---------------------------------------------------------------------------

    def dispatch(self, call: Call, terms: Terms) -> PendingCall:
        """Hand a call over; OVERLOADED when the worker holds as many as it may.

        A worker that turns out to be unreachable is killed and the call is WITHDRAWN.
        """
        message, pending = self.calls.prepare(call, self._config.generation, terms)
        try:
            self._router.send(self.identity, message)
        except PeerFull as error:
            raise self.calls.full() from error
        except PeerGone:
            self.kill("its connection is gone")
            pending.settle(CallEnd.WITHDRAWN)
            return pending
        self.calls.add(pending)
        return pending

    @property
    def jobs_alone(self) -> int:
        """Background jobs that no call waits for, by its last heartbeat."""
        return 0 if self.heartbeat is None else self.heartbeat.jobs

    def cancel(self, pending: PendingCall, *, expired: bool = False) -> None:
        """Tell the worker that nobody waits for the call any more, or that its time is over."""
        if self.calls.holds(pending):
            pending.cancelled = True
            self._tell(Cancel(pending.request_id, expired))

    def pass_permit(self, permit: Permit) -> None:
        """The word of another front on a create that it sent."""
        self._tell(self.calls.pass_permit(permit, ready=self.stage is Stage.READY))

    def forget_session(self, session_id: str) -> None:
        """Have the worker give up the strict calls of an ended session, and let go of what it
        keeps for its pages. What has its permit goes on."""
        pending_calls = self.calls.end_session(session_id)
        if pending_calls is None:
            return
        for pending in pending_calls:
            self.cancel(pending)
        self._tell(SessionEnded(session_id))

    def _tell(self, message: Cancel | Permit | SessionEnded | Drain) -> None:
        try:
            self._router.send(self.identity, message)
        except (PeerGone, PeerFull) as error:
            # It has ended, is about to, or does not listen: the ladder and the clock decide.
            self._log.debug("worker_unreachable", reason=type(error).__name__)

    # -- messages ------------------------------------------------------------------------

    def receive(self, message: ToFront) -> None:
        """A message of this worker."""
        self._heard = time.monotonic()
        if isinstance(message, Reply):
            self.calls.answer(message)
        else:
            self._receive_other(message)

    def _receive_other(self, message: ToFront) -> None:
        match message:
            case Event():
                self._listener.worker_event(message)
            case CallProgress():
                self.calls.progress(message)
            case Heartbeat():
                self.heartbeat = message
                self.last_heartbeat_at = now_text()
                if message.state == "draining":
                    self._leave()
            case Cancelled():
                if self.calls.given_up(message):
                    # The call can go to the next worker.
                    self._leave()
            case PermitRequest():
                current = message.generation == self._config.generation
                ready = current and self.stage is Stage.READY
                permit = self.calls.permit(message, ready=ready)
                if permit is not None:
                    self._tell(permit)
            case Ready():
                if self.stage is Stage.STARTING:
                    self.stage = Stage.READY
                    self.index_empty = message.index_empty
                    self._log.info(
                        "worker_ready",
                        worker_pid=self.pid,
                        documents=message.documents,
                        recovery_actions=message.recovery_actions,
                    )
                    self._listener.worker_changed(self)
            case Failed():
                self.failure = message.errors
                self._farewell.set()
                self._leave()
            case Bye():
                self.said_goodbye = True
                self.displaced = message.displaced
                self._farewell.set()
                if not message.clean:
                    self._log.warning("worker_left_recovery")
                self._leave()
            case Hello():
                return
