"""Versions, times and change numbers of stored records (spec 01 §12.1).

A record has them from its row, from what an older index handed over (`carry`), or from what else is
known of a lost row (`recovering`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import msgspec

from maadd_worker.index.documents import DocumentRow
from maadd_worker.index.new_document import NewDocument
from maadd_worker.index.past import PastLookup, PastStamps
from maadd_worker.markdown.text import iso_milliseconds

Clock = Callable[[], dt.datetime]

VERSIONS_RESET_KEY = "versions_reset"
"""`engine_meta`: present when records were indexed whose versions could not be recovered."""


class Stamp(msgspec.Struct, frozen=True):
    """What one record is given."""

    version: int
    updated_at: str
    created_at: str
    change_seq: int


class _Carried(msgspec.Struct, frozen=True):
    """What an older index said of a record."""

    file_hash: str
    version: int
    deleted: int
    updated_at: str
    created_at: str


class Stamps:
    """Of one writing connection, inside its transactions.

    `last_seq` is the highest change number given out; `carrying` tells that an older index has
    handed over versions and times which records have not claimed yet. `note_reset` hears that a
    version could not be recovered.
    """

    def __init__(
        self, connection: apsw.Connection, clock: Clock, note_reset: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._note_reset = note_reset
        self._past: PastLookup | None = None
        last: Any = connection.execute(_LAST_NUMBERS).fetchone()
        self._last_time: str = last[0]
        self.last_seq: int = last[1]
        self.carrying = self._is_carrying()

    @contextmanager
    def recovering(self, past: PastLookup | None) -> Iterator[None]:
        """Records without a row that are stored inside are not new: their rows were lost.

        `past` tells what else is known of them; a record whose version cannot be told starts
        over at 1, which is noted. None: they are new.
        """
        self._past = past
        try:
            yield
        finally:
            self._past = None

    def now(self) -> str:
        """The time now, never before one that was given out earlier."""
        self._last_time = max(self._last_time, iso_milliseconds(self._clock()))
        return self._last_time

    def next_seq(self) -> int:
        """A change number that no change has."""
        self.last_seq += 1
        return self.last_seq

    def of(self, new: NewDocument, previous: DocumentRow | None, now: str) -> Stamp:
        """Those of a record that is stored; `previous` is the row of its id."""
        if previous is None:
            return self._first(new, now)
        # An empty hash stands for content that could not be read, so its return is a change.
        if previous.file_hash == new.file_hash and not previous.deleted:
            return Stamp(
                previous.version, previous.updated_at, previous.created_at, previous.change_seq
            )
        return Stamp(previous.version + 1, now, previous.created_at, self.next_seq())

    def of_tombstone(self, doc_id: str, path: str, now: str) -> Stamp:
        """Those of a tombstone whose row was lost."""
        version, updated_at, created_at = 1, now, now
        carried = self._take_carried(doc_id)
        if carried is not None:
            version = carried.version
            updated_at, created_at = carried.updated_at, carried.created_at
        elif (past := self._recall(doc_id, path)) is not None:
            version, updated_at, created_at = past.version, past.updated_at or now, past.created_at
        return Stamp(version, updated_at, created_at, self.next_seq())

    def carry(
        self,
        doc_id: str,
        doc_type: str,
        file_hash: str,
        version: int,
        updated_at: str,
        created_at: str,
    ) -> None:
        """Note what a lost row said, to be taken over when the record is indexed again."""
        self._connection.execute(
            _CARRY, (doc_id, doc_type, file_hash, version, False, updated_at, created_at)
        )
        self.carrying = True

    def forget_carried(self, doc_types: list[str]) -> None:
        """Drop the notes of `carry` about records of these types that did not come back."""
        listing = msgspec.json.encode(doc_types).decode()
        self._connection.execute(_FORGET_CARRIED, (listing,))
        self.carrying = self._is_carrying()

    def trim_carried(self, kept: int) -> None:
        """Drop all but so many of the notes of `carry`, the oldest first."""
        self._connection.execute(_TRIM_CARRIED, (kept,))

    def renumber_changes(self) -> None:
        """Number all changes anew by their times, then ids. A logged deletion of a record that
        is there again is dropped: readers would take it for the later of the two."""
        self._connection.execute(_RENUMBER)

    def _first(self, new: NewDocument, now: str) -> Stamp:
        """Those of a record without a row: new, or known from elsewhere."""
        carried = self._take_carried(new.doc_id)
        if carried is not None and carried.file_hash == new.file_hash and not carried.deleted:
            return Stamp(carried.version, carried.updated_at, carried.created_at, self.next_seq())
        past = self._recall(new.doc_id, new.file_path, told=carried is not None)
        version, updated_at, created_at = 1, now, now
        if past is not None:
            version, updated_at, created_at = past.version, past.updated_at or now, past.created_at
        if carried is not None:
            # The file has changed since the older index was current.
            version = max(version, carried.version + 1)
            created_at = carried.created_at
        return Stamp(version, updated_at, created_at, self.next_seq())

    def _recall(self, doc_id: str, path: str, *, told: bool = False) -> PastStamps | None:
        """What is known of a record whose row was lost; `told` says that its version is, from
        elsewhere."""
        if self._past is None:
            return None
        past = self._past(doc_id, path)
        if not told and (past is None or not past.whole):
            self._note_reset()
        return past

    def _take_carried(self, doc_id: str) -> _Carried | None:
        if not self.carrying:
            return None
        row: Any = self._connection.execute(_TAKE_CARRIED, (doc_id,)).fetchone()
        return None if row is None else _Carried(*row)

    def _is_carrying(self) -> bool:
        return self._connection.execute(_ANY_CARRIED).fetchone() is not None


_LAST_NUMBERS = """
SELECT coalesce((SELECT max(updated_at) FROM documents), ''),
       max(coalesce((SELECT max(change_seq) FROM documents), 0),
           coalesce((SELECT max(change_seq) FROM deletions), 0))
