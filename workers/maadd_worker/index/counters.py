"""Counts that answer summaries without a scan (spec 02 §3.2, §3.3; design §6).

The writer collects the differences of a transaction and stores them before its commit, so
that the counts are exact for every snapshot. An edge counts while its source is live and its
target is no tombstone; a `ref` edge whose target is not live is broken. The distinct values of
objects are counted too, for searches; `object_values` does that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apsw
import msgspec

from maadd_worker.index.object_values import Kind, add_values, count_values

LIVE = 0
TOMBSTONE = 1
"""States of an edge's target: `deleted` of its row, None without a row."""


class Counters(msgspec.Struct, frozen=True):
    """Counts over all live records."""

    documents_by_type: dict[str, int]
    documents: int
    objects: int
    relationships: int
    broken_refs: int
    invalid: int
    partial: int
    last_indexed_at: str | None


class SubtypeCount(msgspec.Struct, frozen=True):
    """How many objects of live records have this primitive and subtype."""

    primitive: str
    subtype: str
    count: int


class TypeState(msgspec.Struct, frozen=True):
    """`generation` changes with every change of a record of the type; `current` counts the live
    records that were indexed under the asked fingerprint."""

    documents: int
    generation: int
    current: int


class _TypeDelta(msgspec.Struct):
    documents: int = 0
    objects: int = 0
    relationships: int = 0
    broken_refs: int = 0
    invalid: int = 0
    partial: int = 0


class CounterDeltas(msgspec.Struct):
    """The differences that one transaction makes; mutable, owned by the writer.

    `loading` leaves out what a load counts once, at its end: edges, subtypes and values.
    """

    loading: bool = False
    types: dict[str, _TypeDelta] = msgspec.field(default_factory=dict)
    values: dict[Kind, int] = msgspec.field(default_factory=dict)
    subtypes: dict[tuple[str, str], int] = msgspec.field(default_factory=dict)
    fingerprints: dict[tuple[str, str], int] = msgspec.field(default_factory=dict)

    def add_document(
        self, doc_type: str, fingerprint: str, *, valid: bool, partial: bool, sign: int
    ) -> None:
        """A live record comes (`sign` 1) or goes (-1)."""
        delta = self._type(doc_type)
        delta.documents += sign
        if not valid:
            delta.invalid += sign
        if partial:
            delta.partial += sign
        key = (doc_type, fingerprint)
        self.fingerprints[key] = self.fingerprints.get(key, 0) + sign

    def add_partial(self, doc_type: str) -> None:
        """A live record that was complete becomes partial."""
        self._type(doc_type).partial += 1

    def add_objects(self, doc_type: str, objects: Iterable[Kind], sign: int) -> None:
        """Objects of live records of a type."""
        delta = self._type(doc_type)
        if self.loading:
            delta.objects += sign * sum(1 for _ in objects)
            return
        subtypes, values = self.subtypes, self.values
        for found in objects:
            kind = found[:2]
            subtypes[kind] = subtypes.get(kind, 0) + sign
            values[found] = values.get(found, 0) + sign
            delta.objects += sign

    def add_edges(self, edges: Iterable[tuple[str, str, int | None, int]], sign: int) -> None:
        """Edges of live records.

        Given as (source type, relation type, state of the target, number).
        """
        for doc_type, relation, target, number in edges:
            delta = self._type(doc_type)
            if target != TOMBSTONE:
                delta.relationships += sign * number
            if target != LIVE and relation == "ref":
                delta.broken_refs += sign * number

    def move_target(
        self,
        inbound: Iterable[tuple[str, str, int]],
        before: int | None,
        after: int | None,
    ) -> None:
        """A record that edges point to changes its state.

        `inbound` counts the edges to it as (source type, relation type, number).
        """
        for doc_type, relation, number in inbound:
            delta = self._type(doc_type)
            delta.relationships += number * ((after != TOMBSTONE) - (before != TOMBSTONE))
            if relation == "ref":
                delta.broken_refs += number * ((after != LIVE) - (before != LIVE))

    def copy(self) -> CounterDeltas:
        """An independent copy, to come back to when a savepoint is undone."""
        types = {name: msgspec.structs.replace(delta) for name, delta in self.types.items()}
        return CounterDeltas(
            self.loading, types, dict(self.values), dict(self.subtypes), dict(self.fingerprints)
        )

    def store(self, connection: apsw.Connection) -> None:
        """Add the differences to the tables, in the open transaction."""
        add_values(connection, self.values)
        connection.executemany(
            _ADD_TYPE,
            [
                (name, d.documents, d.objects, d.relationships, d.broken_refs, d.invalid, d.partial)
                for name, d in self.types.items()
            ],
        )
        connection.executemany(
            _ADD_SUBTYPE, [(*kind, number) for kind, number in self.subtypes.items() if number]
        )
        connection.executemany(
            _ADD_FINGERPRINT,
            [(*key, number) for key, number in self.fingerprints.items() if number],
        )
        if any(number < 0 for number in self.subtypes.values()):
            connection.execute("DELETE FROM subtype_counts WHERE objects = 0")
        if any(number < 0 for number in self.fingerprints.values()):
            connection.execute("DELETE FROM fingerprint_counts WHERE documents = 0")

    def _type(self, doc_type: str) -> _TypeDelta:
        delta = self.types.get(doc_type)
        if delta is None:
            delta = self.types[doc_type] = _TypeDelta()
        return delta


