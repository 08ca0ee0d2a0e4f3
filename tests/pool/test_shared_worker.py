"""A worker that another front uses through a socket: the relay at its owner's, and the stand-in
at the other's (spec 04 §10). The one behind the socket is a real worker of a real pool."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pool_bench import QUICK, Bench, Directory, call_of, open_fifo, opened_bench, until
from structlog.testing import capture_logs

from maadd.pool.control_stream import read_message
from maadd.pool.relay import Relay
from maadd.pool.worker_handle import WorkerHandle
from maadd.protocol.control import (
    Attached,
    FromOwner,
    Leaving,
    Lost,
    Refused,
    decode_request,
    decode_to_owner,
    encode,
)
from maadd.protocol.errors import MaadError, WireError
from maadd.protocol.messages import (
    RESYNC,
    Call,
    CallProgress,
    Cancelled,
    Event,
    Failed,
    Hello,
    Permit,
    PermitRequest,
    Ready,
    ResultBudget,
)
from maadd_worker.disk.owner_lock import OwnerLock

OpenBench = Callable[..., contextlib.AbstractAsyncContextManager[Bench]]
FOLLOWING = msgspec.structs.replace(QUICK, attaches=True, attach_wait_s=0.3)


def write_of(tool: str, **args: object) -> Call:
    return msgspec.structs.replace(call_of(tool, **args), is_write=True)


def let_go(path: str) -> None:
    """Let whoever is held by the FIFO go on, if anybody is."""
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))


class Told:
    """What the relay told the other side."""

    def __init__(self, bench: Bench, project: Directory) -> None:
        self.messages: list[FromOwner] = []
        self.relay = bench.pool.relay(project, self.messages.append)

    async def next(self) -> Any:
        await until(lambda: self.messages)
        return self.messages.pop(0)


async def test_the_relay_tells_of_the_worker_and_of_each_call(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        told = Told(bench, project)
        told.relay.announce()
        assert isinstance(await told.next(), Hello)
        assert await told.next() == Ready(0, [], None)
        told.relay.take(call_of("echo", docId="x"))
        reply = await told.next()
        assert json.loads(reply.body) == {"docId": "x"}
        write = msgspec.structs.replace(write_of("long_write"), wants_progress=True)
        told.relay.take(write)
        assert await told.next() == CallProgress(write.request_id, 1.0, 2.0, "step 1")
        assert await told.next() == CallProgress(write.request_id, 2.0, 2.0, "step 2")
        assert (await told.next()).ok
        await told.relay.finish()


async def test_the_end_of_the_owner_loses_what_it_has_in_hand(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        told = Told(bench, project)
        fifo = project.fifo("hold")
        write = write_of("put", text="once", after=fifo)
        told.relay.take(write)
        await until(lambda: project.lines("written"))
        bench.pool.abandon()
        assert await told.next() == Lost(write.request_id)
        await asyncio.to_thread(open_fifo, fifo)


async def test_a_fault_of_ours_loses_the_call_instead_of_forgetting_it(
    open_bench: OpenBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(9, "Bad file descriptor")

    with capture_logs() as logged:
        async with open_bench() as bench:
            project = bench.project()
            told = Told(bench, project)
            await bench.read(project, "echo")
            monkeypatch.setattr(WorkerHandle, "dispatch", fail)
            read = call_of("echo")
            told.relay.take(read)
            assert await told.next() == Lost(read.request_id)
            await told.relay.finish()
    assert [line["project"] for line in logged if line["event"] == "relay_failed"] == ["one"]


async def test_what_refuses_a_start_is_told_as_the_workers_failure(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        told = Told(bench, bench.project(behaviour="refuse"))
        told.relay.announce()
        failed = await told.next()
        assert isinstance(failed, Failed)
        assert failed.errors[0].code == "INDEX_EMPTY"
        told.relay.take(call_of("echo"))
        reply = await told.next()
        assert (reply.ok, reply.error_code) == (False, "INDEX_EMPTY")


async def test_a_read_that_nobody_waits_for_is_interrupted(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        told = Told(bench, project)
        read = call_of("wait")
        told.relay.take(read)
        await until(lambda: project.lines("waiting"))
        told.relay.withdraw(read.request_id)
        assert (await told.next()).error_code == "REQUEST_TIMEOUT"
        assert not bench.pool.in_flight()


async def test_a_call_that_no_worker_has_yet_is_withdrawn_at_once(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        fifo = project.fifo("start")
        project.behave(f"slow {fifo}")
        told = Told(bench, project)
        write = write_of("put", text="never")
        told.relay.take(write)
        told.relay.withdraw(write.request_id)
        assert await told.next() == Cancelled(write.request_id, withdrawn=True)
        await told.relay.finish()
        starting = asyncio.create_task(bench.read(project, "echo"))
        await asyncio.to_thread(open_fifo, fifo)
        assert (await starting).ok
        assert project.lines("written") == []


async def test_a_write_before_its_publish_point_is_withdrawn_and_one_behind_it_is_answered(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        project = bench.project()
        told = Told(bench, project)
        hold = project.fifo("hold")
        done, waiting = write_of("put", text="done", after=hold), write_of("put", text="waiting")
        told.relay.take(done)
        await until(lambda: project.lines("written"))
        told.relay.take(waiting)
        told.relay.withdraw(waiting.request_id)
        assert await told.next() == Cancelled(waiting.request_id, withdrawn=True)
        told.relay.withdraw(done.request_id)
        assert await told.next() == Cancelled(done.request_id, withdrawn=False)
        await asyncio.to_thread(open_fifo, hold)
        reply = await told.next()
        assert (reply.request_id, reply.ok) == (done.request_id, True)
        assert project.lines("written") == ["done"]


async def test_a_call_is_lost_with_the_worker_and_the_next_one_has_another(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        told = Told(bench, bench.project())
        write, read = write_of("die_in_write"), call_of("die")
        for lost in (write, read):
            told.relay.take(lost)
            assert await told.next() == Lost(lost.request_id)
        told.relay.take(call_of("echo"))
        assert (await told.next()).ok


# -- the other side ----------------------------------------------------------------------


class Owner:
    """A process that owns a project: its lock, its control socket, a relay to its pool."""

    def __init__(self, bench: Bench, project: Directory, socket_path: str) -> None:
        self.connections: list[asyncio.StreamWriter] = []
        self.answer: Any = Attached(4711, "test")
        self._bench = bench
        self._project = project
        self._path = socket_path
        self._lock: OwnerLock | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self._path)
        self._lock = OwnerLock.acquire(self._project.path, self._path)

    def send(self, message: FromOwner) -> None:
        self.connections[-1].write(encode(message))

    def leave(self) -> None:
        """Be gone, as after a SIGKILL."""
        self.stop_listening()
        for writer in self.connections:
            writer.close()
        self.give_up_lock()

    def stop_listening(self) -> None:
        assert self._server is not None
        self._server.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)

    def give_up_lock(self) -> None:
        assert self._lock is not None
        self._lock.release()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = await read_message(reader)
        assert body is not None
        assert decode_request(body).follow
        writer.write(encode(self.answer))
        if not isinstance(self.answer, Attached):
            writer.close()
            return
        self.connections.append(writer)
        relay: Relay = self._bench.pool.relay(
            self._project, lambda message: writer.write(encode(message))
        )
        relay.announce()
        while (body := await read_message(reader)) is not None:
            message = decode_to_owner(body)
            if isinstance(message, Call):
                relay.take(message)
            else:
                relay.withdraw(message.request_id)
        relay.withdraw_all()


class Pair:
    """Two pools of two fronts; the project lies in `project` for both. The second pool sees the
    first one's worker through the owner, and one of its own when that is gone."""

    def __init__(self, first: Bench, second: Bench, owner: Owner, project: Directory) -> None:
        self.first = first
        self.second = second
        self.owner = owner
        self.project = project

    async def pid(self) -> int:
        pid: int = json.loads((await self.second.read(self.project, "pid")).body)
        return pid


