"""The writer thread: opens the engine, performs all writes, closes the engine."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from maadd.protocol.errors import MaadError, MaadErrors, WireError, errors_of
from maadd.protocol.messages import Call, Cancelled, Reply, WorkerConfig
from maadd_worker.process.log import Log
from maadd_worker.process.outbox import Outbox
from maadd_worker.process.replies import internal_failure, stack_of
from maadd_worker.process.served import AnyEngine, EngineFactory
from maadd_worker.process.write_queue import WriteQueue

_SLOW_S = 0.5
_AFTER_FAILED_SETTLE_S = 1.0


class Writer:
    """The main thread reads `engine`, `failure` and `ended` after the outbox woke it."""

    def __init__(
        self,
        config: WorkerConfig,
        open_engine: EngineFactory,
        queue: WriteQueue,
        outbox: Outbox,
        log: Log,
    ) -> None:
        self.engine: AnyEngine | None = None
        self.failure: list[WireError] | None = None
        """Why the engine could not be opened."""
        self.progress = ""
        self.clean = True
        """Whether the engine left nothing for the next start to recover."""
        self.ended = False
        self.displaced = False
        """Whether the files of the engine are not where they were: another one has to follow."""
        self._config = config
        self._open_engine = open_engine
        self._queue = queue
        self._outbox = outbox
        self._log = log
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    def start(self) -> None:
        """Begin to open the engine."""
        self._thread.start()

    def _run(self) -> None:
        try:
            engine = self._open()
            if engine is not None:
                self.engine = engine
                self._outbox.wake()
                self._serve(engine)
                self.clean = self._close(engine)
        finally:
            self.ended = True
            self._outbox.wake()

    def _open(self) -> AnyEngine | None:
        try:
            engine = self._open_engine(self._config, self._note_progress)
            engine.connect_wake(self._queue.wake)
            engine.connect_progress(self._outbox.post)
            engine.connect_log(self._log.warn, self._log.info)
        except (MaadError, MaadErrors) as failure:
            self.failure = [error.wire() for error in errors_of(failure)]
        except Exception as error:
            self._report("engine_open_failed", error)
            message = f"the project could not be opened ({type(error).__name__}); see the log"
            self.failure = [WireError("INTERNAL", message)]
        else:
            return engine
        return None

    def _note_progress(self, text: str) -> None:
        self.progress = text

    def _serve(self, engine: AnyEngine) -> None:
        pause = self._settle(engine, idle=True)
        while (group := self._queue.take(pause)) is not None:
            if group and self.notice_loss():
                self._hand_back(group)
                continue
            if group:
                self._write(engine, group)
            pause = self._settle(engine, idle=not group)

    def notice_loss(self) -> bool:
        """Look whether the engine's files are still there; from any thread."""
        lost = None if self.engine is None else self.engine.lost()
        if lost is not None and not self.displaced:
            self.displaced = True
            self._log.warn("backend_displaced", path=lost)
            self._outbox.wake()
        return self.displaced

    def _hand_back(self, group: Sequence[Call]) -> None:
        """Nothing of these writes is done here; the next worker takes them."""
        for call in group:
            if self._queue.withdraw(call.request_id):
                self._outbox.post(Cancelled(call.request_id, withdrawn=True))

    def _write(self, engine: AnyEngine, group: Sequence[Call]) -> None:
        waiting = self._queue.depth()
        began = time.monotonic()
        try:
            engine.write_group(group, self._queue, self._deliver)
        except Exception as error:
            self._report("write_group_failed", error)
        for call, admitted in self._queue.unanswered(group):
            outcome = "unknown_reconcile" if admitted else "not_published"
            self._log.error("write_unanswered", request_id=call.request_id, tool=call.tool)
            self._deliver(internal_failure(call, outcome if call.is_write else None))
        elapsed = time.monotonic() - began
        if elapsed > _SLOW_S:
            tools = ",".join(sorted({call.tool for call in group}))
            self._log.engine(
                "warn",
                "write_slow",
                f"the writer was held for {elapsed * 1000:.0f} ms",
                op=tools,
                requestIds=[call.request_id for call in group],
                elapsedMs=round(elapsed * 1000),
                queueDepthOnEnter=waiting,
                writes=len(group),
            )

    def _deliver(self, reply: Reply) -> None:
        if self._queue.finish(reply.request_id):
            self._outbox.post(reply)

    def _settle(self, engine: AnyEngine, *, idle: bool) -> float | None:
        try:
            pause = engine.settle(idle)
            for event in engine.poll_events():
                self._outbox.post(event)
        except Exception as error:
            self._report("settle_failed", error)
            return _AFTER_FAILED_SETTLE_S
        return pause

    def _close(self, engine: AnyEngine) -> bool:
        try:
            return engine.close()
        except Exception as error:
            self._report("engine_close_failed", error)
            return False

    def _report(self, event: str, error: Exception) -> None:
        self._log.error(event, error=type(error).__name__, stack=stack_of(error))
