"""Starting, watching, restarting, giving up and stopping of workers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from pool_bench import QUICK, Bench, Directory, call_of, error_of, gone, open_fifo, until
from structlog.testing import capture_logs

from maadd.pool.policy import PoolPolicy, RestartLimits
from maadd.pool.supervisor import State
from maadd.protocol.errors import MaadError, MaadErrors
from maadd.protocol.messages import HistorySettings

OpenBench = Callable[..., contextlib.AbstractAsyncContextManager[Bench]]


def policy(**changes: object) -> PoolPolicy:
    return msgspec.structs.replace(QUICK, **changes)


def pid_of(bench: Bench, project: Directory) -> int:
    pid = bench.pool.snapshot(project).pid
    assert pid is not None
    return pid


# -- start -------------------------------------------------------------------------------


async def test_a_worker_starts_with_the_first_call_and_says_so(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        assert bench.pool.snapshot(project).state == "absent"
        await bench.read(project, "echo")
        await until(lambda: bench.pool.snapshot(project).rss_mb)
        shown = msgspec.to_builtins(bench.pool.snapshot(project))
        assert shown.pop("rssMb") > 5
        assert shown.pop("startedAt") <= shown.pop("lastHeartbeatAt")
        assert shown == {
            "pid": int(project.lines("starts")[0]),
            "state": "ready",
            "restarts": 0,
            "queueDepth": 0,
            "lastError": None,
            "lastExit": None,
        }


async def test_a_process_that_was_collected_gets_no_signal(open_bench: OpenBench) -> None:
    """Its number, and that of the descriptor, may belong to somebody else by then."""
    async with open_bench() as bench:
        project = bench.project()
        await bench.read(project, "echo")
        worker = bench.pool._supervisor(project).worker
        process = worker._process
        os.kill(process.pid, signal.SIGKILL)
        await worker.ended
        process.signal(signal.SIGKILL)
        assert (await bench.read(project, "echo")).ok


async def test_first_calls_at_once_share_one_start(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        await asyncio.gather(*(bench.read(project, "echo") for _ in range(20)))
        assert len(project.lines("starts")) == 1


async def test_a_project_that_cannot_be_opened_answers_why_for_a_while(
    open_bench: OpenBench,
) -> None:
    async with open_bench(policy(start_failure_ttl_s=600)) as bench:
        project = bench.project(behaviour="refuse")
        reads = (bench.read(project, "echo") for _ in range(3))
        for error in await asyncio.gather(*reads, return_exceptions=True):
            assert isinstance(error, MaadError)
            assert (error.code, error.message) == ("INDEX_EMPTY", "nothing here")
            assert error.details == {"why": "test"}
        assert (await error_of(bench.read(project, "echo"))).code == "INDEX_EMPTY"
        assert len(project.lines("starts")) == 1
        snapshot = bench.pool.snapshot(project)
        assert (snapshot.state, snapshot.restarts) == ("absent", 0)
        assert snapshot.last_error is not None
        assert snapshot.last_error.code == "INDEX_EMPTY"
        assert snapshot.last_exit is not None
        assert snapshot.last_exit.code == 3
        project.behave("good")
        supervisor = bench.pool._supervisors["one"]
        supervisor._failure = msgspec.structs.replace(supervisor._failure, valid_until=0.0)
        assert (await bench.read(project, "echo")).ok
        assert project.lines("served") == ["False", "False"]


async def test_all_reasons_of_a_failed_start_are_told(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        with pytest.raises(MaadErrors) as caught:
            await bench.read(bench.project(behaviour="refuse-twice"), "echo")
        assert [error.code for error in caught.value.errors] == [
            "REGISTRY_INVALID",
            "SCHEMA_INVALID",
        ]


async def test_an_unexpected_failure_to_open_keeps_its_text_to_the_log(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        error = await error_of(bench.read(bench.project(behaviour="break"), "echo"))
        assert error.code == "INTERNAL"
        assert "secret" not in error.message
        assert "RuntimeError" in error.message


async def test_an_index_that_is_wrongly_empty_is_told_with_the_start(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        good, empty = bench.project("good"), bench.project("empty", "empty")
        for project in (good, empty):
            await bench.pool.ensure_ready(project, 20)
        assert [bench.pool.index_empty(p) for p in (good, empty)] == [None, 12]


async def test_the_figures_of_a_worker_are_those_of_its_last_heartbeat(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        assert bench.pool.gauges() == {}
        project = bench.project()
        await bench.pool.ensure_ready(project, 20)
        while (seen := bench.pool.gauges()[project.name]).pending_history != 3:
            await asyncio.sleep(0)
        assert (seen.state, seen.restarts, seen.held, seen.queue_depth) == ("ready", 0, 0, 0)
        assert seen.pending_changes == 2
        assert (seen.rss_bytes or 0) > 1_000_000


async def test_the_types_of_a_project_come_with_the_heartbeat(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        started, unknown = bench.project("started"), bench.project("unknown")
        await bench.pool.ensure_ready(started, 20)
        assert bench.pool.doc_types(unknown) is None
        while bench.pool.doc_types(started) is None:
            await asyncio.sleep(0.005)  # a heartbeat has no event of its own
        assert bench.pool.doc_types(started) == ["note"]


async def test_a_slow_start_is_no_death_while_the_worker_gives_signs_of_life(
    open_bench: OpenBench,
) -> None:
    async with open_bench(policy(start_timeout_s=600)) as bench:
        project = bench.project()
        fifo = project.fifo("hold")
        project.behave(f"slow {fifo}")
        error = await error_of(bench.pool.ensure_ready(project, 0.3))
        assert error.code == "PROJECT_UNAVAILABLE"
        assert error.details == {"state": "starting", "retryAfterMs": 1000}
        worker = next(iter(bench.pool._workers.values()))
        await until(lambda: worker.heartbeat)
        started = worker._heard
        await until(lambda: worker._heard >= started + 0.5)
        # The start has taken longer than its limit, the silence has not.
        worker.check(started + 600.25)
        assert worker.death is None
        assert worker.heartbeat.state == "starting"
        assert worker.heartbeat.progress == "waiting for the fifo"
        await asyncio.to_thread(open_fifo, fifo)
        assert (await bench.read(project, "echo")).ok
        assert len(project.lines("starts")) == 1


async def test_a_start_without_a_sign_of_life_is_ended(open_bench: OpenBench) -> None:
    async with open_bench(policy(start_timeout_s=600)) as bench:
        project = bench.project(behaviour="mute")
        reading = asyncio.ensure_future(bench.read(project, "echo"))
        await until(lambda: project.lines("starts"))
        project.behave("good")
        await fall_silent(bench)
        assert (await reading).ok
        assert len(project.lines("starts")) == 2


# -- death -------------------------------------------------------------------------------


async def test_a_killed_worker_is_replaced_and_the_log_hints_at_memory(
    open_bench: OpenBench,
) -> None:
    with capture_logs() as logs:
        async with open_bench() as bench:
            project = bench.project()
            await bench.read(project, "echo")
            old = pid_of(bench, project)
            os.kill(old, signal.SIGKILL)
            await gone(old)
            await until(lambda: bench.pool.snapshot(project).restarts)
            assert (await bench.read(project, "echo")).ok
            assert project.lines("served") == ["False", "True"]
            snapshot = bench.pool.snapshot(project)
            assert (snapshot.state, snapshot.restarts) == ("ready", 1)
            assert snapshot.last_exit is not None
            assert (snapshot.last_exit.code, snapshot.last_exit.signal) == (None, "SIGKILL")
    hints = [line for line in logs if line["event"] == "worker_killed_from_outside"]
    assert [line["worker_pid"] for line in hints] == [old]
    assert "memory" in hints[0]["hint"]


async def fall_silent(bench: Bench) -> None:
    """Have the one worker count as silent for ever, until it is ended for that."""
    (worker,) = bench.pool._workers.values()

    def ended() -> bool:
        # Again and again: a pool that stood still grants its workers time.
        worker._heard = -math.inf
        return worker.death is not None

    await until(ended)


PATIENT = RestartLimits(first_delay_s=0.01, max_delay_s=30, jitter=0)
"""Each wait is longer than the one before, so that it is seen sooner or later."""


async def test_other_projects_do_not_notice(open_bench: OpenBench) -> None:
    async with open_bench(policy(restart=PATIENT)) as bench:
        good, bad = bench.project("good"), bench.project("bad", "die")
        await bench.read(good, "echo")
        await until_failed(bench, bad)
        assert (await bench.read(good, "echo")).ok
        assert bench.pool.snapshot(good).restarts == 0


async def until_failed(bench: Bench, project: Directory) -> None:
    with contextlib.suppress(MaadError):
        await bench.read(project, "echo")
    await until(lambda: bench.pool.snapshot(project).state == "failed")


async def test_after_five_deaths_a_project_is_failed_and_a_probe_brings_it_back(
    open_bench: OpenBench,
) -> None:
    with capture_logs() as logs:
        async with open_bench(policy(restart=PATIENT)) as bench:
            project = bench.project(behaviour="die")
            error = await error_of(bench.read(project, "echo"))
            assert error.code == "PROJECT_UNAVAILABLE"
            assert error.details is not None
            assert error.details["state"] == "failed"
            assert 0 < error.details["retryAfterMs"] <= 30_000
            snapshot = bench.pool.snapshot(project)
            assert snapshot.last_error is not None
            assert "exit code 9" in snapshot.last_error.message
            project.behave("good")
            await until(lambda: bench.pool.snapshot(project).state == "ready")
            assert (await bench.read(project, "echo")).ok
            project.behave("die")
            os.kill(pid_of(bench, project), signal.SIGKILL)
            await until(lambda: bench.pool.snapshot(project).state == "failed")
    deaths = [line["failed"] for line in logs if line["event"] == "worker_died"]
    assert deaths == [False] * 4 + [True] * (len(deaths) - 4)


async def test_a_call_that_cannot_live_to_see_the_next_start_is_told_at_once(
    open_bench: OpenBench,
) -> None:
    async with open_bench(policy(restart=RestartLimits(first_delay_s=30, jitter=0))) as bench:
        project = bench.project()
        await bench.read(project, "echo")
        os.kill(pid_of(bench, project), signal.SIGKILL)
        await until(lambda: bench.pool.snapshot(project).state == "backoff")
        error = await error_of(bench.read(project, "echo", timeout_s=10))
        assert error.code == "PROJECT_UNAVAILABLE"
        assert error.details is not None
        assert error.details["state"] == "backoff"
        assert 20_000 < error.details["retryAfterMs"] <= 30_000


async def test_a_stop_during_the_back_off_cancels_it(open_bench: OpenBench) -> None:
    async with open_bench(policy(restart=RestartLimits(first_delay_s=30, jitter=0))) as bench:
        project = bench.project()
        await bench.read(project, "echo")
        os.kill(pid_of(bench, project), signal.SIGKILL)
        await until(lambda: bench.pool.snapshot(project).state == "backoff")
        await bench.pool.stop_project("one")
        assert bench.pool.snapshot(project).state == "absent"
        assert (await bench.read(project, "echo")).ok


async def test_a_worker_that_falls_silent_is_killed_and_replaced(open_bench: OpenBench) -> None:
    async with open_bench(policy(heartbeat_limit_s=600)) as bench:
        project = bench.project(behaviour="silent")
        await bench.pool.ensure_ready(project, 20)
        reading = asyncio.ensure_future(bench.read(project, "echo"))
        await until(lambda: bench.pool.in_flight() == 1)
        project.behave("good")
        await fall_silent(bench)
        assert (await reading).ok
        assert len(project.lines("starts")) == 2


async def test_a_worker_stopped_for_less_than_the_limit_lives(open_bench: OpenBench) -> None:
    async with open_bench(policy(heartbeat_limit_s=10)) as bench:
        project = bench.project()
        await bench.read(project, "echo")
        pid = pid_of(bench, project)
        worker = next(iter(bench.pool._workers.values()))
        os.kill(pid, signal.SIGSTOP)
        reading = asyncio.ensure_future(bench.read(project, "echo", n=1))
        silent_since = time.monotonic()
        await until(lambda: time.monotonic() - silent_since > 1.5)
        os.kill(pid, signal.SIGCONT)
        assert (await reading).ok
        await until(lambda: worker.heartbeat)
        assert pid_of(bench, project) == pid


async def test_a_front_that_stood_still_does_not_blame_its_workers(open_bench: OpenBench) -> None:
    async with open_bench(policy(heartbeat_limit_s=600)) as bench:
        project = bench.project()
        await bench.read(project, "echo")
        pid = pid_of(bench, project)
        (worker,) = bench.pool._workers.values()
        worker._heard = -math.inf
        # Blocks the whole loop, as a stop of the front would.
        time.sleep(4 * QUICK.check_interval_s)
        await bench.pool._check()
        assert worker.death is None
        assert (await bench.read(project, "echo")).ok
        assert pid_of(bench, project) == pid


async def test_calls_go_on_when_the_fork_server_dies(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        one, two = bench.project("one"), bench.project("two")
        await bench.read(one, "echo")
        pid = pid_of(bench, one)
        parent = int(stat_of(pid)[1])
        os.kill(parent, signal.SIGKILL)
        await until(lambda: not os.path.exists(f"/proc/{parent}/exe") or stat_of(parent)[0] == "Z")
        assert (await bench.read(one, "echo")).ok
        assert (await bench.read(two, "echo")).ok
        assert pid_of(bench, one) == pid


def stat_of(pid: int) -> list[str]:
    """State, parent and so on of a process."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