@pytest.fixture
def other_dir() -> Iterator[str]:
    path = tempfile.mkdtemp(prefix="maadd-test-")
    yield path
    shutil.rmtree(path)


@contextlib.asynccontextmanager
async def paired(short_dir: str, other_dir: str, tmp_path: Path) -> AsyncIterator[Pair]:
    async with (
        opened_bench(short_dir, tmp_path) as first,
        opened_bench(other_dir, tmp_path, FOLLOWING) as second,
    ):
        project = first.project()
        Path(project.path, "_backend").mkdir()
        owner = Owner(first, project, f"{short_dir}/control.sock")
        await owner.start()
        try:
            yield Pair(first, second, owner, project)
        finally:
            # Both pools of this process have one fork server: the workers have to end before it.
            await asyncio.gather(*(one.pool.stop_project("one") for one in (second, first)))


async def test_calls_go_to_the_owners_worker_and_events_come_back(
    short_dir: str, other_dir: str, tmp_path: Path
) -> None:
    async with paired(short_dir, other_dir, tmp_path) as pair:
        assert await pair.pid() == pair.first.pool.snapshot(pair.project).pid
        assert pair.second.pool.snapshot(pair.project).pid == await pair.pid()
        assert len(pair.project.lines("starts")) == 1
        event = Event(1, "create", "doc-1", "note", "2026-01-01T00:00:00.000Z", "tool")
        pair.owner.send(event)
        await until(lambda: pair.second.events)
        assert pair.second.events == [("one", event)]


