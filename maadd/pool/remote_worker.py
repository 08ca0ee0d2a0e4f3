"""A project's worker that belongs to another front, reached through that front's control socket.

One person, two agents: the process that came second has no worker of its own as long as the
first one lives (spec 04 §10). To its supervisor this is a worker like any other; it dies when
the connection ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

import msgspec
from structlog.typing import FilteringBoundLogger

from maadd.pool.control_stream import read_message
from maadd.pool.held_calls import CallEnd, HeldCalls, PendingCall, Terms
from maadd.pool.policy import PoolPolicy
from maadd.pool.snapshot import WorkerExit, now_text
from maadd.pool.worker_handle import Listener, Stage
from maadd.protocol.control import (
    HANDSHAKE_S,
    Attach,
    Attached,
    FromOwner,
    Leaving,
    Lost,
    decode_answer,
    decode_from_owner,
    encode,
)
from maadd.protocol.errors import WireError
from maadd.protocol.messages import (
    Call,
    CallProgress,
    Cancel,
    Cancelled,
    Event,
    Failed,
    Heartbeat,
    Hello,
    Permit,
    PermitRequest,
    Ready,
    Reply,
    SessionEnded,
)
from maadd.protocol.ownership import read_owner

_PROBE_S = 0.05


class RemoteWorker:
    """One connection to the owner of a project. Lives on the event loop."""

    heartbeat: Heartbeat | None = None
    last_heartbeat_at: str | None = None
    jobs_alone = 0
    """How its worker feels is the owner's business."""

    def __init__(
        self,
        owner: Attached,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        project: str,
        policy: PoolPolicy,
        listener: Listener,
        log: FilteringBoundLogger,
    ) -> None:
        self.owner_pid = owner.pid
        self.stage = Stage.STARTING
        self.calls = HeldCalls(project, policy.worker_queue, log)
        self.failure: list[WireError] | None = None
        """Why the owner could not open the project."""
        self.index_empty: int | None = None
        self.pid: int | None = None
        self.started_at = now_text()
        self.ended: asyncio.Future[WorkerExit | None]
        self._reader, self._writer = streams
        self._listener = listener
        self._log = log
        self.ended = asyncio.get_running_loop().create_future()
        self._reading: asyncio.Task[None] | None = None
        self._letting_go: asyncio.Task[None] | None = None

    @classmethod
    async def attach(
        cls,
        endpoint: str,
        root: str,
        project: str,
        policy: PoolPolicy,
        listener: Listener,
        log: FilteringBoundLogger,
    ) -> RemoteWorker | None:
        """Ask the front behind `endpoint` for its worker of the directory `root`; None when it
        cannot be reached, is about to end, or does not serve that directory."""
        with contextlib.ExitStack() as undo:
            try:
                async with asyncio.timeout(HANDSHAKE_S):
                    reader, writer = await asyncio.open_unix_connection(endpoint)
                    undo.callback(writer.close)
                    writer.write(encode(Attach(root, follow=True)))
                    body = await read_message(reader)
                    answer = None if body is None else decode_answer(body)
            except (OSError, TimeoutError, msgspec.MsgspecError) as error:
                log.debug("owner_unreachable", reason=str(error) or type(error).__name__)
                return None
            if not isinstance(answer, Attached):
                return None
            undo.pop_all()
        log.info("project_attached", owner_pid=answer.pid, owner_version=answer.version)
        return cls(answer, (reader, writer), project, policy, listener, log)

    def begin(self) -> None:
        """Take what the owner says; from here on the listener is told."""
        self._reading = asyncio.create_task(self._read())

    async def stop(self, drain_s: float, term_s: float) -> None:
        """Send no more calls, wait `drain_s` for those that are held, and let go."""
        self._leave()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                await self.calls.emptied()
        self._writer.close()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait((self._reading,))
        self._finish()

    def drain(self) -> None:
        """Nothing: its memory is the owner's to watch."""

    def check(self, now: float) -> None:
        """Nothing: its silence is the owner's to judge."""

    # -- calls ---------------------------------------------------------------------------

    def dispatch(self, call: Call, terms: Terms) -> PendingCall:
        """Hand a call over; OVERLOADED when the owner holds as many of ours as it may."""
        message, pending = self.calls.prepare(call, 0, terms)
        if self.stage is Stage.ENDED:
            pending.settle(CallEnd.WITHDRAWN)
            return pending
        self.calls.add(pending)
        self._writer.write(encode(message))
        return pending

    def cancel(self, pending: PendingCall, *, expired: bool = False) -> None:
        """Tell the owner that nobody waits for the call any more, or that its time is over."""
        if self.calls.holds(pending):
            pending.cancelled = True
            self._writer.write(encode(Cancel(pending.request_id, expired)))

    def pass_permit(self, permit: Permit) -> None:
        """The word of yet another front on a create that it sent."""
        self._writer.write(encode(self.calls.pass_permit(permit, ready=self._is_ready)))

    def forget_session(self, session_id: str) -> None:
        """Have the owner give up the strict calls of an ended session, and let go of its pages."""
        pending_calls = self.calls.end_session(session_id)
        if pending_calls is None:
            return
        for pending in pending_calls:
            self.cancel(pending)
        self._writer.write(encode(SessionEnded(session_id)))

    @property
    def _is_ready(self) -> bool:
        return self.stage is Stage.READY

    # -- messages ------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            while (body := await read_message(self._reader)) is not None:
                self._receive(decode_from_owner(body))
        except msgspec.MsgspecError:
            self._log.error("owner_message_unreadable", owner_pid=self.owner_pid)
        self._writer.close()
        self._log.info("owner_left", owner_pid=self.owner_pid, in_flight=len(self.calls))
        self._finish()

    def _receive(self, message: FromOwner) -> None:
        match message:
            case Reply():
                self.calls.answer(message)
            case CallProgress():
                self.calls.progress(message)
            case PermitRequest():
                permit = self.calls.permit(message, ready=self._is_ready)
                if permit is not None:
                    self._writer.write(encode(permit))
            case Event():
                self._listener.worker_event(message)
            case Cancelled():
                if self.calls.given_up(message):
                    self._leave()
            case Lost():
                self.calls.lose(message.request_id)
            case Hello():
                self.pid = message.pid
            case Ready():
                if self.stage is Stage.STARTING:
                    self.stage = Stage.READY
                    self.index_empty = message.index_empty
                    self._listener.worker_changed(self)
            case Failed():
                self.failure = message.errors
                self._leave()
                self._writer.close()
            case Leaving():
                self._leave()
                if message.removed:
                    self._letting_go = asyncio.create_task(self._let_go())

    async def _let_go(self) -> None:
        await self.calls.emptied()
        self._writer.close()

    def _leave(self) -> None:
        if self.stage in (Stage.STARTING, Stage.READY):
            self.stage = Stage.LEAVING
            self._listener.worker_changed(self)

    def _finish(self) -> None:
        if self.stage is Stage.ENDED:
            return
        if self._letting_go is not None:
            self._letting_go.cancel()
        self.stage = Stage.ENDED
        self.calls.lose_all()
        self.ended.set_result(None)
        self._listener.worker_changed(self)


async def find_owner(
    root: str,
    project: str,
    own_endpoint: str | None,
    deadline: float,
    policy: PoolPolicy,
    listener: Listener,
    log: FilteringBoundLogger,
) -> RemoteWorker | None:
    """The worker of the process that owns the directory `root`; None when nobody does, or when
    its owner cannot be reached until `deadline` (monotonic seconds) or has left only a worker."""
    while (owner := await asyncio.to_thread(read_owner, root)) is not None:
        if owner.is_abandoned:
            return None
        # An own worker of before may still be about to end.
        if owner.endpoint is not None and owner.endpoint != own_endpoint:
            worker = await RemoteWorker.attach(owner.endpoint, root, project, policy, listener, log)
            if worker is not None:
                return worker
        if time.monotonic() >= deadline:
            return None
        await asyncio.sleep(_PROBE_S)
    return None
