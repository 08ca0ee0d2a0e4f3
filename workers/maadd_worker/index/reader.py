"""Reading connections: one per reading thread, one snapshot per call (spec 02 §8)."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from maadd_worker.index.counters import Counters, read_counters
from maadd_worker.index.documents import (
    DocumentRow,
    find_document,
    find_document_by_path,
    find_ids_with_prefix,
    read_meta,
)
from maadd_worker.index.memo import AnswerMemo
from maadd_worker.index.selections import Selections

_STEPS_BETWEEN_CHECKS = 20_000
"""Virtual machine steps between two looks at the clock: a fraction of a millisecond."""


class IndexReader:
    """A read-only connection. Used by one thread at a time, except `interrupt`."""

    def __init__(
        self, connection: apsw.Connection, memo: AnswerMemo, selections: Selections
    ) -> None:
        self.connection = connection
        self.selections = selections
        self._memo = memo
        self._stopped = False
        self._end = math.inf

    def find(self, doc_id: str, include_deleted: bool = False) -> DocumentRow | None:
        """The row of an id; tombstones only when asked for."""
        return find_document(self.connection, doc_id, include_deleted=include_deleted)

    def find_by_path(self, path: str, include_deleted: bool = False) -> DocumentRow | None:
        """The row of a project-relative path; tombstones only when asked for."""
        return find_document_by_path(self.connection, path, include_deleted=include_deleted)

    def ids_with_prefix(self, prefix: str) -> list[str]:
        """Every id that starts with `prefix`, tombstones included."""
        return find_ids_with_prefix(self.connection, prefix)

    def meta_get(self, key: str) -> str | None:
        """A value of `engine_meta`."""
        return read_meta(self.connection, key)

    def counters(self) -> Counters:
        """The counts behind summaries; no scan."""
        return read_counters(self.connection)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """One read transaction: everything inside sees the same state. May be nested."""
        if self.connection.in_transaction:
            yield
            return
        self.connection.execute("BEGIN")
        try:
            yield
        finally:
            if self.connection.in_transaction:
                self.connection.execute("COMMIT")

    @contextmanager
    def deadline(self, seconds: float) -> Iterator[None]:
        """Statements inside end with apsw.InterruptError once the time is over, or once
        `interrupt` was called."""
        self._end = time.monotonic() + seconds
        self._stopped = False
        self.connection.set_progress_handler(self.stopped, _STEPS_BETWEEN_CHECKS)
        try:
            yield
        finally:
            self.connection.set_progress_handler(None)

    def stopped(self) -> bool:
        """Whether the time of the call is over, or `interrupt` was called."""
        return self._stopped or time.monotonic() > self._end

    def interrupt(self) -> None:
        """End the running statement with apsw.InterruptError; callable from any thread."""
        self._stopped = True
        self.connection.interrupt()

    def recall(self, key: object, generation: int) -> object | None:
        """What `remember` stored under the key, if the generation is still the same."""
        return self._memo.recall(key, generation)

    def remember(self, key: object, generation: int, value: object, cost: int = 1) -> None:
        """Keep a derived answer that holds for one generation of its type, for all readers;
        nobody may change it."""
        self._memo.remember(key, generation, value, cost)

    def close(self) -> None:
        """Close the connection; idempotent."""
        self.connection.close()
