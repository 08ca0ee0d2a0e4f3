"""The embedding thread (spec 02 §6.5).

It reads the queue on a connection of its own, asks the provider, and hands every finished batch
over; the writer thread stores it. A batch that fails stays in the queue.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import apsw

from maadd.protocol.errors import MaadError
from maadd_worker.index.reader import IndexReader
from maadd_worker.semantic.block_store import now_ms
from maadd_worker.semantic.calls import BoundedCalls
from maadd_worker.semantic.providers.embedder import ProviderUnavailable, TextRejected
from maadd_worker.semantic.queue import (
    MOST_ATTEMPTS,
    BatchEnd,
    Embedded,
    Failed,
    QueuedBlock,
    by_attempts,
    delay_s,
    due_blocks,
    next_due_ms,
)
from maadd_worker.semantic.words import plain_form

_WINDOW_BATCHES = 8
"""Batches that are read at once, and that may wait for the writer."""

_GRACE_S = 1.0
"""How long a running request may go on after a stop."""

_YIELD_S = 0.5
"""The longest wait for a moment without writes."""

_AFTER_TROUBLE_S = 1.0
_LONG_REST_S = 10.0
_MANY_FAILURES = 3
_ERROR_CHARS = 300


class _Stopped(Exception):
    """The thread is to end now."""


class Drain:
    """Embeds what is queued. Made, started and stopped by the writer thread.

    `failures` counts blocks of failed requests since the start; `last_error`
    (at `last_error_s` of the monotonic clock) and `last_success_ms` are about requests too.
    """

    def __init__(
        self,
        open_reader: Callable[[], IndexReader],
        calls: BoundedCalls,
        *,
        batch: int,
        max_chars: int,
        wake: Callable[[], None],
        warn: Callable[..., None],
    ) -> None:
        self.failures = 0
        self.last_error: str | None = None
        self.last_error_s = 0.0
        self.last_success_ms: int | None = None
        self._open_reader = open_reader
        self._calls = calls
        self._batch = batch
        self._max_chars = max_chars
        self._wake = wake
        self._warn = warn
        self._condition = threading.Condition()
        self._finished: deque[BatchEnd] = deque()
        self._quiet = threading.Event()
        self._quiet.set()
        self._kicked = False
        self._resting = False
        self._kickable = True
        self._provider_failed = False
        self._failed_in_a_row = 0
        self._rest_until = 0.0
        self._stop_at: float | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin with what the queue holds; once started, do nothing."""
        if self._thread is None and self._stop_at is None:
            self._thread = threading.Thread(target=self._run, name="embedder", daemon=True)
            self._thread.start()

    def kick(self) -> None:
        """Blocks may have been queued; never waits."""
        with self._condition:
            self._kicked = True
            if self._kickable:
                self._resting = False
            self._condition.notify_all()

    def hold(self) -> None:
        """Writes are at hand: begin no request for a moment."""
        self._quiet.clear()

    def release(self) -> None:
        """No write is at hand any more."""
        self._quiet.set()

    def stop(self) -> None:
        """Let the running request finish, if that is soon, and end the thread."""
        with self._condition:
            self._stop_at = time.monotonic()
            self._condition.notify_all()
        self._quiet.set()
        if self._thread is not None:
            self._thread.join()

    # -- for the writer thread -----------------------------------------------------------

    def oldest(self) -> BatchEnd | None:
        """The oldest batch that is not stored; it stays until `stored`."""
        return self._finished[0] if self._finished else None

    def stored(self) -> None:
        """The oldest batch is in the index."""
        with self._condition:
            self._finished.popleft()
            self._condition.notify_all()

    def wait(self, timeout_s: float) -> bool:
        """Wait for a batch to store. False once nothing will come soon: the queue is empty, or
        what is in it must wait for long, or the provider does not work."""
        with self._condition:
            self._condition.wait_for(lambda: self._finished or self._resting, timeout_s)
            return bool(self._finished) or not self._resting

    # -- the thread ----------------------------------------------------------------------

    def _run(self) -> None:
        with contextlib.suppress(_Stopped):
            while True:
                try:
                    with contextlib.closing(self._open_reader()) as reader:
                        self._serve(reader)
                except (apsw.Error, MaadError) as error:
                    self._warn("embedding_trouble", error=type(error).__name__)
                    self._rest(_AFTER_TROUBLE_S, kickable=False)

    def _serve(self, reader: IndexReader) -> None:
        while True:
            pause = self._rest_until - time.monotonic()
            if pause > 0:
                self._rest(pause, kickable=False)
            with self._condition:
                self._kicked = False
            rows = due_blocks(reader.connection, self._batch * _WINDOW_BATCHES, now_ms())
            if rows:
                self._embed_all(rows)
                continue
            due = next_due_ms(reader.connection)
            self._rest(None if due is None else max(0.05, (due - now_ms()) / 1000), kickable=True)

    def _rest(self, timeout_s: float | None, *, kickable: bool) -> None:
        with self._condition:
            if kickable and self._kicked:
                return
            self._kickable = kickable
            self._resting = (
                timeout_s is None
                or timeout_s > _LONG_REST_S
                or self._failed_in_a_row >= _MANY_FAILURES
            )
            self._condition.notify_all()
            self._condition.wait_for(
                lambda: self._stop_at is not None or (kickable and self._kicked), timeout_s
            )
            self._resting, self._kickable = False, True
        if self._stop_at is not None:
            raise _Stopped

    def _look(self) -> None:
        """End the thread, or the waiting for a request, when the time for it is over."""
        if self._stop_at is not None and time.monotonic() > self._stop_at + _GRACE_S:
            raise _Stopped

    def _embed_all(self, rows: Sequence[QueuedBlock]) -> None:
        for batch in by_attempts(rows, self._batch):
            self._quiet.wait(_YIELD_S)
            if self._stop_at is not None:
                raise _Stopped
            self._provider_failed = False
            end = self._embed(batch)
            self._hand_over(end)
            if self._provider_failed or (len(batch) > 1 and not end.embedded):
                self._failed_in_a_row += 1
                pause = delay_s(self._failed_in_a_row)
                self._rest_until = max(self._rest_until, time.monotonic() + pause)
                break
        # What is read next must not hold rows that are on their way into the index.
        with self._condition:
            self._condition.wait_for(lambda: not self._finished or self._stop_at is not None)
        if self._stop_at is not None:
            raise _Stopped

    def _hand_over(self, end: BatchEnd) -> None:
        with self._condition:
            self._condition.wait_for(
                lambda: len(self._finished) < _WINDOW_BATCHES or self._stop_at is not None
            )
            self._finished.append(end)
            self._condition.notify_all()
        self._wake()

    def _embed(self, batch: Sequence[QueuedBlock]) -> BatchEnd:
        """Embed a batch; one that is rejected is halved until the bad texts are found."""
        try:
            vectors = self._ask([plain_form(row.text)[: self._max_chars] for row in batch])
        except _Stopped:
            raise
        except TextRejected as error:
            if len(batch) > 1:
                middle = len(batch) // 2
                halves = self._embed(batch[:middle]), self._embed(batch[middle:])
                return BatchEnd(
                    halves[0].embedded + halves[1].embedded, halves[0].failed + halves[1].failed
                )
            return self._failure(batch, error)
        except Exception as error:
            # Providers are code of others: whatever they raise, the blocks stay in the queue.
            return self._failure(batch, error)
        self._failed_in_a_row = 0
        self._rest_until = 0.0
        self.last_success_ms = now_ms()
        return BatchEnd(
            tuple(
                Embedded(row.id, row.block, vector)
                for row, vector in zip(batch, vectors, strict=True)
            )
        )

    def _ask(self, texts: list[str]) -> list[bytes]:
        return self._calls.embed(texts, "document", self._look)

    def _failure(self, batch: Sequence[QueuedBlock], error: Exception) -> BatchEnd:
        self.failures += len(batch)
        self.last_error = f"{type(error).__name__}: {error}"[:_ERROR_CHARS]
        self.last_error_s = time.monotonic()
        # The text of an error may quote a record.
        shown = str(error).partition(":")[0] if isinstance(error, ProviderUnavailable) else ""
        self._warn("embedding_failed", error=type(error).__name__, reason=shown, blocks=len(batch))
        if isinstance(error, ProviderUnavailable) and error.retry_after_s is not None:
            self._rest_until = time.monotonic() + error.retry_after_s
        self._provider_failed = not isinstance(error, TextRejected)
        worst = max(row.attempts for row in batch) + 1
        parked = worst >= MOST_ATTEMPTS and len(batch) == 1 and self._is_to_blame(error)
        failed: list[Failed] = []
        for row in batch:
            attempts = min(row.attempts + 1, MOST_ATTEMPTS)
            # Later than the next request, so that others come first.
            due = now_ms() + int(2000 * delay_s(attempts))
            failed.append(Failed(row.id, attempts, due, self.last_error, parked))
        return BatchEnd(failed=tuple(failed))

    def _is_to_blame(self, error: Exception) -> bool:
        """Whether it is the text that fails, and not the provider."""
        if isinstance(error, TextRejected):
            return True
        try:
            self._ask(["probe"])
        except _Stopped:
            raise
        except Exception:
            # As above; without an answer to anything, no text is to blame.
            return False
        self._provider_failed = False
        return True
