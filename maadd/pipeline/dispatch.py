"""From a call that may be made to its worker's reply: steps 11 to 16 of spec 04 §6."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Protocol

import msgspec

from maadd.config.instance import ProjectConfig
from maadd.config.settings import Settings
from maadd.pipeline.heavy import FreeMemory, HeavyGuard
from maadd.pipeline.limits import Limiter, Slot
from maadd.pipeline.single_flight import SingleFlight
from maadd.pool.held_calls import OnPermit, OnProgress
from maadd.pool.pool import WorkerPool
from maadd.protocol.errors import MaadError
from maadd.protocol.messages import Call, Reply
from maadd.protocol.tools import ToolSpec
from maadd.sessions.session import Session
from maadd.sessions.views import Caller

MeasureMemory = Callable[[ProjectConfig], FreeMemory]
"""How much memory a heavy call on a project finds free."""

_ITEMS_PER_WRITE = 10
"""So many records of a bulk call are charged like one write (spec 04 §12.1)."""

_NOT_DOWN = frozenset({"SHUTTING_DOWN", "OVERLOADED"})
"""Refusals of the pool that say nothing about the state of the project's worker."""


class Generation(Protocol):
    """Which instance is served, as a number."""

    @property
    def generation(self) -> int: ...


class Dispatcher:
    """Charges calls, guards the heavy ones and asks the workers."""

    def __init__(
        self,
        state: Generation,
        settings: Settings,
        limiter: Limiter,
        heavy: HeavyGuard,
        measure_memory: MeasureMemory,
        pool: WorkerPool,
    ) -> None:
        self._state = state
        self._settings = settings
        self._limiter = limiter
        self._heavy = heavy
        self._measure_memory = measure_memory
        self._pool = pool
        self._flights: SingleFlight[Reply] = SingleFlight()
        self._writes_ended: Counter[str] = Counter()

    async def make_ready(self, spec: ToolSpec, project: ProjectConfig) -> None:
        """Step 11: a worker that is up. Health answers without one, and a strict call has none
        started."""
        if spec.strict:
            self._pool.require_ready(project)
        elif spec.name != "maad_health":
            await self._pool.ensure_ready(project, self._settings.request_timeout_ms / 1000)

    def begin(
        self,
        caller: Caller,
        spec: ToolSpec,
        args: Any,
        call: Call,
        project: ProjectConfig,
        slot: Slot,
        on_progress: OnProgress | None = None,
        on_permit: OnPermit | None = None,
    ) -> Coroutine[Any, Any, Reply]:
        """Steps 13 and 14, between which nothing is awaited; the reply is what is left to get.

        Once it is awaited, `slot` is left when the call has really ended. `on_progress` hears
        how far a long call is, for as long as its caller waits; `on_permit` is asked before a
        write is published that must not be without it.
        """
        if not spec.heavy or not self._heavy.enabled:
            call, paid = self._charge(caller, spec, args, call)  # 14
            return self._ask_worker(caller, project, call, paid, slot.leave, on_progress, on_permit)
        self._heavy.admit(lambda: self._measure_memory(project))  # 13
        key = self._flight_key(spec, args, call, project)
        if self._flights.is_running(key):
            self._heavy.note_coalesced()
            return self._join(key, slot, on_progress)
        place = self._heavy.enter()
        try:
            call, paid = self._charge(caller, spec, args, call)  # 14
        except MaadError:
            place.leave()
            raise

        def ended() -> None:
            slot.leave()
            place.leave()

        ask = partial(self._ask_worker, caller, project, call, paid, ended)
        return self._flights.lead(key, ask, on_progress)

    def _flight_key(
        self, spec: ToolSpec, args: Any, call: Call, project: ProjectConfig
    ) -> Hashable:
        """What makes heavy calls equal. A caller that has the answer of a write never joins an
        execution from before it (spec 03 §6.6)."""
        return (
            project.name,
            self._state.generation,
            self._writes_ended[project.name],
            spec.name,
            call.role,
            # Defaults are left out by the encoding, so `{}` and an explicit default are equal.
            msgspec.json.encode(msgspec.structs.replace(args, project=None), order="sorted"),
        )

    async def _join(self, key: Hashable, slot: Slot, on_progress: OnProgress | None) -> Reply:
        """Share the reply of an equal call; what it changed is told by that one alone."""
        with slot:
            reply = await self._flights.join(key, on_progress)
        return msgspec.structs.replace(reply, audit=None)

    async def _ask_worker(
        self,
        caller: Caller,
        project: ProjectConfig,
        call: Call,
        paid: int,
        on_end: Callable[[], None],
        on_progress: OnProgress | None,
        on_permit: OnPermit | None = None,
    ) -> Reply:
        """Steps 15 and 16. `on_end` is called when the worker is done with the call."""
        try:
            reply = await self._pool.call(
                project,
                call,
                is_write=call.is_write,
                timeout_s=self._settings.request_timeout_ms / 1000,
                strict=call.budget is not None,
                on_end=on_end,
                on_progress=on_progress,
                on_permit=on_permit,
            )
        except MaadError as failure:
            # Health answers also while the worker is down (spec 03 §6.3).
            if call.tool == "maad_health" and failure.code not in _NOT_DOWN:
                return Reply(call.request_id, ok=True, body=b"")
            raise
        finally:
            if call.is_write:
                self._writes_ended[project.name] += 1
        if paid and is_replay(reply):
            self._limiter.refund_write(account_of(caller), token_id_of(caller), paid)
        return reply

    def _charge(self, caller: Caller, spec: ToolSpec, args: Any, call: Call) -> tuple[Call, int]:
        """Judge the size of a write and pay for it; the call to send and what was paid. With an
        idempotency key a refusal travels to the worker, which knows whether it is a replay."""
        if not call.is_write:
            return call, 0
        items = spec.number_of_items(args)
        cost = 1 if items is None else max(1, math.ceil(items / _ITEMS_PER_WRITE))
        refusal = self._excess(spec, items) or self._limiter.charge_write(
            account_of(caller), token_id_of(caller), spec.name, cost
        )
        if refusal is None:
            return call, cost
        if spec.idempotency_key and args.idempotency_key:
            return msgspec.structs.replace(call, verdict=refusal.wire()), 0
        raise refusal

    def _excess(self, spec: ToolSpec, items: int | None) -> MaadError | None:
        """BULK_LIMIT_EXCEEDED for more records than one call may write. The cleanup tools have
        a limit of their own, which the worker judges."""
        limit = self._settings.bulk_max_items
        if items is None or spec.confirm or items <= limit:
            return None
        return MaadError(
            "BULK_LIMIT_EXCEEDED",
            f"{spec.name} takes at most {limit} records a call, this one has {items}; send them "
            "in several calls",
            {
                "tool": spec.name,
                "received": items,
                "limit": limit,
                "suggestedChunkSize": limit,
            },
        )


def account_of(caller: Caller) -> str:
    """What limits are counted by: the session, or the token where there is none."""
    return caller.id if isinstance(caller, Session) else f"token:{caller.token.id}"


def token_id_of(caller: Caller) -> str | None:
    """The id of the caller's token; None over stdio."""
    return None if caller.token is None else caller.token.id


def is_replay(reply: Reply) -> bool:
    """Whether the worker answered from an earlier call with the same idempotency key."""
    return reply.meta is not None and bool(reply.meta.get("replayed"))
