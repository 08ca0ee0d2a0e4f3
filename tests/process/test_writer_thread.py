"""The writer thread in this process: what it logs, and what it survives."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Callable
from pathlib import Path

import pytest
from small_engine import SmallEngine

from maadd.protocol.messages import (
    Call,
    Event,
    HistorySettings,
    Reply,
    ToFront,
    WorkerConfig,
    WorkerSettings,
)
from maadd_worker.process.log import Log
from maadd_worker.process.outbox import Outbox
from maadd_worker.process.write_queue import WriteQueue
from maadd_worker.process.writer import Writer


class Thread:
    """A started writer, its outbox, and its log."""

    def __init__(self, root: Path, engine: type[SmallEngine] = SmallEngine) -> None:
        history = HistorySettings("audit", "audit", "project")
        config = WorkerConfig("notes", str(root), 1, "", None, history, WorkerSettings())
        self._log_fd, write_fd = os.pipe()
        self.outbox = Outbox()
        self.queue = WriteQueue(10, 10_000, lambda *_: None, lambda _: None)
        log = Log("info", "notes", write_fd)
        self.writer = Writer(config, engine.open, self.queue, self.outbox, log)
        self.writer.start()

    def write(self, tool: str, **args: object) -> None:
        assert self.queue.offer(Call("a", tool, args, 1, "session", 1, 30_000, is_write=True))

    def next(self) -> ToFront:
        while (message := self.outbox.pop()) is None:
            self._wait()
        return message

    def end(self) -> bool:
        self.queue.close()
        while not self.writer.ended:
            self._wait()
        return self.writer.clean

    def logged(self) -> list[dict[str, object]]:
        lines = os.read(self._log_fd, 65_536).splitlines()
        return [json.loads(line) for line in lines]

    def _wait(self) -> None:
        readable, _, _ = select.select([self.outbox.fd], [], [], 20)
        assert readable
        self.outbox.acknowledge()


class NeverSettles(SmallEngine):
    def settle(self, idle: bool) -> float | None:
        raise RuntimeError("a secret text")

    def close(self) -> bool:
        raise RuntimeError("a secret text")


class Tells(SmallEngine):
    def connect_log(self, warn: Callable[..., None], info: Callable[..., None]) -> None:
        warn("commit_failed", code="GIT_COMMIT_FAILED", file_count=1)
        info("doc_id_changed_in_place", doc_id="nte-2")


def test_the_engine_logs_through_the_worker(tmp_path: Path) -> None:
    thread = Thread(tmp_path, Tells)
    assert thread.end()
    (warning, information) = thread.logged()
    assert (warning["level"], warning["msg"]) == (40, "commit_failed")
    assert (warning["project"], warning["code"]) == ("notes", "GIT_COMMIT_FAILED")
    assert warning["file_count"] == 1
    assert (information["level"], information["msg"]) == (30, "doc_id_changed_in_place")


def test_a_group_that_holds_the_writer_for_long_is_logged(tmp_path: Path) -> None:
    thread = Thread(tmp_path)
    thread.write("spin", seconds=0.55)
    assert isinstance(thread.next(), Reply)
    assert isinstance(thread.next(), Event)
    assert thread.end()
    (line,) = thread.logged()
    assert line["operation"] == "write_slow"
    assert line["level"] == 40
    assert (line["op"], line["writes"], line["queueDepthOnEnter"]) == ("spin", 1, 1)
    assert isinstance(line["elapsedMs"], int)
    assert line["elapsedMs"] >= 550


def test_a_step_that_fails_after_the_answers_is_logged_and_writing_goes_on(
    tmp_path: Path,
) -> None:
    thread = Thread(tmp_path, NeverSettles)
    thread.write("put")
    reply = thread.next()
    assert isinstance(reply, Reply)
    assert reply.ok
    assert not thread.end()
    lines = thread.logged()
    assert {line["msg"] for line in lines} == {"settle_failed", "engine_close_failed"}
    assert {line["error"] for line in lines} == {"RuntimeError"}
    assert "secret" not in json.dumps(lines)


@pytest.mark.parametrize(("behaviour", "codes"), [("refuse", ["INDEX_EMPTY"]), ("good", None)])
def test_what_keeps_the_engine_from_opening_is_kept_for_the_front(
    tmp_path: Path, behaviour: str, codes: list[str] | None
) -> None:
    (tmp_path / "behaviour").write_text(behaviour)
    thread = Thread(tmp_path)
    assert thread.end()
    failure = thread.writer.failure
    assert (failure and [error.code for error in failure]) == codes
