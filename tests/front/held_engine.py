"""An engine whose calls last until the test lets them go; runs in a real worker process.

`maad_query` lasts until it is interrupted. A `maad_create` of the record `held` and the strict
reads last until the test opens the FIFO `gate` of the project. `maad_reindex` reports three steps.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from maadd.protocol.errors import MaadError
from maadd.protocol.messages import Call, CallProgress, Event, Reply, WorkerConfig
from maadd_worker.gate import Gate
from maadd_worker.outcome import Backlog
from maadd_worker.process.main import run
from maadd_worker.process.served import Deliver, Progress

STRICT_READS = ("maad_create_contract", "maad_document_receipt")


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
    def open(cls, config: WorkerConfig, _progress: Progress) -> HeldEngine:
        return cls(config)

    def open_reader(self) -> HeldReader:
        return HeldReader()

    def is_short(self, _call: Call, _reader: Any) -> bool:
        return False

    def read(self, call: Call, reader: HeldReader) -> Reply:
        reader.interrupted.clear()
        self._note(f"{call.tool} begun")
        reader.interrupted.wait()
        self._note(f"{call.tool} interrupted")
        error = MaadError("BACKEND_ERROR", "interrupted")
        return Reply(call.request_id, False, msgspec.json.encode([error.wire()]))

    def write_group(self, calls: Sequence[Call], gate: Gate, deliver: Deliver) -> None:
        for call in calls:
            doc_id = call.args.get("docId", call.tool)
            if not gate.admit(call.request_id):
                continue
            self._note(f"{doc_id} begun")
            if doc_id == "held" or call.tool in STRICT_READS:
                self._wait()
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

    def lost(self) -> str | None:
        return None

    def poll_events(self) -> list[Event]:
        return []

    def close(self) -> bool:
        return True

    def _wait(self) -> None:
        with open(os.path.join(self._root, "gate"), "rb") as fifo:
            fifo.read()

    def _note(self, line: str) -> None:
        with open(os.path.join(self._root, "calls"), "a") as file:
            file.write(line + "\n")


def enter(config: WorkerConfig) -> Any:
    run(config, HeldEngine.open)
