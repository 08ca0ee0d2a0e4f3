"""Records that pass several filters, found with columns in memory (spec 02 §4.2), and what
they have in other fields (spec 02 §4.6).

Columns are made once a type was asked for what they tell a few times, and follow the changes
of the index by their numbers. What no column can tell, a field with several values in a record,
a substring or what a ref leads to, is listed once for each condition and kept as a set, which
follows the changes too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw
import msgspec

from maadd_worker.index.columns import Column, Held, Key, ListColumn, flags, held_by, members
from maadd_worker.index.counters import TypeState, read_type_state
from maadd_worker.index.documents import read_meta
from maadd_worker.index.layout import ALONE, NUMBER_KNOWN
from maadd_worker.index.rebuilt import EPOCH_KEY
from maadd_worker.index.scope import Condition, Part, Scope, candidates, record_tests

_ASKED = 3
"""Questions that are answered without columns before they are made."""

_MOST_VALUES = 2_000_000
"""In all columns of a type together; about 40 bytes each."""

_MOST_TEXT = 16_000_000
"""Characters of the different texts in one column."""

_FEW_TEXTS = 10_000
"""So many texts at most are searched one by one for a substring."""

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

_PATIENCE_S = 0.5
"""Columns are waited for so long before a walk of the index is begun instead."""

ColumnKey = tuple[str, bool]
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
        return [self.doc_ids[record] for record in members(self.bits)]


def _searches_texts(condition: Condition) -> bool:
    return any(part.op == "contains" for part in condition.parts)


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
        self,
        connection: apsw.Connection,
        scope: Scope,
        state: TypeState,
        fingerprint: str,
        *,
        ready: bool = False,
    ) -> Selection | None:
        """The records of a scope of one type; None when columns cannot tell, or not yet. With
        `ready` only what is there already is asked, and nobody is waited for.

        Inside a snapshot of the connection, of which `state` is; `fingerprint` is the type's.
        """
        with self._columns_of(connection, scope, state, fingerprint, 0) as columns:
            if columns is None:
                return None
            own = state.generation
            if scope.reaches_out:
                own = read_type_state(connection, columns.doc_type, fingerprint).generation
            if ready:
                if not all(map(columns.is_ready, scope.conditions)):
                    return None
            elif not columns.are_worth_making():
                return None
            if not columns.follow(connection, own):
                return None
            return columns.select(connection, scope.conditions, state.generation)

    def values(
        self,
        connection: apsw.Connection,
        scope: Scope,
        fingerprint: str,
        wanted: Sequence[ColumnKey],
    ) -> list[list[Held]] | None:
        """For each wanted field what the records of a scope of one type have, the records in the
        same order; None when columns cannot tell.

        The columns are made at once: one walk of an index each, which is less than to look up
        the rows of many records. Inside a snapshot of the connection.
        """
        state = read_type_state(connection, scope.doc_type, fingerprint)
        with self._columns_of(connection, scope, state, fingerprint, _PATIENCE_S) as columns:
            if columns is None or columns.is_ahead_of(state.generation):
                return None
            columns.follow(connection, state.generation)
            everywhere = state.generation
            if scope.reaches_out:
                everywhere = read_type_state(connection, None, "").generation
            return columns.values(connection, scope.conditions, everywhere, wanted)

    @contextmanager
    def _columns_of(
        self,
        connection: apsw.Connection,
        scope: Scope,
        state: TypeState,
        fingerprint: str,
        patience_s: float,
    ) -> Iterator[_TypeColumns | None]:
        """The columns of the scope's type for one user at a time; None for those of no type, of
        one whose rows are of several schemas, or that others use for longer than `patience_s`."""
        doc_type = scope.doc_type
        if doc_type is None or state.current != state.documents:
            yield None
            return
        if not self._lock.acquire(timeout=patience_s):
            yield None
            return
        try:
            identity = (fingerprint, read_meta(connection, EPOCH_KEY) or "")
            known = self._types.get(doc_type)
            if known is None or known.identity != identity:
                known = self._types[doc_type] = _TypeColumns(doc_type, identity)
            yield known
        finally:
            self._lock.release()


class _TypeColumns:
    """The columns of one type, all of the same generation."""

    def __init__(self, doc_type: str, identity: tuple[str, str]) -> None:
        self.identity = identity
        self.doc_type = doc_type
        self._asked = 0
        self._generation = 0
        self._last_change = 0
        self._doc_ids: list[str] = []
        self._record_of: dict[str, int] = {}
        self._columns: dict[ColumnKey, Column | ListColumn | None] = {}
        """None for what would be too much."""
        self._kept: dict[Condition, _Kept] = {}

    def are_worth_making(self) -> bool:
        """Whether columns were asked for a few times."""
        self._asked += 1
        return self._asked > _ASKED

    def is_ready(self, condition: Condition) -> bool:
        """Whether the condition can be told without a walk of an index."""
        if condition.behind or condition in self._kept:
            return not condition.behind
        if _searches_texts(condition):
            return False
        wanted = {part.numeric for part in condition.parts}
        if condition.excluded or not wanted:
            wanted.add(False)
        return all(
            isinstance(self._columns.get((condition.field, numeric)), Column) for numeric in wanted
        )

    def is_ahead_of(self, generation: int) -> bool:
        """Whether the columns hold what a snapshot of that generation must not see."""
        return generation < self._generation

    def follow(self, connection: apsw.Connection, generation: int) -> bool:
        """Come to that generation of the type; False for an older one, and when columns were
        dropped on the way."""
        if self.is_ahead_of(generation):
            return False
        if generation == self._generation:
            return True
        self._generation = generation
        try:
            followed = self._follow(connection)
        except apsw.Error:
            # Stopped half-way, as by the deadline of a call.
            self._drop()
            raise
        if not followed:
            self._asked = 0
        return followed

    def select(
        self, connection: apsw.Connection, conditions: Sequence[Condition], everywhere: int
    ) -> Selection:
        """The records that pass; `everywhere` is the generation of all types when a condition
        leads to other records."""
        bits = -1
        # The texts of few records are searched faster than those of all.
        for condition in sorted(conditions, key=_searches_texts):
            found = self._told(connection, condition, bits)
            if found is None:
                found = self._listed(connection, condition, everywhere)
            bits &= found
        return Selection(bits, self._doc_ids)

    def values(
        self,
        connection: apsw.Connection,
        conditions: Sequence[Condition],
        everywhere: int,
        wanted: Sequence[ColumnKey],
    ) -> list[list[Held]] | None:
        """What the records that pass have in the wanted columns; None when one is too much."""
        columns = [self._column(connection, name, numeric=numeric) for name, numeric in wanted]
        mask = None
        if conditions:
            bits = self.select(connection, conditions, everywhere).bits
            mask = flags(bits, len(self._doc_ids))
        found: list[list[Held]] = []
        for column in columns:
            if column is None:
                return None
            found.append(held_by(column.held, len(self._doc_ids), mask))
        return found

    def _listed(self, connection: apsw.Connection, condition: Condition, everywhere: int) -> int:
        """The records that pass a condition, by index, kept for the next time."""
        kept = self._kept.get(condition)
        # A change of any record can lead its referrers elsewhere.
        if kept is None or (condition.behind and kept.everywhere != everywhere):
            sql, params = candidates(condition, self.doc_type)
            tests, values = record_tests([condition], "o.doc_id", self.doc_type, known=0)
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

    def _told(self, connection: apsw.Connection, condition: Condition, among: int) -> int | None:
        """The records that pass a condition, if columns can tell; their one value has to pass
        every part. A substring is looked for in the texts of few records only, those `among`
        which the answer counts."""
        if condition.behind or condition in self._kept:
            return None
        bits = among
        substrings: list[str] = []
        for part in condition.parts:
            if part.op == "contains":
                substrings.append(part.bound)
                continue
            column = self._column(connection, condition.field, numeric=part.numeric)
            if not isinstance(column, Column):
                return None
            bits &= column.passing(part)
        if substrings and (bits < 0 or bits.bit_count() > _FEW_TEXTS):
            return None
        if condition.parts and not substrings and not condition.excluded:
            return bits
        texts = self._column(connection, condition.field, numeric=False)
        if not isinstance(texts, Column):
            return None
        if condition.excluded or not condition.parts:
            bits &= texts.everything() & ~texts.passing(Part("in", condition.excluded, False))
        for text in substrings:
            bits = texts.holding(text, bits)
        return bits

    def _column(
        self, connection: apsw.Connection, name: str, *, numeric: bool
    ) -> Column | ListColumn | None:
        """The column of a field, made when it is asked for the first time."""
        key = (name, numeric)
        if key not in self._columns:
            self._columns[key] = self._made(connection, name, numeric=numeric)
        return self._columns[key]

    def _made(
        self, connection: apsw.Connection, name: str, *, numeric: bool
    ) -> Column | ListColumn | None:
        free = _MOST_VALUES - sum(len(each) for each in self._columns.values() if each is not None)
        rows: list[tuple[Key, int]] = []
        alone, characters = True, 0
        last: Key | None = None
        for value, doc_id, extreme in connection.execute(
            _NUMBERS if numeric else _TEXTS, (self.doc_type, name)
        ):
            if value != last:
                last = value
                characters += 0 if numeric else len(value)
            if len(rows) >= free or characters > _MOST_TEXT:
                return None
            rows.append((value, self._record(doc_id)))
            alone = alone and bool(extreme & ALONE)
        return Column(rows) if alone else ListColumn(rows)

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
            self._drop()
            return False
        doc_ids = [doc_id for (doc_id,) in changed]
        self._follow_kept(connection, doc_ids)
        values = self._values(connection, doc_ids)
        for doc_id in doc_ids:
            found = values.get(doc_id, {})
            if not found and doc_id not in self._record_of:
                continue
            record = self._record(doc_id)
            for key, column in list(self._columns.items()):
                keys, alone = found.get(key, ([], True))
                if isinstance(column, ListColumn):
                    column.put(record, keys)
                elif column is not None and alone:
                    column.put(record, keys[0] if keys else None)
                elif column is not None:
                    # It has become a list, and is made as one when it is asked for again.
                    del self._columns[key]
        return True

    def _drop(self) -> None:
        self._columns, self._kept = {}, {}
        self._doc_ids, self._record_of = [], {}

    def _follow_kept(self, connection: apsw.Connection, doc_ids: list[str]) -> None:
        """Test the changed records against every kept condition."""
        listing = msgspec.json.encode(doc_ids).decode()
        changed = self._bits((doc_id,) for doc_id in doc_ids if doc_id in self._record_of)
        for condition, kept in self._kept.items():
            tests, params = record_tests([condition], "i.value", self.doc_type, few=True)
            # Rows of values exist for live records only, but under whatever type they have.
            sql = f"""
                SELECT i.value FROM json_each(?) i CROSS JOIN documents d ON d.doc_id = i.value
                WHERE d.deleted = 0 AND d.doc_type = ?{tests}
            """
            passing = self._bits(connection.execute(sql, (listing, self.doc_type, *params)))
            self._kept[condition] = _Kept(kept.bits & ~changed | passing, kept.everywhere)

    def _values(
        self, connection: apsw.Connection, doc_ids: list[str]
    ) -> dict[str, dict[ColumnKey, tuple[list[Key], bool]]]:
        """What records of the type have in each column, and whether it is a value alone."""
        listing = msgspec.json.encode(doc_ids).decode()
        values: dict[str, dict[ColumnKey, tuple[list[Key], bool]]] = {}
        for doc_id, name, text, rank, number, extreme in connection.execute(
            _VALUES, (listing, self.doc_type)
        ):
            found = values.setdefault(doc_id, {})
            alone = bool(extreme & ALONE)
            found.setdefault((name, False), ([], alone))[0].append(text)
            if rank == NUMBER_KNOWN:
                found.setdefault((name, True), ([], alone))[0].append(number)
        return values

    def _record(self, doc_id: str) -> int:
        """The number of a record, given out when it is first met."""
        number = self._record_of.get(doc_id)
        if number is None:
            number = self._record_of[doc_id] = len(self._doc_ids)
            self._doc_ids.append(doc_id)
        return number
