"""Calls of another front, or of a command, on a worker of this one (spec 04 §10, §19).

The other side sees what a front sees of its own worker: replies, progress, the word on a call
that it gives up, the loss of a call with the worker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial

import msgspec
from structlog.typing import FilteringBoundLogger

from maadd.pool.held_calls import CallEnd, PendingCall, Terms
from maadd.pool.supervisor import Supervisor, Worker
from maadd.protocol.control import FromOwner, Lost
from maadd.protocol.errors import MaadError, MaadErrors, errors_of
from maadd.protocol.messages import (
    Call,
    Cancelled,
    Failed,
    Hello,
    Permit,
    PermitRequest,
    Ready,
    Reply,
)

_START_S = 3600.0
"""A first start may rebuild a large index."""


class Relay:
    """One connection's calls on one project. Lives on the event loop.

    `supervisor` gives the project's, or raises PROJECT_UNKNOWN when it is served no more.
    """

    def __init__(
        self,
        supervisor: Callable[[], Supervisor],
        send: Callable[[FromOwner], None],
        log: FilteringBoundLogger,
    ) -> None:
        self._supervisor = supervisor
        self._send = send
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[str, asyncio.Task[None]] = {}
        """Calls that no worker has yet."""
        self._held: dict[str, PendingCall] = {}
        self._asking: dict[str, Worker] = {}
        """The workers that wait for the other side's permit, by request id."""
        self._expired: set[str] = set()

    def announce(self) -> None:
        """Have the worker started, and the other side told when it is ready, or why not."""
        self._run(self._announce())

    def take(self, call: Call) -> None:
        """Have the worker perform a call."""
        self._waiting[call.request_id] = self._run(self._answer(call))

    def withdraw(self, request_id: str, *, expired: bool = False) -> None:
        """Nobody waits for the call any more, or its time is over; what became of it is told."""
        pending = self._held.get(request_id)
        if pending is not None:
            if expired:
                self._expired.add(request_id)
            pending.settle(CallEnd.EXPIRED)
        elif (task := self._waiting.pop(request_id, None)) is not None:
            task.cancel()
            self._send(Cancelled(request_id, withdrawn=True))

    def withdraw_all(self) -> None:
        """The other side is gone."""
        for request_id in [*self._held, *self._waiting]:
            self.withdraw(request_id)

    def permit(self, permit: Permit) -> None:
        """The other side's word on the publication of a create."""
        worker = self._asking.pop(permit.request_id, None)
        if worker is not None:
            worker.pass_permit(permit)

    def forget_session(self, session_id: str) -> None:
        """A session of the other side has ended."""
        worker = self._supervisor().worker
        if worker is not None:
            worker.forget_session(session_id)

    async def finish(self) -> None:
        """Wait for the calls that are left."""
        try:
            while self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            for task in self._tasks:
                task.cancel()

    def _run(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._log.error("relay_failed", exc_info=failure)

    async def _announce(self) -> None:
        try:
            worker = await self._supervisor().ready(_START_S)
        except (MaadError, MaadErrors) as failure:
            if not _is_ending(failure):
                self._send(Failed([error.wire() for error in errors_of(failure)]))
            return
        if worker.pid is not None:
            self._send(Hello(worker.pid))
        self._send(Ready(0, [], worker.index_empty))

    async def _answer(self, call: Call) -> None:
        try:
            self._send(await self._perform(call))
        except (MaadError, MaadErrors) as failure:
            if _is_ending(failure):
                self._send(Cancelled(call.request_id, withdrawn=True))
            else:
                self._send(refusal_of(call, failure))
        except Exception:
            # Whoever waits on the other side must not wait for what is in our log alone.
            self._send(Lost(call.request_id))
            raise
        finally:
            self._held.pop(call.request_id, None)
            self._asking.pop(call.request_id, None)
            self._expired.discard(call.request_id)
            self._waiting.pop(call.request_id, None)

    async def _perform(self, call: Call) -> FromOwner:
        """What the other side is told at the end of a call."""
        deadline = time.monotonic() + call.deadline_ms / 1000
        while True:
            supervisor = self._supervisor()
            worker = await supervisor.ready(deadline - time.monotonic())
            terms = Terms(
                call.is_write,
                max(0, round((deadline - time.monotonic()) * 1000)),
                on_progress=self._send if call.wants_progress else None,
                forward_permit=partial(self._ask, worker) if call.source is not None else None,
            )
            pending = worker.dispatch(call, terms)
            self._held[call.request_id] = pending
            outcome = await self._outcome(worker, pending)
            supervisor.touched = time.monotonic()
            if isinstance(outcome, Reply):
                return outcome
            if outcome is CallEnd.LOST or outcome is CallEnd.ABANDONED:
                return Lost(call.request_id)
            if pending.cancelled:
                return Cancelled(call.request_id, withdrawn=True)
            # The worker takes no more calls; the next one does.
            del self._held[call.request_id]

    def _ask(self, worker: Worker, asked: PermitRequest) -> None:
        """Access is the other side's to judge."""
        self._asking[asked.request_id] = worker
        self._send(asked)

    async def _outcome(self, worker: Worker, pending: PendingCall) -> Reply | CallEnd:
        """How the worker's part of a call ends; that it goes on after all is told before."""
        try:
            outcome = await pending.outcome
            while outcome is CallEnd.EXPIRED or outcome is CallEnd.PUBLISHED:
                word = worker.calls.expect_word(pending)
                if outcome is CallEnd.EXPIRED:
                    worker.cancel(pending, expired=pending.request_id in self._expired)
                else:
                    self._send(Cancelled(pending.request_id, False, pending.job_id))
                outcome = await word
        except asyncio.CancelledError:
            worker.cancel(pending)
            raise
        return outcome


def _is_ending(failure: MaadError | MaadErrors) -> bool:
    """Whether this front is about to end, so that the next owner is the one to ask."""
    return errors_of(failure)[0].code == "SHUTTING_DOWN"


def refusal_of(call: Call, failure: MaadError | MaadErrors) -> Reply:
    """The reply that a failure is."""
    errors = [error.wire() for error in errors_of(failure)]
    body = msgspec.json.encode(errors)
    return Reply(call.request_id, ok=False, body=body, error_code=errors[0].code)