_ADD_TYPE = """
INSERT INTO type_counts
    (doc_type, documents, objects, relationships, broken_refs, invalid, partial, generation)
VALUES (?, ?, ?, ?, ?, ?, ?, 1)
ON CONFLICT (doc_type) DO UPDATE SET
    documents = documents + excluded.documents,
    objects = objects + excluded.objects,
    relationships = relationships + excluded.relationships,
    broken_refs = broken_refs + excluded.broken_refs,
    invalid = invalid + excluded.invalid,
    partial = partial + excluded.partial,
    generation = generation + 1
"""
_ADD_SUBTYPE = """
INSERT INTO subtype_counts (primitive, subtype, objects) VALUES (?, ?, ?)
ON CONFLICT (primitive, subtype) DO UPDATE SET objects = objects + excluded.objects
"""
_ADD_FINGERPRINT = """
INSERT INTO fingerprint_counts (doc_type, model_fingerprint, documents) VALUES (?, ?, ?)
ON CONFLICT (doc_type, model_fingerprint) DO UPDATE SET documents = documents + excluded.documents
"""

_COUNT_EDGES = """
UPDATE type_counts SET relationships = 0, broken_refs = 0, generation = generation + 1;
UPDATE type_counts SET relationships = e.relationships, broken_refs = e.broken_refs
FROM (
    SELECT r.source_type,
           count(*) FILTER (WHERE d.deleted IS NOT 1) AS relationships,
           count(*) FILTER (WHERE r.relation_type = 'ref' AND d.deleted IS NOT 0) AS broken_refs
    FROM relationships r LEFT JOIN documents d ON d.doc_id = r.target_doc_id
    GROUP BY r.source_type
) AS e WHERE e.source_type = doc_type;
"""
_COUNT_SUBTYPES = """
DELETE FROM subtype_counts;
INSERT INTO subtype_counts (primitive, subtype, objects)
    SELECT primitive, subtype, sum(objects) FROM object_values GROUP BY primitive, subtype;
"""

_COUNTERS = """
SELECT c.doc_type, c.documents, c.objects, c.relationships, c.broken_refs, c.invalid, c.partial,
       (SELECT max(d.indexed_at) FROM documents d WHERE d.deleted = 0 AND d.doc_type = c.doc_type)
FROM type_counts c ORDER BY c.doc_type
"""
_INVENTORY = """
SELECT primitive, subtype, objects FROM subtype_counts
ORDER BY objects DESC, primitive, subtype LIMIT ?
"""
_TYPE_STATE = """
SELECT documents, generation,
       (SELECT f.documents FROM fingerprint_counts f
        WHERE f.doc_type = c.doc_type AND f.model_fingerprint = ?)
FROM type_counts c WHERE doc_type = ?
"""
_GENERATION = "SELECT coalesce(sum(generation), 0) FROM type_counts"
_ALL_STATE = "SELECT sum(documents), sum(generation) FROM type_counts"


def finish_counters(connection: apsw.Connection) -> None:
    """Count everything that a load has left out, in the open transaction."""
    connection.execute(_COUNT_EDGES)
    count_values(connection)
    connection.execute(_COUNT_SUBTYPES)


def read_counters(connection: apsw.Connection) -> Counters:
    """The counts of the open snapshot, in a number of steps that grows with the types only."""
    rows: list[Any] = connection.execute(_COUNTERS).fetchall()
    by_type = {row[0]: row[1] for row in rows if row[1]}
    documents, objects, relationships, broken, invalid, partial = (
        sum(row[column] for row in rows) for column in range(1, 7)
    )
    stamps = [row[7] for row in rows if row[7] is not None]
    return Counters(
        by_type,
        documents,
        objects,
        relationships,
        broken,
        invalid,
        partial,
        max(stamps, default=None),
    )


def read_inventory(connection: apsw.Connection, limit: int) -> list[SubtypeCount]:
    """The most frequent kinds of objects; ties by primitive, then subtype."""
    return [SubtypeCount(*row) for row in connection.execute(_INVENTORY, (limit,))]


def read_generation(connection: apsw.Connection) -> int:
    """A number that grows with every change of any record."""
    found: int = connection.execute(_GENERATION).get
    return found


def read_type_state(
    connection: apsw.Connection, doc_type: str | None, fingerprint: str
) -> TypeState:
    """What a cached answer about a type (None: about all) depends on."""
    if doc_type is None:
        total: Any = connection.execute(_ALL_STATE).fetchone()
        return TypeState(total[0] or 0, total[1] or 0, 0)
    row: Any = connection.execute(_TYPE_STATE, (fingerprint, doc_type)).fetchone()
    return TypeState(0, 0, 0) if row is None else TypeState(row[0], row[1], row[2] or 0)