async def test_when_the_owner_is_gone_a_read_is_repeated_and_a_write_is_to_be_reconciled(
    short_dir: str, other_dir: str, tmp_path: Path
) -> None:
    async with paired(short_dir, other_dir, tmp_path) as pair:
        before = await pair.pid()
        hold = pair.project.fifo("hold")
        write = asyncio.create_task(pair.second.write(pair.project, "put", after=hold))
        await until(lambda: pair.project.lines("written"))
        read = asyncio.create_task(pair.second.read(pair.project, "fifo", fifo=hold + "2"))
        pair.project.fifo("hold2")
        await until(lambda: pair.second.pool.in_flight() == 2)
        pair.owner.leave()
        with pytest.raises(MaadError) as caught:
            await write
        assert caught.value.code == "WORKER_LOST"
        assert caught.value.details == {"tool": "put", "writeOutcome": "unknown_reconcile"}
        await until(lambda: len(pair.project.lines("starts")) == 2)
        await asyncio.to_thread(open_fifo, hold)
        # The first worker is held by the read, too, and may be the one that is let go.
        await until(lambda: let_go(hold + "2") or read.done())
        assert (await read).ok
        assert await pair.pid() not in (before, None)
        assert [event.action for _, event in pair.second.events][:1] == [RESYNC]


async def test_an_owner_that_leaves_answers_what_it_has_and_gets_no_more(
    short_dir: str, other_dir: str, tmp_path: Path
) -> None:
    async with paired(short_dir, other_dir, tmp_path) as pair:
        before = await pair.pid()
        hold = pair.project.fifo("hold")
        held = asyncio.create_task(pair.second.write(pair.project, "put", text="held", after=hold))
        await until(lambda: pair.project.lines("written"))
        pair.owner.send(Leaving())
        await until(lambda: pair.second.pool.snapshot(pair.project).state == "draining")
        later = asyncio.create_task(pair.second.write(pair.project, "put", text="later"))
        await asyncio.to_thread(open_fifo, hold)
        assert (await held).ok
        assert not later.done()
        pair.owner.leave()
        assert (await later).ok
        assert await pair.pid() != before
        assert pair.project.lines("written") == ["held", "later"]


async def test_a_project_that_its_owner_serves_no_more_is_taken_over_without_a_call(
    short_dir: str, other_dir: str, tmp_path: Path
) -> None:
    async with paired(short_dir, other_dir, tmp_path) as pair:
        await pair.pid()
        hold = pair.project.fifo("hold")
        held = asyncio.create_task(pair.second.write(pair.project, "put", after=hold))
        await until(lambda: pair.project.lines("written"))
        pair.owner.give_up_lock()
        pair.owner.send(Leaving(removed=True))
        await until(lambda: pair.second.pool.snapshot(pair.project).state == "draining")
        assert len(pair.project.lines("starts")) == 1
        await asyncio.to_thread(open_fifo, hold)
        assert (await held).ok
        await until(lambda: len(pair.project.lines("starts")) == 2)
        assert pair.second.pool.snapshot(pair.project).restarts == 0
        assert RESYNC in [event.action for _, event in pair.second.events]


async def test_a_write_past_its_time_is_given_up_with_the_workers_word(
    short_dir: str, other_dir: str, tmp_path: Path
) -> None:
    async with paired(short_dir, other_dir, tmp_path) as pair:
        await pair.pid()
        hold = pair.project.fifo("hold")
        outcomes = []
        for held in ("after", "before"):
            args = {held: hold, "text": held}
            with pytest.raises(MaadError) as caught:
                await pair.second.write(pair.project, "put", timeout_s=0.5, **args)
            outcomes.append((caught.value.details or {})["writeOutcome"])
            await until(lambda: let_go(hold) or not pair.first.pool.in_flight())
        assert outcomes == ["unknown_reconcile", "not_published"]
        await until(lambda: let_go(hold) or not pair.second.pool.in_flight())


async def test_an_owner_that_cannot_be_reached_is_named_after_a_wait(
    short_dir: str, other_dir: str, tmp_path: Path
) -> None:
    async with paired(short_dir, other_dir, tmp_path) as pair:
        pair.project.behave("locked")
        pair.owner.stop_listening()
        begun = time.monotonic()
        with pytest.raises(MaadError) as caught:
            await pair.second.read(pair.project, "echo")
        assert caught.value.code == "PROJECT_LOCKED"
        assert caught.value.details == {"scope": "project", "ownerPid": os.getpid()}
        assert time.monotonic() - begun >= FOLLOWING.attach_wait_s


