"""Records that pass several filters, found with columns in memory (spec 02 §4.2).

Columns are made once a type was asked for what they tell a few times, and follow the changes
of the index by their numbers. What no column can tell, a field with several values in a record,
a substring or what a ref leads to, is listed once for each condition and kept as a set, which
follows the changes too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

import apsw
import msgspec

from maadd_worker.index.columns import Column, Key
from maadd_worker.index.counters import TypeState, read_type_state
from maadd_worker.index.documents import read_meta
from maadd_worker.index.layout import ALONE, NUMBER_KNOWN
from maadd_worker.index.rebuilt import EPOCH_KEY
from maadd_worker.index.scope import Condition, Part, Scope, candidates, record_tests

_ASKED = 3
"""Questions that are answered without columns before they are made."""

_MOST_VALUES = 2_000_000
"""In all columns of a type together; about 40 bytes each."""

_MOST_CHANGES = 500
"""After more changes than that at once columns are dropped, until they are asked for again."""

_MOST_KEPT = 64
"""Sets of conditions that are kept for a type: a bit for each record."""

_TEXTS = """
SELECT v.field_value, v.doc_id, v.extreme FROM field_values v INDEXED BY field_values_by_text
WHERE v.doc_type = ? AND v.field_name = ? AND v.present = 1
"""
_NUMBERS = f"""
SELECT v.numeric_value, v.doc_id, v.extreme FROM field_values v INDEXED BY field_values_by_number
WHERE v.doc_type = ? AND v.field_name = ? AND v.numeric_rank = {NUMBER_KNOWN}
"""
_LAST_CHANGE = """
SELECT max(coalesce((SELECT max(change_seq) FROM documents), 0),
           coalesce((SELECT max(change_seq) FROM deletions), 0))
"""
_CHANGED = """
SELECT doc_id FROM documents WHERE change_seq > ?1
UNION SELECT doc_id FROM deletions WHERE change_seq > ?1 LIMIT ?2
"""
_VALUES = """
SELECT v.doc_id, v.field_name, v.field_value, v.numeric_rank, v.numeric_value, v.extreme
FROM json_each(?) i CROSS JOIN field_values v ON v.doc_id = i.value
WHERE v.doc_type = ? AND v.present = 1
"""

_ColumnKey = tuple[str, bool]
"""Name of a field, and whether the column holds its numbers instead of its texts."""


class Selection(msgspec.Struct, frozen=True):
    """The records that pass, as bits, and the ids that the bits stand for."""

    bits: int
    doc_ids: list[str]

    @property
    def total(self) -> int:
        return self.bits.bit_count()

    def ids(self) -> list[str]:
        """The ids of the records, in no particular order."""
        size = (self.bits.bit_length() + 7) // 8
        return [
            self.doc_ids[place * 8 + bit]
            for place, byte in enumerate(self.bits.to_bytes(size, "little"))
            if byte
            for bit in range(8)
            if byte >> bit & 1
        ]


class _Kept(msgspec.Struct, frozen=True):
    """The records that pass a condition, as of a generation of all types."""

    bits: int
    everywhere: int


class Selections:
    """The columns of all types; shared by the readers of an index, used by one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._types: dict[str, _TypeColumns] = {}

    def select(
        self, connection: apsw.Connection, scope: Scope, state: TypeState, fingerprint: str
    ) -> Selection | None:
        """The records of a scope of one type; None when columns cannot tell, or not yet.

        Inside a snapshot of the connection, of which `state` is; `fingerprint` is the type's.
        """
        doc_type = scope.doc_type
        if doc_type is None or state.current != state.documents:
            return None
        if not self._lock.acquire(blocking=False):
            return None
        try:
            identity = (fingerprint, read_meta(connection, EPOCH_KEY) or "")
            known = self._types.get(doc_type)
            if known is None or known.identity != identity:
                known = self._types[doc_type] = _TypeColumns(doc_type, identity)
            own = state.generation
            if scope.reaches_out:
                own = read_type_state(connection, doc_type, fingerprint).generation
            return known.select(connection, scope.conditions, own, state.generation)
        finally:
            self._lock.release()


