"""An engine whose calls last until the test lets them go; runs in a real worker process.

Calls wait while the test holds the lock of the project's file `gate`, but for writes of the
record `free`; a read with the type `held` lasts until it is interrupted. `behaviour`, a file of
the project, tells of a start: `die` ends every one, `refuse` has them fail, `mute` silences one,
`slow` has them wait at the gate as well. Of calls, those on the record `die` kill the process,
those on `raise` fail by an exception. `maad_reindex` reports three steps. The idempotency key
`known` has been used before.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from maadd.protocol.errors import MaadError
from maadd.protocol.messages import Call, CallProgress, Event, Reply, WorkerConfig
from maadd_worker.gate import Gate
from maadd_worker.outcome import Backlog
from maadd_worker.process.main import run
from maadd_worker.process.served import Deliver, Progress


class HeldReader:
    def __init__(self) -> None:
        self.interrupted = threading.Event()

    def interrupt(self) -> None:
        self.interrupted.set()

    def close(self) -> None:
        return


class NoJobs:
    """This engine has no background jobs."""

    alone = 0

    def leave(self, request_id: str, *, expired: bool) -> str | None:
        return None

    def stop(self) -> None:
        return


class HeldEngine:
    documents = 1
    index_empty: int | None = None
    backlog = Backlog()
    doc_types = ("note",)

    def __init__(self, config: WorkerConfig) -> None:
        self.recovery_actions: list[str] = []
        self.jobs = NoJobs()
        self._root = config.root

    @classmethod
    def open(cls, config: WorkerConfig, progress: Progress) -> HeldEngine:
        engine = cls(config)
        engine._note("start")
        match behaviour(config.root):
            case "die":
                os._exit(9)
            case "refuse":
                raise MaadError("REGISTRY_INVALID", "no registry", {"why": "test"})
            case "slow":
                progress("waiting at the gate")
                engine._pass_gate()
        return engine

    def open_reader(self) -> HeldReader:
        return HeldReader()

    def is_short(self, call: Call, _reader: Any) -> bool:
        return call.tool == "maad_health"

    def read(self, call: Call, reader: HeldReader) -> Reply:
        if call.tool == "maad_health":
            return Reply(call.request_id, True, b"{}")
        reader.interrupted.clear()
        self._note(f"{call.tool} begun")
        self._misbehave(call)
        if call.args.get("docType") != "held":
            self._pass_gate()
            return Reply(call.request_id, True, b"{}")
        reader.interrupted.wait()
        self._note(f"{call.tool} interrupted")
        error = MaadError("BACKEND_ERROR", "interrupted")
        return Reply(call.request_id, False, msgspec.json.encode([error.wire()]))

    def write_group(self, calls: Sequence[Call], gate: Gate, deliver: Deliver) -> None:
        for call in calls:
            doc_id = call.args.get("docId", call.tool)
            if call.args.get("idempotencyKey") == "known":
                deliver(Reply(call.request_id, True, b"{}", {"replayed": True}))
                continue
            if call.verdict is not None:
                deliver(Reply(call.request_id, False, msgspec.json.encode([call.verdict])))
                continue
            if not gate.admit(call.request_id):
                continue
            self._note(f"{doc_id} begun")
            self._misbehave(call)
            if doc_id != "free":
                self._pass_gate()
            if call.tool == "maad_reindex" and call.wants_progress:
                for step in (1, 2, 3):
                    self._report(CallProgress(call.request_id, step, 3, f"step {step}"))
            self._note(f"{doc_id} written")
            deliver(Reply(call.request_id, True, b"{}"))

    def settle(self, _idle: bool) -> float | None:
        return None

    def connect_wake(self, _wake: Callable[[], None]) -> None:
        return

    def connect_progress(self, report: Callable[[CallProgress], None]) -> None:
        self._report = report

    def connect_log(self, warn: Callable[..., None], info: Callable[..., None]) -> None:
        self.warn = warn

    def forget_session(self, _session_id: str) -> None:
        return

    def lost(self) -> str | None:
        return None

    def poll_events(self) -> list[Event]:
        return []

    def close(self) -> bool:
        return True

    def _misbehave(self, call: Call) -> None:
        match call.args.get("docId"):
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "raise":
                raise RuntimeError("a secret text")

    def _pass_gate(self) -> None:
        with open(os.path.join(self._root, "gate")) as file:
            fcntl.flock(file, fcntl.LOCK_SH)

    def _note(self, line: str) -> None:
        with open(os.path.join(self._root, "calls"), "a") as file:
            file.write(line + "\n")


def behaviour(root: str) -> str:
    path = Path(root, "behaviour")
    return path.read_text() if path.exists() else ""


def enter(config: WorkerConfig) -> Any:
    log = os.open(os.path.join(config.root, "log"), os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.dup2(log, 2)
    if behaviour(config.root) == "mute":
        Path(config.root, "behaviour").unlink()
        signal.pause()
    run(config, HeldEngine.open)
