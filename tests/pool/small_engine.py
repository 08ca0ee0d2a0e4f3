"""A small real engine, and worker programs that misbehave; run in real worker processes.

A project is a directory; `behaviour` in it names the program (see `enter`). Tools are the
methods of `SmallEngine`. To hold a call, the test gives it the path of a FIFO: the worker
blocks in opening it until the test opens the other end.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import zmq

from maadd.protocol.errors import MaadError, MaadErrors
from maadd.protocol.messages import (
    Bye,
    Call,
    CallProgress,
    Cancel,
    Drain,
    Event,
    Heartbeat,
    Hello,
    Ready,
    Reply,
    WorkerConfig,
    decode_to_worker,
    encode,
)
from maadd_worker.disk.owner_lock import OwnerLock
from maadd_worker.gate import Gate
from maadd_worker.outcome import Backlog
from maadd_worker.process.main import run
from maadd_worker.process.served import Deliver, Progress


def behaviour(root: str) -> str:
    try:
        with open(os.path.join(root, "behaviour")) as file:
            return file.read()
    except FileNotFoundError:
        return "good"


def append(root: str, name: str, line: str) -> None:
    with open(os.path.join(root, name), "a") as file:
        file.write(line + "\n")


def pass_fifo(path: str) -> None:
    """Blocks until the test opens the other end."""
    with open(path, "rb") as fifo:
        fifo.read()


class SmallJobs:
    """Calls of the tool `job` wait until somebody calls `end_jobs`, or the worker is stopped."""

    def __init__(self, root: str) -> None:
        self.alone = 0
        self._root = root
        self._waiting: dict[str, Deliver] = {}

    def begin(self, call: Call, gate: Gate, deliver: Deliver) -> None:
        gate.defer(call.request_id)
        self._waiting[call.request_id] = deliver

    def end(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for request_id, deliver in waiting.items():
            deliver(Reply(request_id, True, b'"done"'))

    def leave(self, request_id: str, *, expired: bool) -> str | None:
        append(self._root, "left", "expired" if expired else "cancelled")
        return "job-1" if request_id in self._waiting else None

    def stop(self) -> None:
        waiting, self._waiting = self._waiting, {}
        errors = msgspec.json.encode([MaadError("SHUTTING_DOWN", "stops").wire()])
        for request_id, deliver in waiting.items():
            deliver(Reply(request_id, False, errors, error_code="SHUTTING_DOWN"))


class SmallReader:
    def __init__(self) -> None:
        self.interrupted = threading.Event()
        self.closed = False

    def interrupt(self) -> None:
        self.interrupted.set()

    def close(self) -> None:
        self.closed = True


class SmallEngine:
    def __init__(self, config: WorkerConfig) -> None:
        self.root = config.root
        self.config = config
        self.documents = 7
        self.jobs = SmallJobs(config.root)
        self.recovery_actions: list[str] = []
        self.index_empty: int | None = None
        self.backlog = Backlog(history_writes=3, changed_files=2)
        self.doc_types = ["note"]
        self._events: list[Event] = []
        self._wake: Callable[[], None] = lambda: None
        self._calls_seen: dict[str, int] = {}
        self._ballast = b""
        self._lags = 0

    @classmethod
    def open(cls, config: WorkerConfig, progress: Progress) -> SmallEngine:
        append(config.root, "starts", str(os.getpid()))
        append(config.root, "served", str(config.served))
        match behaviour(config.root).split():
            case ["refuse"]:
                raise MaadError("INDEX_EMPTY", "nothing here", {"why": "test"})
            case ["refuse-twice"]:
                first = MaadError("REGISTRY_INVALID", "first")
                raise MaadErrors([first, MaadError("SCHEMA_INVALID", "second")])
            case ["locked"]:
                OwnerLock.acquire(config.root, None)
            case ["break"]:
                raise RuntimeError("a secret text")
            case ["die"]:
                os._exit(9)
            case ["empty"]:
                engine = cls(config)
                engine.index_empty = 12
                return engine
            case ["slow", fifo]:
                progress("waiting for the fifo")
                pass_fifo(fifo)
            case ["large"]:
                engine = cls(config)
                engine._ballast = os.urandom(1) * 80_000_000
                return engine
        return cls(config)

    def open_reader(self) -> SmallReader:
        return SmallReader()

    def is_short(self, call: Call, _reader: Any) -> bool:
        return call.tool == "echo"

    def read(self, call: Call, reader: SmallReader) -> Reply:
        reader.interrupted.clear()
        data: Any = None
        match call.tool:
            case "echo" | "slow_echo":
                data = call.args
            case "pid":
                data = os.getpid()
            case "stdio":
                print("printed by a library")
                data = [os.fstat(fd).st_ino for fd in (0, 1, 2)]
                data.append(os.stat(os.devnull).st_ino)
            case "modules":
                data = [sys.modules["__main__"].__dict__.get("__file__"), "click" in sys.modules]
            case "wait":
                append(self.root, "waiting", call.request_id)
                reader.interrupted.wait()
                error = MaadError("BACKEND_ERROR", "interrupted")
                return Reply(call.request_id, False, msgspec.json.encode([error.wire()]))
            case "fifo":
                pass_fifo(call.args["fifo"])
            case "die_once":
                if not os.path.exists(os.path.join(self.root, "died")):
                    append(self.root, "died", "")
                    os.kill(os.getpid(), signal.SIGKILL)
                data = os.getpid()
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "raise":
                raise RuntimeError("a secret text")
            case "descriptors":
                data = len(os.listdir("/proc/self/fd"))
            case "read_events":
                self._events.append(event("external"))
                self._wake()
        return Reply(call.request_id, True, msgspec.json.encode(data))

    def write_group(self, calls: Sequence[Call], gate: Gate, deliver: Deliver) -> None:
        append(self.root, "groups", str(len(calls)))
        for call in calls:
            if call.tool == "raise_write":
                raise RuntimeError("a secret text")
            if "before" in call.args:
                append(self.root, "before", call.request_id)
                pass_fifo(call.args["before"])
            if call.tool == "guarded":
                refusal = gate.permit(call.request_id)
                append(self.root, "permits", refusal.code if refusal else "granted")
                if refusal is not None:
                    body = msgspec.json.encode([refusal])
                    deliver(Reply(call.request_id, False, body, error_code=refusal.code))
                    continue
            if not gate.admit(call.request_id):
                continue
            append(self.root, "written", call.args.get("text", call.tool))
            if call.tool == "job":
                self.jobs.begin(call, gate, deliver)
                continue
            if call.tool == "end_jobs":
                self.jobs.end()
            if call.tool == "job_alone":
                self.jobs.alone += 1
            if call.tool == "long_write" and call.wants_progress:
                for done in (1, 2):
                    self._report(CallProgress(call.request_id, done, 2, f"step {done}"))
            if call.tool == "die_in_write":
                os.kill(os.getpid(), signal.SIGKILL)
            if call.tool == "raise_after":
                raise RuntimeError("a secret text")
            if "after" in call.args:
                pass_fifo(call.args["after"])
            if call.tool == "spin":
                until = time.monotonic() + call.args["seconds"]
                while time.monotonic() < until:
                    pass
            self._events.append(event(call.args.get("text", "")))
            deliver(Reply(call.request_id, True, b'{"written":true}'))
        self._lags = 2

    def settle(self, idle: bool) -> float | None:
        append(self.root, "settled", str(idle))
        if self._lags > 0:
            self._lags -= 1
            return 0.005
        return None

    def connect_wake(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def connect_progress(self, report: Callable[[CallProgress], None]) -> None:
        self._report = report

    def connect_log(self, warn: Callable[..., None], info: Callable[..., None]) -> None:
        self.warn = warn

    def forget_session(self, session_id: str) -> None:
        append(self.root, "forgotten", session_id)

    def lost(self) -> str | None:
        return None

    def poll_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def close(self) -> bool:
        append(self.root, "closed", str(os.getpid()))
        return True


def event(origin: str) -> Event:
    return Event(1, "create", "doc-1", "note", "2026-01-01T00:00:00.000Z", origin)


def enter(config: WorkerConfig) -> None:
    match behaviour(config.root):
        case "stubborn":
            _stubborn(config)
        case "answers-cancel":
            _answers_cancel(config)
        case "mute":
            _mute(config)
        case "silent":
            _silent(config)
        case _:
            run(config, SmallEngine.open)


def _connect(config: WorkerConfig) -> zmq.Socket[bytes]:
    append(config.root, "starts", str(os.getpid()))
    socket = zmq.Context().socket(zmq.DEALER)
    socket.identity = config.wire_identity
    socket.connect(config.endpoint)
    socket.send(encode(Hello(os.getpid())))
    socket.send(encode(Heartbeat(1, 0, "starting")))
    socket.send(encode(Ready(0, [])))
    return socket


def _stubborn(config: WorkerConfig) -> None:
    """Beats on, whatever it is told."""
    signal.signal(signal.SIGTERM, lambda *_: append(config.root, "signals", "SIGTERM"))
    socket = _connect(config)
    while True:
        if socket.poll(50) and isinstance(decode_to_worker(socket.recv()), Drain):
            append(config.root, "signals", "Drain")
        socket.send(encode(Heartbeat(1, 0, "ready")))


def _answers_cancel(config: WorkerConfig) -> None:
    """Answers a call when it is cancelled."""
    socket = _connect(config)
    while True:
        match decode_to_worker(socket.recv()):
            case Cancel(request_id):
                socket.send(encode(Reply(request_id, True, b'"late"')))
            case Drain():
                socket.send(encode(Bye(clean=True)))
                socket.close()
                socket.context.term()
                return


def _mute(config: WorkerConfig) -> None:
    """Never says a word."""
    append(config.root, "starts", str(os.getpid()))
    signal.pause()


def _silent(config: WorkerConfig) -> None:
    """Becomes ready and is never heard of again."""
    socket = _connect(config)
    signal.pause()
    socket.close()
