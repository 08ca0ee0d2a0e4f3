"""The tools that the front answers itself, each seen through to its end (spec 04 §6, step 16)."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from structlog.typing import FilteringBoundLogger

from maadd.auth.record import TokenRecord
from maadd.config.instance import Instance
from maadd.pipeline.envelope import FrontAnswer
from maadd.pipeline.limits import Slot
from maadd.protocol.errors import MaadError
from maadd.protocol.tools import ToolSpec
from maadd.sessions.views import Caller

Answered = dict[str, Any] | FrontAnswer
"""`data` alone, or with what else there is to say."""

EnginelessHandler = Callable[
    [Caller, Any, Instance, TokenRecord | None], Answered | Awaitable[Answered]
]
"""Answers an engine-less tool: (caller, typed arguments, instance, token) to `data`."""


class FrontTools:
    """Runs the handlers. What one has begun goes on to its end, whatever becomes of its caller:
    a token that is being written, a reload half way."""

    def __init__(
        self,
        handlers: Mapping[str, EnginelessHandler],
        limit_ms: int,
        log: FilteringBoundLogger,
    ) -> None:
        self._handlers = handlers
        self._limit_ms = limit_ms
        self._log = log
        self._running: set[asyncio.Future[Answered]] = set()
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def in_flight(self) -> int:
        """Handlers that have not ended, those included whose callers have left."""
        return len(self._running)

    def abandon(self) -> None:
        """Let no caller wait any longer: WORKER_LOST for what may have changed something."""
        for caller in self._waiting:
            caller.set_result(None)

    async def answer(
        self,
        spec: ToolSpec,
        caller: Caller,
        args: Any,
        instance: Instance,
        *,
        slot: Slot,
        request_id: str,
    ) -> FrontAnswer:
        """The handler's answer within the time limit, else REQUEST_TIMEOUT.

        `slot` is left when the handler has really ended.
        """
        try:
            answered = self._handlers[spec.name](caller, args, instance, caller.token)
        except BaseException:
            slot.leave()
            raise
        if inspect.isawaitable(answered):
            answered = await self._see_through(spec, answered, slot, request_id)
        else:
            slot.leave()
        return answered if isinstance(answered, FrontAnswer) else FrontAnswer(answered)

    async def _see_through(
        self, spec: ToolSpec, work: Awaitable[Answered], slot: Slot, request_id: str
    ) -> Answered:
        running = asyncio.ensure_future(work)
        overdue = False

        def ended(_: object) -> None:
            self._running.discard(running)
            slot.leave()
            failure = None if running.cancelled() else running.exception()
            if overdue:
                self._log.warning(
                    "tool_call_overrun",
                    request_id=request_id,
                    tool=spec.name,
                    limit_ms=self._limit_ms,
                    error=None if failure is None else str(failure),
                )

        self._running.add(running)
        running.add_done_callback(ended)
        abandoned = asyncio.get_running_loop().create_future()
        self._waiting.add(abandoned)
        try:
            await asyncio.wait(
                (running, abandoned),
                timeout=self._limit_ms / 1000,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            self._waiting.discard(abandoned)
        if running.done():
            return running.result()
        if abandoned.done():
            raise _stopped(spec)
        overdue = True
        raise _timed_out(spec, self._limit_ms)


def _stopped(spec: ToolSpec) -> MaadError:
    message = f"the server stopped while it had {spec.name}"
    if spec.read_only_hint:
        return MaadError("SHUTTING_DOWN", message)
    details = {"tool": spec.name, "writeOutcome": "unknown_reconcile"}
    return MaadError("WORKER_LOST", f"{message}; look at what it did before the next try", details)


def _timed_out(spec: ToolSpec, limit_ms: int) -> MaadError:
    details: dict[str, Any] = {"tool": spec.name, "limitMs": limit_ms}
    if not spec.read_only_hint:
        details["writeOutcome"] = "unknown_reconcile"
    return MaadError(
        "REQUEST_TIMEOUT", f"{spec.name} took longer than {limit_ms} ms and goes on", details
    )
