"""One call from its dispatch to its answer: timeout, cancellation, loss, repetition."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from maadd.pool.held_calls import CallEnd, OnPermit, OnProgress, PendingCall, Terms
from maadd.pool.supervisor import State, Supervisor, Worker
from maadd.pool.worker_handle import Stage
from maadd.protocol.errors import MaadError
from maadd.protocol.messages import Call, Reply
from maadd.protocol.tools import TOOLS


async def run_call(
    supervisor: Supervisor,
    call: Call,
    *,
    is_write: bool,
    timeout_s: float,
    word_s: float,
    strict: bool,
    on_end: Callable[[], None] | None,
    on_progress: OnProgress | None = None,
    on_permit: OnPermit | None = None,
) -> Reply:
    """See `WorkerPool.call`. `word_s`: wait for the worker's word on an expired write."""
    pending: PendingCall | None = None
    worker: Worker | None = None
    deadline: float | None = None
    repeated = False
    try:
        while True:
            wait_s = timeout_s if deadline is None else deadline - time.monotonic()
            worker = supervisor.worker
            if worker is None or supervisor.state is not State.READY:
                if strict:
                    raise not_ready(supervisor)
                worker = await supervisor.ready(wait_s)
            if deadline is None:
                # The call's own time begins with its first dispatch.
                deadline = time.monotonic() + timeout_s
            left_s = max(0.0, deadline - time.monotonic())
            terms = Terms(is_write, round(left_s * 1000), on_progress, on_permit)
            pending = worker.dispatch(call, terms)
            outcome = await _outcome(worker, pending, left_s, round(timeout_s * 1000))
            if isinstance(outcome, Reply):
                if strict and not is_write and worker.stage is not Stage.READY:
                    raise not_ready(supervisor)
                return outcome
            if outcome is CallEnd.EXPIRED:
                limit_ms = round(timeout_s * 1000)
                return await _expired(worker, pending, limit_ms, word_s)
            if outcome is CallEnd.ABANDONED and not is_write:
                worker.cancel(pending)
                raise _stopped()
            if outcome is CallEnd.LOST or outcome is CallEnd.ABANDONED:
                if is_write:
                    stopped = outcome is CallEnd.ABANDONED
                    unpublished = pending.surely_unpublished
                    raise _lost(call.tool, unpublished=unpublished, stopped=stopped)
                if strict:
                    raise not_ready(supervisor)
                if repeated:
                    raise supervisor.unavailable()
                repeated = True
            elif strict:
                raise not_ready(supervisor)
    finally:
        supervisor.touched = time.monotonic()
        if on_end is not None:
            if worker is not None and pending is not None and worker.calls.holds(pending):
                pending.on_end = on_end
            else:
                on_end()


async def _outcome(
    worker: Worker, pending: PendingCall, left_s: float, limit_ms: int
) -> Reply | CallEnd:
    timer = pending.outcome.get_loop().call_later(left_s, _expire, pending, limit_ms)
    try:
        return await pending.outcome
    except asyncio.CancelledError:
        worker.cancel(pending)
        raise
    finally:
        timer.cancel()


def _expire(pending: PendingCall, limit_ms: int) -> None:
    if not pending.is_write and not pending.outcome.done():
        # Now: its end may come before its caller goes on.
        pending.late = limit_ms
    pending.settle(CallEnd.EXPIRED)


async def _expired(worker: Worker, pending: PendingCall, limit_ms: int, word_s: float) -> Reply:
    """Have the call given up. A write's fate is the worker's to tell."""
    if not pending.is_write:
        worker.cancel(pending, expired=True)
        raise _timed_out(pending.tool, limit_ms, None)
    if pending.surely_unpublished:
        worker.cancel(pending, expired=True)
        pending.late = limit_ms
        raise _timed_out(pending.tool, limit_ms, "not_published")
    answer = worker.calls.expect_word(pending)
    worker.cancel(pending, expired=True)
    await asyncio.wait((answer,), timeout=word_s)
    word = answer.result() if answer.done() else CallEnd.EXPIRED
    if isinstance(word, Reply):
        return word
    withdrawn = word is CallEnd.WITHDRAWN
    if not withdrawn:
        pending.late = limit_ms
    outcome = "not_published" if withdrawn else "unknown_reconcile"
    raise _timed_out(pending.tool, limit_ms, outcome, pending.job_id)


def _timed_out(
    tool: str, limit_ms: int, write_outcome: str | None, job_id: str | None = None
) -> MaadError:
    details: dict[str, object] = {"tool": tool, "limitMs": limit_ms}
    if write_outcome is not None:
        details["writeOutcome"] = write_outcome
    advice = "retry, or ask for less"
    if job_id is not None:
        details["jobId"] = job_id
        advice = f"it goes on as job {job_id}; maad_health shows how far it is"
    elif write_outcome == "unknown_reconcile":
        advice = _reconcile(tool)
    return MaadError("REQUEST_TIMEOUT", f"{tool} took longer than {limit_ms} ms; {advice}", details)


def _lost(tool: str, *, unpublished: bool = False, stopped: bool = False) -> MaadError:
    if unpublished:
        advice, outcome = "nothing was written", "not_published"
    else:
        advice, outcome = _reconcile(tool), "unknown_reconcile"
    what = "the server stopped" if stopped else "the worker died"
    return MaadError(
        "WORKER_LOST",
        f"{what} while it had {tool}; {advice}",
        {"tool": tool, "writeOutcome": outcome},
    )


def _stopped() -> MaadError:
    return MaadError("SHUTTING_DOWN", "the server stopped before this was done; ask again later")


def _reconcile(tool: str) -> str:
    """What to do about a write of which nobody knows whether it was done."""
    spec = TOOLS.get(tool)
    if spec is not None and spec.idempotent_hint and not spec.destructive_hint:
        return "call it again, which does no harm"
    if tool == "maad_backup":
        return "look at the recovery points (mode list) before calling it again"
    if tool == "maad_instructions":
        return "look at the state of the files (action check) before calling it again"
    return "look at the records before writing again"


def not_ready(supervisor: Supervisor) -> MaadError:
    """RECEIPT_ENGINE_NOT_READY: a strict call starts no worker and waits for none."""
    return MaadError(
        "RECEIPT_ENGINE_NOT_READY",
        f'the engine of project "{supervisor.project.name}" is not ready',
    )