class _TypeColumns:
    """The columns of one type, all of the same generation."""

    def __init__(self, doc_type: str, identity: tuple[str, str]) -> None:
        self.identity = identity
        self._doc_type = doc_type
        self._asked = 0
        self._generation = 0
        self._last_change = 0
        self._doc_ids: list[str] = []
        self._record_of: dict[str, int] = {}
        self._columns: dict[_ColumnKey, Column | None] = {}
        """None for a field with several values in a record."""
        self._kept: dict[Condition, _Kept] = {}

    def select(
        self,
        connection: apsw.Connection,
        conditions: Sequence[Condition],
        generation: int,
        everywhere: int,
    ) -> Selection | None:
        """The records that pass; `generation` is that of the type, `everywhere` that of all types
        when a condition leads to other records."""
        self._asked += 1
        if self._asked <= _ASKED or generation < self._generation:
            return None
        if generation != self._generation:
            self._generation = generation
            if not self._follow(connection):
                self._asked = 0
                return None
        bits = -1
        for condition in conditions:
            found = self._told(connection, condition)
            if found is None:
                found = self._listed(connection, condition, everywhere)
            bits &= found
        return Selection(bits, self._doc_ids)

    def _listed(self, connection: apsw.Connection, condition: Condition, everywhere: int) -> int:
        """The records that pass a condition, by index, kept for the next time."""
        kept = self._kept.get(condition)
        # A change of any record can lead its referrers elsewhere.
        if kept is None or (condition.behind and kept.everywhere != everywhere):
            sql, params = candidates(condition, self._doc_type)
            tests, values = record_tests([condition], "o.doc_id", self._doc_type, known=0)
            bits = self._bits(
                connection.execute(
                    f"SELECT o.doc_id FROM (SELECT v.doc_id {sql}) o WHERE 1{tests}",
                    (*params, *values),
                )
            )
            if condition not in self._kept and len(self._kept) >= _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            kept = self._kept[condition] = _Kept(bits, everywhere)
        return kept.bits

    def _bits(self, rows: Iterable[Any]) -> int:
        """The set of the records whose ids are the rows."""
        records = [self._record(doc_id) for (doc_id,) in rows]
        bits = bytearray(len(self._doc_ids) // 8 + 1)
        for record in records:
            bits[record >> 3] |= 1 << (record & 7)
        return int.from_bytes(bits, "little")

    def _told(self, connection: apsw.Connection, condition: Condition) -> int | None:
        """The records that pass a condition, if columns can tell; their one value has to pass
        every part."""
        if condition.behind or any(part.op == "contains" for part in condition.parts):
            return None
        bits = -1
        for part in condition.parts:
            column = self._column(connection, condition.field, numeric=part.numeric)
            if column is None:
                return None
            bits &= column.passing(part)
        if condition.parts and not condition.excluded:
            return bits
        texts = self._column(connection, condition.field, numeric=False)
        if texts is None:
            return None
        excluded = texts.passing(Part("in", condition.excluded, False))
        return bits & texts.everything() & ~excluded

    def _column(self, connection: apsw.Connection, name: str, *, numeric: bool) -> Column | None:
        """The column of a field, made when it is asked for the first time."""
        key = (name, numeric)
        if key not in self._columns:
            rows: list[Any] = connection.execute(
                _NUMBERS if numeric else _TEXTS, (self._doc_type, name)
            ).fetchall()
            held = sum(len(column) for column in self._columns.values() if column is not None)
            if held + len(rows) > _MOST_VALUES or not all(row[2] & ALONE for row in rows):
                self._columns[key] = None
            else:
                self._columns[key] = Column(
                    [(value, self._record(doc_id)) for value, doc_id, _ in rows]
                )
        return self._columns[key]

    def _follow(self, connection: apsw.Connection) -> bool:
        """Take over what has changed since the last generation; False when it is so much that
        all columns were dropped."""
        changed: list[Any] = connection.execute(
            _CHANGED, (self._last_change, _MOST_CHANGES + 1)
        ).fetchall()
        self._last_change = connection.execute(_LAST_CHANGE).get
        if not self._columns and not self._kept:
            return True
        if len(changed) > _MOST_CHANGES:
            self._columns, self._kept = {}, {}
            self._doc_ids, self._record_of = [], {}
            return False
        doc_ids = [doc_id for (doc_id,) in changed]
        self._follow_kept(connection, doc_ids)
        values = self._values(connection, doc_ids)
        for doc_id in doc_ids:
            found = values.get(doc_id, {})
            if not found and doc_id not in self._record_of:
                continue
            record = self._record(doc_id)
            for key, column in self._columns.items():
                if column is None:
                    continue
                value, alone = found.get(key, (None, True))
                if alone:
                    column.put(record, value)
                else:
                    self._columns[key] = None
        return True

    def _follow_kept(self, connection: apsw.Connection, doc_ids: list[str]) -> None:
        """Test the changed records against every kept condition."""
        listing = msgspec.json.encode(doc_ids).decode()
        changed = self._bits((doc_id,) for doc_id in doc_ids if doc_id in self._record_of)
        for condition, kept in self._kept.items():
            tests, params = record_tests([condition], "i.value", self._doc_type, few=True)
            # Rows of values exist for live records only, but under whatever type they have.
            sql = f"""
                SELECT i.value FROM json_each(?) i CROSS JOIN documents d ON d.doc_id = i.value
                WHERE d.deleted = 0 AND d.doc_type = ?{tests}
            """
            passing = self._bits(connection.execute(sql, (listing, self._doc_type, *params)))
            self._kept[condition] = _Kept(kept.bits & ~changed | passing, kept.everywhere)

    def _values(
        self, connection: apsw.Connection, doc_ids: list[str]
    ) -> dict[str, dict[_ColumnKey, tuple[Key, bool]]]:
        """What records of the type have in each column, and whether it is all they have."""
        listing = msgspec.json.encode(doc_ids).decode()
        values: dict[str, dict[_ColumnKey, tuple[Key, bool]]] = {}
        for doc_id, name, text, rank, number, extreme in connection.execute(
            _VALUES, (listing, self._doc_type)
        ):
            found = values.setdefault(doc_id, {})
            alone = bool(extreme & ALONE)
            found[name, False] = (text, alone)
            if rank == NUMBER_KNOWN:
                found[name, True] = (number, alone)
        return values

    def _record(self, doc_id: str) -> int:
        """The number of a record, given out when it is first met."""
        number = self._record_of.get(doc_id)
        if number is None:
            number = self._record_of[doc_id] = len(self._doc_ids)
            self._doc_ids.append(doc_id)
        return number
