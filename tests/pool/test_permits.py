"""Permits across the process border, and what a strict call asks of the pool (spec 05 §10)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

import msgspec
import pytest
from pool_bench import Bench, Directory, call_of, open_fifo, until

from maadd.protocol.errors import MaadError
from maadd.protocol.messages import Call, Reply, ResultBudget

OpenBench = Callable[..., contextlib.AbstractAsyncContextManager[Bench]]


def guarded(
    bench: Bench,
    project: Directory,
    on_permit: Callable[[], None] = lambda: None,
    *,
    timeout_s: float = 30,
    **args: object,
) -> asyncio.Task[Reply]:
    """A guarded write on its way."""
    work = bench.pool.call(
        project,
        _strict(call_of("guarded", text="it", **args)),
        is_write=True,
        timeout_s=timeout_s,
        strict=True,
        on_permit=on_permit,
    )
    return asyncio.ensure_future(work)


def _strict(call: Call) -> Call:
    return msgspec.structs.replace(call, budget=ResultBudget(131_072))


async def failure(work: asyncio.Task[Reply]) -> MaadError:
    with pytest.raises(MaadError) as failed:
        await work
    return failed.value


async def test_a_permitted_write_is_published(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        await bench.pool.ensure_ready(project, 20)
        asked: list[list[str]] = []
        reply = await guarded(bench, project, lambda: asked.append(project.lines("written")))
        assert reply.ok
        assert asked == [[]]
        assert project.lines("written") == ["it"]


async def test_whoever_lost_access_publishes_nothing(open_bench: OpenBench) -> None:
    def refuse() -> None:
        raise MaadError("TOKEN_REVOKED", "no more")

    async with open_bench() as bench:
        project = bench.project()
        await bench.pool.ensure_ready(project, 20)
        reply = await guarded(bench, project, refuse)
        assert reply.error_code == "TOKEN_REVOKED"
        assert project.lines("written") == []


async def test_a_worker_that_dies_before_its_permit_has_published_nothing(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        project = bench.project()
        await bench.pool.ensure_ready(project, 20)
        work = guarded(bench, project, before=project.fifo("hold"))
        await until(lambda: project.lines("before"))
        os.kill(bench.pool.snapshot(project).pid or 0, signal.SIGKILL)
        error = await failure(work)
        assert error.code == "WORKER_LOST"
        assert error.details == {"tool": "guarded", "writeOutcome": "not_published"}


async def test_a_worker_that_dies_after_its_permit_leaves_the_outcome_open(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        project = bench.project()
        await bench.pool.ensure_ready(project, 20)
        work = guarded(bench, project, after=project.fifo("hold"))
        await until(lambda: project.lines("written"))
        os.kill(bench.pool.snapshot(project).pid or 0, signal.SIGKILL)
        error = await failure(work)
        assert error.details == {"tool": "guarded", "writeOutcome": "unknown_reconcile"}


async def test_what_ran_out_of_time_in_the_queue_is_never_published(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        project = bench.project()
        await bench.pool.ensure_ready(project, 20)
        fifo = project.fifo("hold")
        holding = asyncio.ensure_future(bench.write(project, "put", text="first", after=fifo))
        await until(lambda: project.lines("written") == ["first"])
        asked: list[None] = []
        error = await failure(guarded(bench, project, lambda: asked.append(None), timeout_s=0.05))
        assert error.code == "REQUEST_TIMEOUT"
        assert error.details is not None
        assert error.details["writeOutcome"] == "not_published"
        await asyncio.to_thread(open_fifo, fifo)
        assert (await holding).ok
        assert (await bench.write(project, "put", text="last")).ok
        assert project.lines("written") == ["first", "last"]
        assert asked == []


async def test_what_ran_out_of_time_at_work_is_refused_its_permit(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        await bench.pool.ensure_ready(project, 20)
        fifo = project.fifo("hold")
        error = await failure(guarded(bench, project, timeout_s=0.3, before=fifo))
        assert error.details == {
            "tool": "guarded",
            "limitMs": 300,
            "writeOutcome": "not_published",
        }
        await asyncio.to_thread(open_fifo, fifo)
        await until(lambda: project.lines("permits"))
        assert project.lines("permits") == ["REQUEST_TIMEOUT"]
        assert project.lines("written") == []


async def test_a_worker_that_is_being_replaced_gets_no_permit(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        await bench.pool.ensure_ready(project, 20)
        fifo = project.fifo("hold")
        work = guarded(bench, project, before=fifo)
        await until(lambda: project.lines("before"))
        stopping = asyncio.ensure_future(bench.pool.stop_project("one"))
        await until(lambda: bench.pool.snapshot(project).state == "draining")
        await asyncio.to_thread(open_fifo, fifo)
        reply = await work
        assert reply.error_code == "CREATE_ENGINE_NOT_READY"
        assert project.lines("written") == []
        await stopping


async def test_a_strict_call_starts_no_worker(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        with pytest.raises(MaadError) as refused:
            bench.pool.require_ready(project)
        assert refused.value.code == "RECEIPT_ENGINE_NOT_READY"
        assert (await failure(guarded(bench, project))).code == "RECEIPT_ENGINE_NOT_READY"
        assert project.lines("starts") == []
        await bench.pool.ensure_ready(project, 20)
        bench.pool.require_ready(project)


async def test_a_read_that_outlives_its_engine_gives_nothing_away(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        await bench.pool.ensure_ready(project, 20)
        fifo = project.fifo("hold")
        reading = asyncio.ensure_future(
            bench.pool.call(
                project,
                call_of("fifo", fifo=fifo),
                is_write=False,
                timeout_s=30,
                strict=True,
            )
        )
        await until(lambda: bench.pool.in_flight() == 1)
        stopping = asyncio.ensure_future(bench.pool.stop_project("one"))
        await until(lambda: bench.pool.snapshot(project).state == "draining")
        await asyncio.to_thread(open_fifo, fifo)
        assert (await failure(reading)).code == "RECEIPT_ENGINE_NOT_READY"
        await stopping


async def test_the_end_of_a_session_reaches_the_workers_it_paged_with(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        project = bench.project()
        await bench.pool.ensure_ready(project, 20)
        bench.pool.session_ended("session")
        call = _strict(call_of("echo"))
        await bench.pool.call(project, call, is_write=False, timeout_s=20, strict=True)
        bench.pool.session_ended("other")
        bench.pool.session_ended("session")
        await until(lambda: project.lines("forgotten"))
        assert project.lines("forgotten") == ["session"]


async def test_the_end_of_a_session_withdraws_its_creates(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        await bench.pool.ensure_ready(project, 20)
        fifo = project.fifo("hold")
        work = guarded(bench, project, before=fifo)
        await until(lambda: project.lines("before"))
        bench.pool.session_ended("session")
        assert (await failure(work)).code == "RECEIPT_ENGINE_NOT_READY"
        await asyncio.to_thread(open_fifo, fifo)
        await until(lambda: project.lines("permits"))
        assert project.lines("written") == []
