"""The queue of blocks that wait for their vectors (spec 02 §6.5).

A row leaves the queue in the transaction that stores its vector, found by its own id: a block
whose text has changed meanwhile has a row with another id, and the old vector is dropped.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

MOST_ATTEMPTS = 8
_FIRST_DELAY_S = 2.0
_LONGEST_DELAY_S = 300.0

_FRESH = """
SELECT q.id, q.block, t.text, q.attempts FROM embed_queue q JOIN block_text t ON t.block = q.block
WHERE q.attempts = 0 ORDER BY q.id LIMIT ?
"""
_AGAIN = """
SELECT q.id, q.block, t.text, q.attempts
FROM embed_queue q INDEXED BY embed_queue_again JOIN block_text t ON t.block = q.block
WHERE q.attempts > 0 AND q.failed = 0 AND q.next_attempt_ms <= ? ORDER BY q.id LIMIT ?
"""
_NEXT = """
SELECT min(next_attempt_ms) FROM embed_queue INDEXED BY embed_queue_again
WHERE attempts > 0 AND failed = 0
"""
_ANY_FRESH = "SELECT 1 FROM embed_queue WHERE attempts = 0 LIMIT 1"
_TAKE = "DELETE FROM embed_queue WHERE id = ? RETURNING 1"
_PUT_VECTOR = "INSERT OR REPLACE INTO vec_blocks VALUES (?, ?)"
_PUT_BITS = "INSERT OR REPLACE INTO vec_bits VALUES (?, vec_quantize_binary(?))"
_PUT_NO_BITS = "INSERT OR REPLACE INTO vec_bits VALUES (?, x'')"
_NOTE = """
UPDATE embed_queue SET attempts = ?, next_attempt_ms = ?, last_error = ?, failed = ? WHERE id = ?
"""
_STATE = """
SELECT count(*), count(*) FILTER (WHERE failed), min(queued_at_ms) FILTER (WHERE NOT failed)
FROM embed_queue
"""


class QueuedBlock(msgspec.Struct, frozen=True):
    """A row of the queue with the indexed form of its text."""

    id: int
    block: int
    text: str
    attempts: int


class Embedded(msgspec.Struct, frozen=True):
    """A row whose vector is there, as float32 bytes."""

    id: int
    block: int
    vector: bytes


class Failed(msgspec.Struct, frozen=True):
    """A row that failed `attempts` times now; `parked` is not tried again by itself."""

    id: int
    attempts: int
    next_attempt_ms: int
    error: str
    parked: bool


class BatchEnd(msgspec.Struct, frozen=True):
    """What became of the rows of one batch."""

    embedded: tuple[Embedded, ...] = ()
    failed: tuple[Failed, ...] = ()


class QueueState(msgspec.Struct, frozen=True):
    """Rows in the queue, those of them that are parked, and since when the oldest other waits."""

    depth: int
    failed: int
    oldest_queued_ms: int | None


def delay_s(failures: int) -> float:
    """How long to wait after so many failures in a row: 2 s, doubled up to 5 min, give or take a
    fifth."""
    delay: float = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2.0 ** min(failures - 1, 10))
    return delay * random.uniform(0.8, 1.2)


def due_blocks(connection: apsw.Connection, limit: int, now_ms: int) -> list[QueuedBlock]:
    """Rows to be embedded now, oldest first; those that have failed come last, but come."""
    fresh: list[Any] = connection.execute(_FRESH, (limit,)).fetchall()
    again: list[Any] = connection.execute(_AGAIN, (now_ms, max(1, limit // 4))).fetchall()
    return [QueuedBlock(*row) for row in (*fresh, *again)]


def next_due_ms(connection: apsw.Connection) -> int | None:
    """When a row is due next; 0 for at once, None for an empty queue."""
    if connection.execute(_ANY_FRESH).fetchone() is not None:
        return 0
    due: int | None = connection.execute(_NEXT).get
    return due


def store_end(connection: apsw.Connection, end: BatchEnd, *, bits: bool) -> None:
    """Store what a batch gave, in the open transaction; `bits` as the layout says."""
    current = [
        (one.block, one.vector)
        for one in end.embedded
        if connection.execute(_TAKE, (one.id,)).fetchone() is not None
    ]
    connection.executemany(_PUT_VECTOR, current)
    if bits:
        connection.executemany(_PUT_BITS, current)
    else:
        connection.executemany(_PUT_NO_BITS, ((block,) for block, _ in current))
    connection.executemany(
        _NOTE,
        [(one.attempts, one.next_attempt_ms, one.error, one.parked, one.id) for one in end.failed],
    )


def queue_state(connection: apsw.Connection) -> QueueState:
    """Counts for health."""
    row: Any = connection.execute(_STATE).fetchone()
    return QueueState(*row)


def by_attempts(rows: Sequence[QueuedBlock], batch: int) -> list[list[QueuedBlock]]:
    """The rows in batches: with every failure smaller ones, so that a bad block is found and
    the others of its batch go through."""
    batches: list[list[QueuedBlock]] = []
    for row in sorted(rows, key=lambda row: row.attempts):
        size = max(1, batch >> row.attempts)
        if batches and batches[-1][0].attempts == row.attempts and len(batches[-1]) < size:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches
