"""How a front comes to its end: new work is refused, what runs is finished (spec 04 §15)."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import time
from collections.abc import Callable, Coroutine
from typing import Any

from structlog.typing import FilteringBoundLogger

from maadd.front.control import ControlServer
from maadd.front.hard_deadline import end_within
from maadd.front.state import RunningFront
from maadd.ops.notify import ServiceNotifier
from maadd.pipeline.pipeline import Pipeline
from maadd.pool.pool import WorkerPool

_POLL_S = 0.05
_LAST_ANSWER_POLLS = 10
_HARD_LIMIT_S = 15.0
"""What ending may take after the drain."""


class DrainEnd(enum.Enum):
    """How a drain ended."""

    DONE = 0
    TIMED_OUT = 1
    FORCED = 2
    """Somebody asked for the end a second time."""


async def drain(
    pool: WorkerPool,
    pipeline: Pipeline,
    control: ControlServer | None,
    *,
    limit_s: float,
    state: RunningFront,
    notifier: ServiceNotifier,
    log: FilteringBoundLogger,
    wait_for_stop: Callable[[], Coroutine[Any, Any, None]],
) -> DrainEnd:
    """Refuse new work and wait `limit_s` seconds for what runs; then tell those who still wait
    what is known. `wait_for_stop` returns when the end is asked for once more."""
    started = time.monotonic()
    state.draining = True
    notifier.stopping("draining")
    notifier.extend(limit_s + _HARD_LIMIT_S)
    # Never called off: what comes after the loop can hang as well.
    end_within(limit_s + _HARD_LIMIT_S, log)
    log.info("shutdown_start")
    if control is not None:
        control.leave()
    end = DrainEnd.DONE
    asked_again = asyncio.create_task(wait_for_stop())
    try:
        while pool.in_flight() or pipeline.in_flight:
            elapsed = time.monotonic() - started
            if elapsed >= limit_s:
                end = DrainEnd.TIMED_OUT
                log.warning(
                    "shutdown_timeout",
                    queue_depth=pool.queue_depth(),
                    in_flight=pool.in_flight(),
                    elapsed_ms=round(elapsed * 1000),
                )
                break
            if asked_again.done():
                end = DrainEnd.FORCED
                log.warning("shutdown_forced", in_flight=pool.in_flight())
                break
            await asyncio.sleep(_POLL_S)
    finally:
        asked_again.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asked_again
    if end is not DrainEnd.DONE:
        await _abandon(pool, pipeline)
    log.info(
        "shutdown_complete",
        elapsed_ms=round((time.monotonic() - started) * 1000),
        drain_timed_out=end is DrainEnd.TIMED_OUT,
    )
    return end


async def _abandon(pool: WorkerPool, pipeline: Pipeline) -> None:
    """Have the callers told what is known of their calls, while they can be."""
    pool.abandon()
    pipeline.abandon()
    for _ in range(_LAST_ANSWER_POLLS):
        if not pipeline.unanswered:
            return
        await asyncio.sleep(_POLL_S)