async def test_a_refusal_to_attach_is_no_owner_and_the_lock_decides(
    short_dir: str, other_dir: str, tmp_path: Path
) -> None:
    async with paired(short_dir, other_dir, tmp_path) as pair:
        pair.owner.answer = Refused([WireError("SHUTTING_DOWN", "going")])
        reading = asyncio.create_task(pair.second.read(pair.project, "echo"))
        await until(lambda: pair.second.pool.snapshot(pair.project).state == "starting")
        pair.owner.give_up_lock()
        assert (await reading).ok
        assert len(pair.project.lines("starts")) == 1


async def test_a_lost_call_of_the_owners_worker_is_lost_here_too(
    short_dir: str, other_dir: str, tmp_path: Path
) -> None:
    async with paired(short_dir, other_dir, tmp_path) as pair:
        before = await pair.pid()
        with pytest.raises(MaadError) as caught:
            await pair.second.write(pair.project, "die_in_write")
        assert caught.value.code == "WORKER_LOST"
        after = await pair.pid()
        assert after not in (before, os.getpid())
        assert after == pair.first.pool.snapshot(pair.project).pid
        os.kill(after, signal.SIGKILL)
        assert (await pair.second.read(pair.project, "echo")).ok


async def test_letting_go_waits_for_what_the_owner_has(
    short_dir: str, other_dir: str, tmp_path: Path
) -> None:
    async with paired(short_dir, other_dir, tmp_path) as pair:
        await pair.pid()
        hold = pair.project.fifo("hold")
        held = asyncio.create_task(pair.second.write(pair.project, "put", after=hold))
        await until(lambda: pair.project.lines("written"))
        closing = asyncio.create_task(pair.second.pool.stop_project("one"))
        await until(lambda: pair.second.pool.snapshot(pair.project).state == "draining")
        await asyncio.to_thread(open_fifo, hold)
        assert (await held).ok
        await closing
        assert pair.first.pool.snapshot(pair.project).state == "ready"


async def test_a_daemon_waits_for_a_command_and_not_for_another_server(
    open_bench: OpenBench,
) -> None:
    policy = msgspec.structs.replace(QUICK, attach_wait_s=20)
    async with open_bench(policy) as bench:
        project = bench.project(behaviour="locked")
        Path(project.path, "_backend").mkdir()
        command = OwnerLock.acquire(project.path, None)
        reading = asyncio.create_task(bench.read(project, "echo"))
        await until(lambda: project.lines("starts"))
        assert not reading.done()
        command.release()
        assert (await reading).ok
        await bench.pool.stop_project("one")
        server = OwnerLock.acquire(project.path, "/nowhere/control.sock")
        with pytest.raises(MaadError) as caught:
            await bench.read(project, "echo")
        assert caught.value.code == "PROJECT_LOCKED"
        server.release()


def guarded_of(**args: object) -> Call:
    call = write_of("guarded", text="it", **args)
    return msgspec.structs.replace(call, source=b"{}", budget=ResultBudget(131_072))


async def test_the_other_side_permits_what_it_sent(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        told = Told(bench, project)
        call = guarded_of()
        told.relay.take(call)
        asked = await told.next()
        assert isinstance(asked, PermitRequest)
        assert project.lines("written") == []
        told.relay.permit(Permit(asked.request_id))
        assert (await told.next()).ok
        assert project.lines("written") == ["it"]


async def test_the_other_side_may_refuse_what_it_sent(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        told = Told(bench, project)
        told.relay.take(guarded_of())
        asked = await told.next()
        told.relay.permit(Permit(asked.request_id, WireError("TOKEN_REVOKED", "no more")))
        assert (await told.next()).error_code == "TOKEN_REVOKED"
        assert project.lines("written") == []


async def test_a_permit_that_comes_after_a_withdrawal_is_none(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        project = bench.project()
        told = Told(bench, project)
        told.relay.take(guarded_of())
        asked = await told.next()
        told.relay.withdraw(asked.request_id)
        told.relay.permit(Permit(asked.request_id))
        # Whether the worker heard of the one or of the other first:
        assert not getattr(await told.next(), "ok", False)
        await until(lambda: project.lines("permits"))
        assert project.lines("written") == []
        await told.relay.finish()


async def test_the_end_of_the_other_sides_session_reaches_the_worker(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        project = bench.project()
        told = Told(bench, project)
        told.relay.take(msgspec.structs.replace(call_of("echo"), budget=ResultBudget(131_072)))
        await told.next()
        told.relay.forget_session("session")
        await until(lambda: project.lines("forgotten"))
        assert project.lines("forgotten") == ["session"]