# -- limits ------------------------------------------------------------------------------


async def test_an_idle_worker_is_closed_and_counted(open_bench: OpenBench) -> None:
    async with open_bench(policy(idle_timeout_s=0.05)) as bench:
        project = bench.project()
        await bench.read(project, "echo")
        pid = pid_of(bench, project)
        await gone(pid)
        await until(lambda: bench.pool.sweep_snapshot().evictions_total == 1)
        assert project.lines("closed") == [str(pid)]
        assert bench.pool.sweep_snapshot().last_eviction_projects == ("one",)
        snapshot = bench.pool.snapshot(project)
        assert (snapshot.state, snapshot.restarts, snapshot.last_error) == ("absent", 0, None)


async def test_a_worker_with_a_call_is_never_idle(open_bench: OpenBench) -> None:
    async with open_bench(policy(idle_timeout_s=0.05)) as bench:
        project = bench.project()
        reading = asyncio.ensure_future(bench.read(project, "wait"))
        await until(lambda: project.lines("waiting"))
        before = bench.pool.sweep_snapshot()
        await until(lambda: bench.pool.sweep_snapshot().sweeps_run >= before.sweeps_run + 3)
        assert bench.pool.in_flight() == 1
        assert bench.pool.sweep_snapshot().evictions_total == before.evictions_total
        reading.cancel()