"""
_ANY_CARRIED = "SELECT 1 FROM carried LIMIT 1"
_TAKE_CARRIED = """
DELETE FROM carried WHERE doc_id = ?
RETURNING file_hash, version, deleted, updated_at, created_at
"""
_CARRY = """
INSERT INTO carried (doc_id, doc_type, file_hash, version, deleted, updated_at, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (doc_id) DO UPDATE SET
    doc_type = excluded.doc_type, file_hash = excluded.file_hash, version = excluded.version,
    deleted = excluded.deleted, updated_at = excluded.updated_at, created_at = excluded.created_at
"""
_TRIM_CARRIED = """
DELETE FROM carried WHERE doc_id IN
    (SELECT doc_id FROM carried ORDER BY updated_at DESC, doc_id LIMIT -1 OFFSET ?)
"""
_FORGET_CARRIED = "DELETE FROM carried WHERE doc_type IN (SELECT value FROM json_each(?))"
# Numbers are unique at every step, so they pass through the negative ones.
_RENUMBER = """
DELETE FROM deletions WHERE doc_id IN (SELECT doc_id FROM documents);
CREATE TEMP TABLE numbered AS
    SELECT was, row_number() OVER (ORDER BY at, doc_id, was) AS number
    FROM (SELECT change_seq AS was, updated_at AS at, doc_id FROM documents
          UNION ALL SELECT change_seq, deleted_at, doc_id FROM deletions);
CREATE UNIQUE INDEX temp.numbered_by_was ON numbered (was, number);
UPDATE documents SET change_seq =
    (SELECT -n.number FROM temp.numbered n WHERE n.was = documents.change_seq);
UPDATE documents SET change_seq = -change_seq;
UPDATE deletions SET change_seq =
    (SELECT -n.number FROM temp.numbered n WHERE n.was = deletions.change_seq);
UPDATE deletions SET change_seq = -change_seq;
DROP TABLE temp.numbered;
"""
