"""The calls that a worker holds, and what becomes of each of them."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable

import msgspec
from structlog.typing import FilteringBoundLogger

from maadd.protocol.errors import MaadError, WireError
from maadd.protocol.messages import (
    Call,
    CallProgress,
    Cancelled,
    Permit,
    PermitRequest,
    Reply,
)

QUEUE_RETRY_MS = 500


class CallEnd(enum.Enum):
    """How a call ended that has no reply."""

    WITHDRAWN = "withdrawn"
    """The worker did nothing of it."""
    PUBLISHED = "published"
    """The write is past its publish point and goes on; its reply comes later."""
    LOST = "lost"
    """The worker died with it."""
    EXPIRED = "expired"
    """Its time is over."""
    ABANDONED = "abandoned"
    """This process ends before the worker is done with it."""


OnProgress = Callable[[CallProgress], None]
"""Hears how far a call is, while its caller waits."""

OnPermit = Callable[[], None]
"""Asked at the publish point of a call that must not go further without it; MaadError refuses."""

ForwardPermit = Callable[[PermitRequest], None]
"""Asks whoever knows the caller; its answer comes to `HeldCalls.pass_permit`."""


class Terms(msgspec.Struct, frozen=True):
    """How a call is handed to a worker: what it may take, and who hears of it meanwhile."""

    is_write: bool
    deadline_ms: int
    on_progress: OnProgress | None = None
    on_permit: OnPermit | None = None
    forward_permit: ForwardPermit | None = None


class PendingCall:
    """A call that a worker holds. `outcome` is what its caller waits for now."""

    __slots__ = (
        "cancelled",
        "end",
        "forward_permit",
        "granted",
        "is_write",
        "job_id",
        "late",
        "on_end",
        "on_permit",
        "on_progress",
        "outcome",
        "request_id",
        "session_id",
        "tool",
    )

    def __init__(
        self,
        request_id: str,
        tool: str,
        terms: Terms,
        outcome: asyncio.Future[Reply | CallEnd],
    ) -> None:
        self.request_id = request_id
        self.tool = tool
        self.is_write = terms.is_write
        self.on_progress = terms.on_progress
        self.on_permit = terms.on_permit
        self.forward_permit = terms.forward_permit
        self.outcome = outcome
        self.job_id: str | None = None
        """The background job that goes on although its caller's time is over."""
        self.cancelled = False
        """Whether the worker was told to give it up."""
        self.late: int | None = None
        """The limit in ms, once the caller has its REQUEST_TIMEOUT."""
        self.on_end: Callable[[], None] | None = None
        """To be called when the worker is done with a call that nobody waits for."""
        self.end: Reply | CallEnd | None = None
        """How it ended, once the worker holds it no more."""
        self.granted = False
        """Whether the worker may have published it, by a permit from this side."""
        self.session_id: str | None = None
        """Whose strict call it is; None for any other."""

    @property
    def surely_unpublished(self) -> bool:
        """Whether it needs a permit that it never had."""
        return self.on_permit is not None and not self.granted

    def settle(self, outcome: Reply | CallEnd) -> None:
        """Tell the caller, if it still waits."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class HeldCalls:
    """Of one worker, by request id; at most `limit` of them. Lives on the event loop."""

    __slots__ = ("_calls", "_emptied", "_limit", "_log", "_loop", "_project", "_strict_sessions")

    def __init__(self, project: str, limit: int, log: FilteringBoundLogger) -> None:
        self._project = project
        self._limit = limit
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._calls: dict[str, PendingCall] = {}
        self._emptied: asyncio.Future[None] | None = None
        self._strict_sessions: set[str] = set()

    def __len__(self) -> int:
        return len(self._calls)

    def prepare(self, call: Call, generation: int, terms: Terms) -> tuple[Call, PendingCall]:
        """The message to send, and what its caller will wait for; held after `add`.

        OVERLOADED when the worker holds as many as it may.
        """
        if len(self._calls) >= self._limit:
            raise self.full()
        if call.request_id in self._calls:
            raise ValueError(f"request id {call.request_id} is in use")
        message = msgspec.structs.replace(
            call,
            generation=generation,
            is_write=terms.is_write,
            deadline_ms=terms.deadline_ms,
            wants_progress=terms.on_progress is not None,
        )
        outcome = self._loop.create_future()
        pending = PendingCall(call.request_id, call.tool, terms, outcome)
        if call.budget is not None:
            pending.session_id = call.session_id
        return message, pending

    def add(self, pending: PendingCall) -> None:
        """The call has been sent."""
        self._calls[pending.request_id] = pending
        if pending.session_id is not None:
            self._strict_sessions.add(pending.session_id)

    def full(self) -> MaadError:
        """OVERLOADED."""
        return MaadError(
            "OVERLOADED",
            f'too many calls wait for the project "{self._project}"; retry later',
            {
                "reason": "worker_queue",
                "limit": self._limit,
                "retryAfterMs": QUEUE_RETRY_MS,
            },
        )

    def holds(self, pending: PendingCall) -> bool:
        """Whether the worker still has the call."""
        return self._calls.get(pending.request_id) is pending

    async def emptied(self) -> None:
        """Wait until no call is left."""
        if self._calls:
            if self._emptied is None:
                self._emptied = self._loop.create_future()
            await asyncio.shield(self._emptied)

    def expect_word(self, pending: PendingCall) -> asyncio.Future[Reply | CallEnd]:
        """A new outcome to wait for, after the first one was EXPIRED or PUBLISHED."""
        pending.outcome = self._loop.create_future()
        if not self.holds(pending):
            pending.settle(pending.end or CallEnd.LOST)
        return pending.outcome

    # -- permits (spec 05 §10.2) ---------------------------------------------------------

    def permit(self, asked: PermitRequest, *, ready: bool) -> Permit | None:
        """Judge a publication in this turn of the loop, so that nothing comes between; None when
        somebody else was asked. `ready`: the worker still is the one that takes calls."""
        pending = self._calls.get(asked.request_id)
        refusal = self._refusal(pending, ready)
        if pending is None or refusal is not None:
            return Permit(asked.request_id, refusal)
        if pending.forward_permit is not None:
            pending.forward_permit(asked)
            return None
        try:
            if pending.on_permit is not None:
                pending.on_permit()  # Last: what it allows is granted.
        except MaadError as failure:
            return Permit(asked.request_id, failure.wire())
        pending.granted = True
        return Permit(asked.request_id)

    def pass_permit(self, permit: Permit, *, ready: bool) -> Permit:
        """The answer of whoever was asked, unless it comes too late here."""
        pending = self._calls.get(permit.request_id)
        refusal = permit.refusal or self._refusal(pending, ready)
        if pending is not None and refusal is None:
            pending.granted = True
        return Permit(permit.request_id, refusal)

    def end_session(self, session_id: str) -> list[PendingCall] | None:
        """The strict calls of an ended session that have no permit yet; None when it never made
        a strict call."""
        if session_id not in self._strict_sessions:
            return None
        self._strict_sessions.discard(session_id)
        return [
            pending
            for pending in self._calls.values()
            if pending.session_id == session_id and not pending.granted
        ]

    def _refusal(self, pending: PendingCall | None, ready: bool) -> WireError | None:
        not_published = {"writeOutcome": "not_published"}
        if (
            pending is None
            or (pending.on_permit is None and pending.forward_permit is None)
            or pending.cancelled
            or pending.outcome.done()
        ):
            message = "nobody waits for this call any more; nothing was written"
            return WireError("REQUEST_TIMEOUT", message, not_published)
        if not ready:
            message = f'the engine of project "{self._project}" is being replaced'
            return WireError("CREATE_ENGINE_NOT_READY", message, not_published)
        return None

    # -- what the worker says ------------------------------------------------------------

    def answer(self, reply: Reply) -> None:
        """The end of a call; one that is not held is dropped."""
        pending = self._calls.pop(reply.request_id, None)
        if pending is not None:
            self._close(pending, reply)

    def progress(self, message: CallProgress) -> None:
        """How far a call is."""
        pending = self._calls.get(message.request_id)
        if pending is not None and pending.on_progress is not None and not pending.outcome.done():
            pending.on_progress(message)

    def given_up(self, message: Cancelled) -> bool:
        """The worker's word on a call without a reply; whether it came unasked, because the
        worker takes no more calls."""
        pending = self._calls.get(message.request_id)
        if pending is None:
            return False
        if not message.withdrawn:
            pending.job_id = message.job_id
            pending.settle(CallEnd.PUBLISHED)
            return False
        del self._calls[message.request_id]
        pending.late = None
        self._close(pending, CallEnd.WITHDRAWN)
        return not pending.cancelled

    def lose(self, request_id: str) -> None:
        """The worker died with this call."""
        pending = self._calls.pop(request_id, None)
        if pending is not None:
            self._close(pending, CallEnd.LOST)

    def lose_all(self) -> None:
        """The worker died."""
        for request_id in list(self._calls):
            self.lose(request_id)

    def abandon_all(self) -> None:
        """Nobody waits any longer for what the worker still has."""
        for pending in self._calls.values():
            pending.settle(CallEnd.ABANDONED)

    def _close(self, pending: PendingCall, outcome: Reply | CallEnd) -> None:
        if not self._calls and self._emptied is not None:
            self._emptied.set_result(None)
            self._emptied = None
        pending.end = outcome
        pending.settle(outcome)
        if pending.on_end is not None:
            pending.on_end()
        if pending.late is not None:
            error = outcome.error_code if isinstance(outcome, Reply) else outcome.value
            self._log.warning(
                "tool_call_overrun",
                request_id=pending.request_id,
                tool=pending.tool,
                limit_ms=pending.late,
                error=error,
            )