async def test_the_least_recently_used_idle_worker_makes_room(open_bench: OpenBench) -> None:
    async with open_bench(policy(worker_max=2)) as bench:
        one, two, three = (bench.project(name) for name in ("one", "two", "three"))
        await bench.read(one, "echo")
        await bench.read(two, "echo")
        await bench.read(one, "echo")
        await bench.read(three, "echo")
        states = {name: s.state for name, s in bench.pool.snapshots().items()}
        assert states == {"one": "ready", "two": "absent", "three": "ready"}


async def test_without_an_idle_worker_there_is_no_room(open_bench: OpenBench) -> None:
    async with open_bench(policy(worker_max=1)) as bench:
        one, two = bench.project("one"), bench.project("two")
        reading = asyncio.ensure_future(bench.read(one, "wait"))
        await until(lambda: one.lines("waiting"))
        error = await error_of(bench.read(two, "echo"))
        assert error.code == "OVERLOADED"
        assert error.details == {"reason": "workers", "limit": 1, "retryAfterMs": 500}
        reading.cancel()
        await until(lambda: bench.pool.in_flight() == 0)
        assert (await bench.read(two, "echo")).ok


async def test_a_worker_over_its_memory_is_drained_and_replaced(open_bench: OpenBench) -> None:
    async with open_bench(policy(memory_limit_mb=80)) as bench:
        project = bench.project(behaviour="large")
        fifo = project.fifo("hold")
        reading = asyncio.ensure_future(bench.read(project, "fifo", fifo=fifo))
        await until(lambda: bench.pool.snapshot(project).state == "draining")
        project.behave("good")
        late = asyncio.ensure_future(bench.read(project, "pid"))
        await asyncio.to_thread(open_fifo, fifo)
        assert (await reading).ok
        assert json.loads((await late).body) == int(project.lines("starts")[1])
        assert bench.pool.snapshot(project).restarts == 0
        assert project.lines("closed") == project.lines("starts")[:1]


