"""A worker process as its front sees it: the messages, in their order."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import small_engine
import zmq

from maadd.protocol.messages import (
    Bye,
    Call,
    Cancel,
    Cancelled,
    Drain,
    Event,
    Failed,
    Heartbeat,
    Hello,
    HistorySettings,
    Ready,
    Reply,
    ToFront,
    ToWorker,
    WorkerConfig,
    WorkerSettings,
    decode_to_front,
    encode,
)


class Worker:
    """A worker process with the test in place of the front."""

    def __init__(self, root: Path, socket_dir: str, settings: WorkerSettings) -> None:
        endpoint = f"ipc://{socket_dir}/workers.sock"
        self.root = root
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.router_mandatory = True
        self._socket.bind(endpoint)
        history = HistorySettings("audit", "audit", "project")
        config = WorkerConfig("notes", str(root), 5, endpoint, None, history, settings)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["maadd_worker.process.main"])
        self.process = context.Process(target=small_engine.enter, args=(config,), daemon=True)
        self.process.start()

    def send(self, *messages: ToWorker) -> None:
        for message in messages:
            self._socket.send_multipart([b"notes#5", encode(message)])

    def next(self, *, beats: bool = False) -> ToFront:
        """The next message; heartbeats only when asked for."""
        while True:
            assert self._socket.poll(20_000), "the worker says nothing"
            identity, frame = self._socket.recv_multipart()
            assert identity == b"notes#5"
            message = decode_to_front(frame)
            if beats or not isinstance(message, Heartbeat):
                return message

    def started(self) -> Worker:
        assert self.next() == Hello(self.process.pid)
        assert self.next() == Ready(7, [])
        return self

    def has_written(self, file: str = "written", lines: int = 1) -> None:
        """Wait for lines in a file, by default those of the first write."""
        until = time.monotonic() + 20
        path = self.root / file
        while not path.exists() or path.read_text().count("\n") < lines:
            assert time.monotonic() < until
            time.sleep(0.002)

    def exit_code(self) -> int | None:
        self.process.join(20)
        return self.process.exitcode

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self._socket.close(linger=0)
        self._context.term()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[object]:
    socket_dir = tempfile.mkdtemp(prefix="maadd-test-")
    workers: list[Worker] = []

    def started(behaviour: str = "good", **settings: int) -> Worker:
        (tmp_path / "behaviour").write_text(behaviour)
        workers.append(Worker(tmp_path, socket_dir, WorkerSettings(**settings)))
        return workers[-1]

    yield started
    for worker in workers:
        worker.close()
    shutil.rmtree(socket_dir)


def call(request_id: str, tool: str, *, write: bool = False, **args: object) -> Call:
    return Call(request_id, tool, args, 1, "session", 5, 30_000, is_write=write)


def test_a_worker_says_hello_beats_and_is_ready(start) -> None:
    worker = start()
    assert worker.next(beats=True) == Hello(worker.process.pid)
    messages = [worker.next(beats=True), worker.next(beats=True)]
    (beat,) = (message for message in messages if isinstance(message, Heartbeat))
    assert beat.rss_bytes > 1_000_000
    assert Ready(7, []) in messages


def test_the_event_of_a_write_comes_after_its_reply(start) -> None:
    worker = start().started()
    worker.send(call("a", "put", write=True, text="x"))
    assert isinstance(worker.next(), Reply)
    assert isinstance(worker.next(), Event)


def test_a_drain_answers_what_was_accepted_and_hands_back_what_comes_later(start) -> None:
    worker = start().started()
    fifo = str(worker.root / "fifo")
    os.mkfifo(fifo)
    worker.send(call("w", "put", write=True, after=fifo), call("r", "slow_echo"))
    reply = worker.next()
    assert isinstance(reply, Reply)
    assert reply.request_id == "r"
    worker.send(Drain(), call("late", "echo"), call("late write", "put", write=True))
    assert worker.next() == Cancelled("late", withdrawn=True)
    assert worker.next() == Cancelled("late write", withdrawn=True)
    Path(fifo).open("wb").close()
    reply = worker.next()
    assert isinstance(reply, Reply)
    assert (reply.request_id, reply.ok) == ("w", True)
    assert isinstance(worker.next(), Event)
    assert worker.next() == Bye(clean=True)
    assert worker.exit_code() == 0
    assert (worker.root / "closed").exists()


def test_sigterm_drains_and_sigint_is_not_for_workers(start) -> None:
    worker = start().started()
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        os.kill(worker.process.pid, ignored)
    worker.send(call("a", "echo"))
    assert isinstance(worker.next(), Reply)
    os.kill(worker.process.pid, signal.SIGTERM)
    assert worker.next() == Bye(clean=True)
    assert worker.exit_code() == 0


def test_a_project_that_cannot_be_opened_ends_with_its_reasons(start) -> None:
    worker = start("refuse-twice")
    assert isinstance(worker.next(), Hello)
    failed = worker.next()
    assert isinstance(failed, Failed)
    assert [error.code for error in failed.errors] == ["REGISTRY_INVALID", "SCHEMA_INVALID"]
    assert worker.exit_code() == 3


def test_a_call_for_another_generation_is_handed_back(start) -> None:
    worker = start().started()
    stale = Call("old", "echo", {}, 1, "session", 4, 30_000)
    worker.send(stale)
    assert worker.next() == Cancelled("old", withdrawn=True)


def test_a_cancel_tells_what_becomes_of_a_write(start) -> None:
    worker = start().started()
    fifo = str(worker.root / "fifo")
    os.mkfifo(fifo)
    worker.send(call("a", "put", write=True, after=fifo))
    worker.has_written()
    worker.send(call("b", "put", write=True), Cancel("a"), Cancel("b"), Cancel("unknown"))
    assert worker.next() == Cancelled("a", withdrawn=False)
    assert worker.next() == Cancelled("b", withdrawn=True)
    Path(fifo).open("wb").close()
    reply = worker.next()
    assert isinstance(reply, Reply)
    assert reply.request_id == "a"


def test_a_cancel_drops_a_read_that_waits_and_ends_one_that_runs(start) -> None:
    worker = start().started()
    for request_id in ("one", "two", "three"):
        worker.send(call(request_id, "wait"))
    worker.has_written("waiting", 2)
    worker.send(Cancel("three"))
    assert worker.next() == Cancelled("three", withdrawn=True)
    worker.send(Cancel("two"))
    reply = worker.next()
    assert isinstance(reply, Reply)
    assert (reply.request_id, reply.error_code) == ("two", "REQUEST_TIMEOUT")


def test_short_reads_pass_long_reads_and_writes(start) -> None:
    worker = start().started()
    for request_id in ("one", "two", "three"):
        worker.send(call(request_id, "wait"))
    worker.send(call("spin", "spin", write=True, seconds=0.3), call("short", "echo", n=1))
    reply = worker.next()
    assert isinstance(reply, Reply)
    assert reply.request_id == "short"


def test_more_than_the_queue_holds_is_refused(start) -> None:
    worker = start(worker_queue=1).started()
    fifo = str(worker.root / "fifo")
    os.mkfifo(fifo)
    worker.send(call("one", "put", write=True, after=fifo))
    worker.has_written()
    worker.send(call("two", "put", write=True), call("three", "put", write=True))
    reply = worker.next()
    assert isinstance(reply, Reply)
    assert (reply.request_id, reply.error_code) == ("three", "OVERLOADED")
    assert b'"reason":"worker_queue","limit":1' in reply.body
    Path(fifo).open("wb").close()


def test_heartbeats_go_on_while_the_writer_is_busy(start) -> None:
    worker = start().started()
    fifo = str(worker.root / "fifo")
    os.mkfifo(fifo)
    worker.send(call("one", "put", write=True, after=fifo))
    beat = worker.next(beats=True)
    while not (isinstance(beat, Heartbeat) and beat.queue_depth == 1):
        beat = worker.next(beats=True)
    assert beat.state == "ready"
    Path(fifo).open("wb").close()


def test_what_is_no_message_is_ignored(start) -> None:
    worker = start().started()
    worker._socket.send_multipart([b"notes#5", b"\xff"])
    worker.send(call("a", "echo"))
    assert isinstance(worker.next(), Reply)
