"""What becomes of a call: answers, timeouts, cancellation, the death of its worker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from pool_bench import QUICK, Bench, call_of, error_of, open_fifo, until

from maadd.pool.calls import _lost, _timed_out
from maadd.pool.held_calls import Terms
from maadd.protocol.errors import MaadError
from maadd.protocol.messages import WorkerSettings

OpenBench = Callable[..., contextlib.AbstractAsyncContextManager[Bench]]
LogInto = Callable[[list[dict[str, Any]]], Any]


async def test_a_call_travels_to_the_projects_worker_and_back(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        one, two = bench.project("one"), bench.project("two")
        for tool in ("echo", "slow_echo"):
            reply = await bench.read(one, tool, docId="x", n=[1, None])
            assert reply.ok
            assert json.loads(reply.body) == {"docId": "x", "n": [1, None]}
        pids = [json.loads((await bench.read(p, "pid")).body) for p in (one, two)]
        assert pids == [bench.pool.snapshot(p).pid for p in (one, two)]
        assert pids[0] != pids[1]


async def test_the_progress_of_a_write_comes_before_its_answer(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        heard: list[tuple[float, float | None, str | None]] = []
        reply = await bench.pool.call(
            project,
            call_of("long_write"),
            is_write=True,
            timeout_s=30,
            on_progress=lambda one: heard.append((one.done, one.total, one.text)),
        )
        assert reply.ok
        assert heard == [(1.0, 2.0, "step 1"), (2.0, 2.0, "step 2")]
        assert (await bench.write(project, "long_write")).ok


async def test_two_hundred_calls_at_once_are_answered_each_with_its_own(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        project = bench.project()
        replies = await asyncio.gather(
            *(bench.read(project, ("echo", "slow_echo")[n % 2], n=n) for n in range(200))
        )
        assert [json.loads(reply.body)["n"] for reply in replies] == list(range(200))
        assert bench.pool.in_flight() == 0


async def test_events_of_writes_reach_the_front(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.write(bench.project(), "put", text="first")
        await until(lambda: bench.events)
        name, event = bench.events[0]
        assert (name, event.origin) == ("one", "first")


async def test_events_of_other_threads_wake_the_writer(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await bench.read(bench.project(), "read_events")
        await until(lambda: bench.events)
        assert bench.events[0][1].origin == "external"


async def test_an_exception_in_a_tool_is_an_answer_without_its_text(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        for awaitable, outcome in (
            (bench.read(project, "raise"), None),
            (bench.write(project, "raise_write"), "not_published"),
            (bench.write(project, "raise_after"), "unknown_reconcile"),
        ):
            reply = await awaitable
            assert (reply.ok, reply.error_code) == (False, "INTERNAL")
            (error,) = json.loads(reply.body)
            assert "secret" not in error["message"]
            assert error.get("details") == (outcome and {"writeOutcome": outcome})
        assert (await bench.read(project, "echo")).ok


async def test_a_read_out_of_time_is_interrupted_and_keeps_its_slot_until_it_ends(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        project = bench.project()
        await bench.pool.ensure_ready(project, 20)
        ended: list[int] = []
        call = call_of("wait")
        work = bench.pool.call(
            project,
            call,
            is_write=False,
            timeout_s=0.05,
            on_end=lambda: ended.append(bench.pool.in_flight()),
        )
        # The worker keeps the same deadline; on a busy machine its answer may come first.
        try:
            [error] = json.loads((await work).body)
        except MaadError as failure:
            error = msgspec.to_builtins(failure.wire())
        assert error["code"] == "REQUEST_TIMEOUT"
        assert error["details"] == {"tool": "wait", "limitMs": 50}
        await until(lambda: ended)
        assert ended == [0]
        assert (await bench.read(project, "slow_echo", n=1)).ok


async def test_the_worker_ends_a_read_at_its_deadline_by_itself(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        await bench.pool.ensure_ready(project, 20)
        worker = next(iter(bench.pool._workers.values()))
        pending = worker.dispatch(call_of("wait"), Terms(is_write=False, deadline_ms=40))
        reply = await pending.outcome
        assert (reply.ok, reply.error_code) == (False, "REQUEST_TIMEOUT")
        assert json.loads(reply.body)[0]["details"] == {"tool": "wait", "limitMs": 40}


async def test_a_write_that_waits_is_withdrawn_and_one_in_hand_is_to_be_reconciled(
    open_bench: OpenBench, log_into: LogInto
) -> None:
    told: list[dict[str, Any]] = []
    async with open_bench(log=log_into(told)) as bench:
        project = bench.project()
        fifo = project.fifo("hold")
        ends: list[str] = []

        def write(text: str, timeout_s: float, **args: str) -> asyncio.Task[object]:
            return asyncio.ensure_future(
                bench.pool.call(
                    project,
                    call_of("put", text=text, **args),
                    is_write=True,
                    timeout_s=timeout_s,
                    on_end=lambda: ends.append(text),
                )
            )

        await bench.pool.ensure_ready(project, 20)
        in_hand = write("in hand", 0.3, after=fifo)
        await until(lambda: project.lines("written") == ["in hand"])
        waiting = write("waiting", 0.05)
        error = await error_of(waiting)
        assert error.details == {"tool": "put", "limitMs": 50, "writeOutcome": "not_published"}
        assert ends == ["waiting"]
        error = await error_of(in_hand)
        assert error.details == {"tool": "put", "limitMs": 300, "writeOutcome": "unknown_reconcile"}
        assert (ends, bench.pool.in_flight()) == (["waiting"], 1)
        await asyncio.to_thread(open_fifo, fifo)
        await until(lambda: bench.pool.in_flight() == 0)
        assert ends == ["waiting", "in hand"]
        # Only what went on behind its answer is logged when it ends.
        [overrun] = [line for line in told if line["event"] == "tool_call_overrun"]
        assert {name: overrun[name] for name in ("level", "tool", "limit_ms", "error")} == {
            "level": "warning",
            "tool": "put",
            "limit_ms": 300,
            "error": None,
        }
        assert overrun["request_id"]
        assert (await write("last", 20)).ok
        assert project.lines("written") == ["in hand", "last"]


async def test_a_write_before_its_publish_point_is_withdrawn_from_its_group(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        project = bench.project()
        fifo = project.fifo("hold")
        await bench.pool.ensure_ready(project, 20)
        error = await error_of(bench.write(project, "put", timeout_s=0.1, before=fifo))
        assert error.details is not None
        assert error.details["writeOutcome"] == "not_published"
        await asyncio.to_thread(open_fifo, fifo)
        await bench.write(project, "put", text="next")
        assert project.lines("written") == ["next"]


async def test_a_reply_that_comes_after_the_timeout_is_still_the_answer(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        project = bench.project(behaviour="answers-cancel")
        await bench.pool.ensure_ready(project, 20)
        assert (await bench.write(project, "put", timeout_s=0.02)).body == b'"late"'


async def test_without_a_word_of_the_worker_a_write_is_to_be_reconciled(
    open_bench: OpenBench,
) -> None:
    policy = msgspec.structs.replace(QUICK, cancel_answer_s=0.05, drain_s=0.1, term_s=0.1)
    async with open_bench(policy) as bench:
        project = bench.project(behaviour="stubborn")
        await bench.pool.ensure_ready(project, 20)
        error = await error_of(bench.write(project, "put", timeout_s=0.02))
        assert error.code == "REQUEST_TIMEOUT"
        assert error.details == {"tool": "put", "limitMs": 20, "writeOutcome": "unknown_reconcile"}


async def test_a_cancelled_caller_cancels_the_call(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        await bench.pool.ensure_ready(project, 20)
        ended = asyncio.Event()
        reading = asyncio.ensure_future(
            bench.pool.call(
                project, call_of("wait"), is_write=False, timeout_s=30, on_end=ended.set
            )
        )
        await until(lambda: project.lines("waiting"))
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        async with asyncio.timeout(20):
            await ended.wait()
        assert bench.pool.in_flight() == 0


async def test_a_write_that_waits_too_long_for_the_writer(open_bench: OpenBench) -> None:
    async with open_bench(settings=WorkerSettings(write_wait_ms=40)) as bench:
        project = bench.project()
        first = await bench.hold_write(project, "first")
        reply = await bench.write(project, "put", text="second")
        assert reply.error_code == "WRITE_TIMEOUT"
        details = json.loads(reply.body)[0]["details"]
        assert details["waitedMs"] >= 40
        assert details["queueDepth"] == 2
        assert (await first.finish()).ok
        assert project.lines("written") == ["first"]


async def test_writes_that_wait_are_taken_as_a_group_of_at_most_sixty_four(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        project = bench.project()
        texts = [f"text {n}" for n in range(100)]
        first = await bench.hold_write(project, "first")
        others = [asyncio.ensure_future(bench.write(project, "put", text=t)) for t in texts]
        await until(lambda: bench.pool.in_flight() == 101)
        # Reads never wait for writes; this one is behind all of them on the wire.
        assert (await bench.read(project, "echo")).ok
        await first.release()
        assert all(reply.ok for reply in await asyncio.gather(first.reply, *others))
        assert project.lines("groups") == ["1", "64", "36"]
        assert project.lines("written") == ["first", *texts]


async def test_the_writer_settles_after_a_group_and_then_until_nothing_is_left(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        project = bench.project()
        await bench.write(project, "put")
        await until(lambda: len(project.lines("settled")) == 4)
        assert project.lines("settled") == ["True", "False", "True", "True"]


async def test_more_calls_than_the_queue_holds_are_refused(open_bench: OpenBench) -> None:
    async with open_bench(msgspec.structs.replace(QUICK, worker_queue=3)) as bench:
        project = bench.project()
        reads = [asyncio.ensure_future(bench.read(project, "wait")) for _ in range(3)]
        await until(lambda: bench.pool.in_flight() == 3)
        error = await error_of(bench.read(project, "echo"))
        assert error.code == "OVERLOADED"
        assert error.details == {"reason": "worker_queue", "limit": 3, "retryAfterMs": 500}
        for read in reads:
            read.cancel()
        await until(lambda: bench.pool.in_flight() == 0)
        assert (await bench.read(project, "echo")).ok


async def test_a_read_is_repeated_once_on_the_next_worker(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        reply = await bench.read(project, "die_once")
        assert json.loads(reply.body) == bench.pool.snapshot(project).pid
        assert len(project.lines("starts")) == 2


async def test_a_read_that_kills_two_workers_is_given_up(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        error = await error_of(bench.read(project, "die"))
        assert error.code == "PROJECT_UNAVAILABLE"
        assert error.details is not None
        assert set(error.details) == {"state", "retryAfterMs"}
        assert len(project.lines("starts")) == 2


@pytest.mark.parametrize(
    ("tool", "advice"),
    [
        ("maad_create", "look at the records before writing again"),
        ("maad_delete_where", "look at the records before writing again"),
        ("maad_reindex", "call it again, which does no harm"),
        ("maad_flush", "call it again, which does no harm"),
        ("maad_backup", "look at the recovery points"),
        ("maad_instructions", "look at the state of the files"),
    ],
)
def test_the_advice_behind_a_lost_write_fits_the_tool(tool: str, advice: str) -> None:
    for error in (_lost(tool), _timed_out(tool, 5, "unknown_reconcile")):
        assert advice in error.message
        assert error.details is not None
        assert error.details["writeOutcome"] == "unknown_reconcile"


async def test_a_write_whose_worker_dies_is_never_repeated(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        error = await error_of(bench.write(project, "die_in_write", text="once"))
        assert error.code == "WORKER_LOST"
        assert error.details == {"tool": "die_in_write", "writeOutcome": "unknown_reconcile"}
        assert (await bench.write(project, "put", text="next")).ok
        assert project.lines("written") == ["once", "next"]


async def test_a_server_that_waits_no_longer_tells_what_is_known_of_each_call(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        project, silent = bench.project(), bench.project("two", behaviour="mute")
        held = await bench.hold_write(project, "once")
        reading = asyncio.ensure_future(bench.read(project, "wait"))
        starting = asyncio.ensure_future(bench.write(silent, "put"))
        await until(lambda: project.lines("waiting"))
        await until(lambda: bench.pool.snapshot(silent).state == "starting")
        bench.pool.abandon()
        lost = await error_of(held.reply)
        assert (lost.code, lost.details) == (
            "WORKER_LOST", {"tool": "put", "writeOutcome": "unknown_reconcile"},
        )  # fmt: skip
        assert "the server stopped while it had put; look at the records" in lost.message
        for never_done in (reading, starting):
            assert (await error_of(never_done)).code == "SHUTTING_DOWN"
        await held.release()
        await until(lambda: bench.pool.in_flight() == 0)
        assert project.lines("written") == ["once"]


async def test_a_strict_call_never_starts_a_worker_and_is_never_repeated(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        project = bench.project()

        async def strict(tool: str) -> object:
            return await bench.pool.call(
                project, call_of(tool), is_write=False, timeout_s=30, strict=True
            )

        assert (await error_of(strict("echo"))).code == "RECEIPT_ENGINE_NOT_READY"
        assert project.lines("starts") == []
        await bench.pool.ensure_ready(project, 20)
        assert (await strict("echo")).ok
        assert (await error_of(strict("die_once"))).code == "RECEIPT_ENGINE_NOT_READY"


async def test_on_end_is_called_when_nothing_was_ever_sent(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        ended: list[int] = []
        await error_of(
            bench.pool.call(
                bench.project(behaviour="refuse"),
                call_of("echo"),
                is_write=False,
                timeout_s=30,
                on_end=lambda: ended.append(1),
            )
        )
        assert ended == [1]


async def test_descriptors_do_not_grow_with_the_calls(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()

        async def descriptors() -> tuple[int, int]:
            reply = await bench.read(project, "descriptors")
            return len(os.listdir("/proc/self/fd")), json.loads(reply.body)

        async def work(rounds: int) -> None:
            for n in range(rounds):
                await asyncio.gather(
                    *(bench.read(project, ("echo", "slow_echo")[n % 2]) for _ in range(100))
                )
                await bench.write(project, "put")

        await work(2)
        before = await descriptors()
        await work(10)
        after = await descriptors()
        # One may be open for the moment of the count; a leak would show in every round.
        assert all(new <= old + 2 for new, old in zip(after, before, strict=True))


async def test_a_job_outlives_the_time_of_its_call_which_is_told_its_id(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        project = bench.project()
        await bench.pool.ensure_ready(project, 20)
        error = await error_of(bench.write(project, "job", timeout_s=0.2))
        assert error.code == "REQUEST_TIMEOUT"
        assert error.details == {
            "tool": "job",
            "limitMs": 200,
            "writeOutcome": "unknown_reconcile",
            "jobId": "job-1",
        }
        assert "job-1" in error.message
        assert project.lines("left") == ["expired"]
        await bench.write(project, "put", text="meanwhile")
        assert bench.pool.in_flight() == 1
        await bench.write(project, "end_jobs")
        await until(lambda: bench.pool.in_flight() == 0)


async def test_a_caller_that_cancels_does_not_want_the_job_any_more(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        task = asyncio.ensure_future(bench.write(project, "job"))
        await until(lambda: project.lines("written") == ["job"])
        task.cancel()
        await until(lambda: project.lines("left") == ["cancelled"])


async def test_whoever_waits_for_a_job_is_answered_before_the_worker_stops(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        project = bench.project()
        task = asyncio.ensure_future(bench.write(project, "job"))
        await until(lambda: project.lines("written") == ["job"])
        await bench.pool.close()
        reply = await task
        assert reply.error_code == "SHUTTING_DOWN"


async def test_a_worker_with_a_job_that_nobody_waits_for_is_not_idle(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        await bench.write(project, "put", text="first")
        await until(lambda: [idle.project for idle in bench.pool.idle_workers()] == ["one"])
        await bench.write(project, "job_alone")
        await until(lambda: bench.pool.jobs_alone == 1)
        assert bench.pool.idle_workers() == []