# -- stop --------------------------------------------------------------------------------


async def test_close_lets_accepted_calls_finish_and_refuses_new_ones(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        project = bench.project()
        writing = await bench.hold_write(project, "last")
        pid = pid_of(bench, project)
        closing = asyncio.ensure_future(bench.pool.close())
        await until(lambda: bench.pool.snapshot(project).state == "draining")
        assert (await error_of(bench.read(project, "echo"))).code == "SHUTTING_DOWN"
        assert (await error_of(bench.read(bench.project("new"), "echo"))).code == "SHUTTING_DOWN"
        assert (await writing.finish()).ok
        await closing
        await gone(pid)
        assert project.lines("closed") == [str(pid)]


async def test_a_stubborn_worker_is_asked_then_told_then_killed(
    open_bench: OpenBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_bench() as bench:
        project = bench.project(behaviour="stubborn")
        await bench.pool.ensure_ready(project, 20)
        pid = pid_of(bench, project)
        (worker,) = bench.pool._workers.values()
        waits = worker._ends_within
        heard = iter((["Drain"], ["Drain", "SIGTERM"]))

        async def ends_within(seconds: float) -> bool:
            """Each step's time is over when the worker has noticed it."""
            signs = next(heard, None)
            if signs is None:
                return await waits(seconds)
            await until(lambda: project.lines("signals") == signs)
            return False

        monkeypatch.setattr(worker, "_ends_within", ends_within)
        await bench.pool.close()
        await gone(pid)
        assert project.lines("signals") == ["Drain", "SIGTERM"]


async def test_close_ends_workers_that_are_still_starting(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        project.behave(f"slow {project.fifo('hold')}")
        reading = asyncio.ensure_future(bench.read(project, "echo"))
        await until(lambda: project.lines("starts"))
        await bench.pool.close(timeout_s=0.7)
        assert (await error_of(reading)).code == "SHUTTING_DOWN"
        await gone(int(project.lines("starts")[0]))


async def test_a_worker_told_to_end_by_somebody_else_hands_its_calls_over(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        project = bench.project()
        writing = await bench.hold_write(project, "old")
        os.kill(pid_of(bench, project), signal.SIGTERM)
        await until(lambda: bench.pool.snapshot(project).state == "draining")
        late = asyncio.ensure_future(bench.write(project, "put", text="new"))
        assert (await writing.finish()).ok
        assert (await late).ok
        assert project.lines("written") == ["old", "new"]
        assert bench.pool.snapshot(project).restarts == 0


async def test_descriptors_stay_constant_over_starts_and_stops(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()

        async def start_kill_and_stop() -> None:
            await bench.read(project, "echo")
            os.kill(pid_of(bench, project), signal.SIGKILL)
            await until(lambda: bench.pool.snapshot(project).pid is None)
            await bench.read(project, "echo")
            await bench.pool.stop_project("one")

        await start_kill_and_stop()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            await start_kill_and_stop()
        # A thread of ZeroMQ closes the connections, when it comes to that.
        await until(lambda: len(os.listdir("/proc/self/fd")) <= before)


FEED = HistorySettings("feed", "feed", "project")


def mode_of(bench: Bench) -> str:
    (worker,) = bench.pool._workers.values()
    return worker._config.history.effective_mode


async def test_a_changed_configuration_restarts_a_worker_after_what_it_holds(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        old = bench.project()
        held = await bench.hold_write(old, "kept")
        new = Directory("one", old.path, FEED)
        restart = asyncio.ensure_future(bench.pool.restart_project(new, 20))
        waiting = asyncio.ensure_future(bench.read(new, "echo"))
        await held.release()
        await restart
        assert (await held.reply).ok
        assert (await waiting).ok
        assert mode_of(bench) == "feed"
        assert old.lines("written") == ["kept"]
        assert bench.pool.snapshot(new).restarts == 0
        # A call that chose the project before the change does not bring the old one back.
        await bench.read(old, "echo")
        os.kill(pid_of(bench, old), signal.SIGKILL)
        await until(lambda: bench.pool.snapshot(new).restarts == 1)
        assert (await bench.read(old, "echo")).ok
        assert mode_of(bench) == "feed"


async def test_a_changed_configuration_starts_no_worker(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        old = bench.project()
        await bench.read(old, "echo")
        await bench.pool.stop_project("one")
        await bench.pool.restart_project(Directory("one", old.path, FEED), 5)
        assert bench.pool.snapshot(old).state == "absent"
        await bench.read(old, "echo")
        assert mode_of(bench) == "feed"


async def test_a_removed_project_finishes_what_it_holds_and_takes_no_more(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        project = bench.project()
        held = await bench.hold_write(project, "kept")
        pid = pid_of(bench, project)
        supervisor = bench.pool._supervisors["one"]
        removal = asyncio.ensure_future(bench.pool.remove_project("one", 20))
        await until(lambda: supervisor.state is State.DRAINING)
        late = await error_of(supervisor.ready(5))
        assert late.code == "PROJECT_UNKNOWN"
        await held.release()
        await removal
        assert (await held.reply).ok
        await gone(pid)
        assert bench.pool.snapshots() == {}


async def test_only_what_the_table_names_is_served(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        bench.pool.serve({"one": project})
        await bench.read(project, "echo")
        await bench.pool.stop_project("one")
        moved = Directory("one", str(Path(project.path).parent))
        stranger = Directory("two", project.path)
        for unknown in (moved, stranger):
            assert (await error_of(bench.read(unknown, "echo"))).code == "PROJECT_UNKNOWN"
        # The table says how a project runs, whatever the caller remembers.
        await bench.read(Directory("one", project.path, FEED), "echo")
        assert mode_of(bench) == "audit"
        bench.pool.serve({})
        ends: list[bool] = []
        refused = bench.pool.call(
            project,
            call_of("echo"),
            is_write=False,
            timeout_s=5,
            on_end=lambda: ends.append(True),
        )
        assert (await error_of(refused)).code == "PROJECT_UNKNOWN"
        assert ends == [True]


async def test_a_call_that_waits_for_the_start_of_a_removed_project_is_told(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        project = bench.project()
        project.behave(f"slow {project.fifo('hold')}")
        waiting = asyncio.ensure_future(error_of(bench.pool.ensure_ready(project, 20)))
        await until(lambda: project.lines("starts"))
        await bench.pool.remove_project("one", 5)
        assert (await waiting).code == "PROJECT_UNKNOWN"


async def test_a_removed_project_that_holds_on_is_killed(open_bench: OpenBench) -> None:
    async with open_bench(policy(term_s=0.2)) as bench:
        project = bench.project()
        gate = project.fifo("gate")
        held = asyncio.ensure_future(error_of(bench.write(project, "put", after=gate)))
        await until(lambda: bench.pool.in_flight() == 1)
        await bench.pool.remove_project("one", 0.1)
        assert (await held).code == "WORKER_LOST"


async def test_a_directory_moves_to_another_name_once_its_worker_is_gone(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        old = bench.project()
        held = await bench.hold_write(old, "kept")
        removal = asyncio.ensure_future(bench.pool.remove_project("one", 20))
        new = Directory("two", old.path)
        waiting = asyncio.ensure_future(bench.read(new, "echo"))
        await until(lambda: "two" in bench.pool.snapshots())
        assert len(old.lines("starts")) == 1
        await held.release()
        await removal
        assert (await held.reply).ok
        assert (await waiting).ok
        assert len(old.lines("starts")) == 2


async def test_chosen_idle_workers_are_closed_and_busy_ones_are_not(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        first, second, third = (bench.project(name) for name in ("one", "two", "three"))
        for project in (first, second, third):
            await bench.read(project, "echo")
        held = await bench.hold_write(second, "kept")
        assert [worker.project for worker in bench.pool.idle_workers()] == ["one", "three"]
        assert await bench.pool.evict({"one", "two"}) == ["one"]
        assert bench.pool.snapshot(first).state == "absent"
        assert bench.pool.snapshot(third).state == "ready"
        assert (await held.finish()).ok


async def test_a_worker_that_gets_a_call_when_it_is_chosen_to_be_closed_stays(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        project = bench.project()
        await bench.read(project, "echo")
        fifo = project.fifo("hold")
        closing = asyncio.create_task(bench.pool.evict({"one"}))
        reading = asyncio.create_task(bench.read(project, "fifo", fifo=fifo))
        assert await closing == []
        assert bench.pool.in_flight() == 1
        assert bench.pool.snapshot(project).state == "ready"
        await asyncio.to_thread(open_fifo, fifo)
        assert (await reading).ok
        assert len(project.lines("starts")) == 1
        assert await bench.pool.evict({"one"}) == ["one"]
