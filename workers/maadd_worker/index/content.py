"""The child rows of a record in and out of the tables, and their counts (spec 01 §12).

Rows that are the same before and after are not touched: most updates change one field, and a
forced pass over unchanged files changes none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from maadd_worker.extract.extraction import Extraction
from maadd_worker.index.child_rows import (
    Row,
    block_rows,
    field_value_rows,
    object_rows,
    relationship_rows,
)
from maadd_worker.index.counters import CounterDeltas
from maadd_worker.index.documents import DocumentRow, FileIdentity
from maadd_worker.index.plan import TypePlan
from maadd_worker.markdown.blocks import Block


class NewDocument(msgspec.Struct, frozen=True):
    """One record ready to be stored. `file` is None when its content may still change unseen."""

    doc_id: str
    schema_ref: str
    file_path: str
    file_hash: str
    valid: bool
    partial: bool
    plan: TypePlan
    extraction: Extraction
    blocks: tuple[Block, ...]
    file: FileIdentity | None = None


class _ChildTable(msgspec.Struct, frozen=True):
    """The statements of one table. A row begins with its owner's id and ends its key at `key`."""

    select: str
    put: str
    cut: str
    clear: str
    key: int


def _child_table(name: str, columns: int, *key: str) -> _ChildTable:
    return _ChildTable(
        select=f"SELECT * FROM {name} WHERE {key[0]} = ? ORDER BY {', '.join(key)}",
        put=f"INSERT INTO {name} VALUES ({', '.join('?' * columns)})",
        cut=f"DELETE FROM {name} WHERE {' AND '.join(f'{column} = ?' for column in key)}",
        clear=f"DELETE FROM {name} WHERE {key[0]} = ?",
        key=len(key),
    )


_OBJECTS = _child_table("objects", 10, "doc_id", "id")
_RELATIONSHIPS = _child_table("relationships", 9, "source_doc_id", "id")
_BLOCKS = _child_table("blocks", 7, "doc_id", "id")
_FIELD_VALUES = _child_table("field_values", 11, "doc_id", "field_name", "id")
_TABLES = (_OBJECTS, _RELATIONSHIPS, _BLOCKS, _FIELD_VALUES)

_EDGES = """
SELECT relation_type, (SELECT t.deleted FROM documents t WHERE t.doc_id = target_doc_id)
FROM relationships WHERE source_doc_id = ?
"""
_KINDS = "SELECT primitive, subtype FROM objects WHERE doc_id = ?"


def add_content(
    connection: apsw.Connection, deltas: CounterDeltas, row: DocumentRow, new: NewDocument
) -> None:
    """Store the child rows of a record that has none, whose row is stored already."""
    doc_id, found = row.doc_id, new.extraction
    _count_document(deltas, row, 1)
    if found.objects:
        connection.executemany(_OBJECTS.put, object_rows(doc_id, found.objects))
        deltas.add_objects(row.doc_type, _kinds(new), 1)
    if found.relationships:
        connection.executemany(
            _RELATIONSHIPS.put, relationship_rows(doc_id, row.doc_type, found.relationships)
        )
        deltas.add_edges(row.doc_type, _edges(connection, doc_id), 1)
    if new.blocks:
        connection.executemany(_BLOCKS.put, block_rows(doc_id, new.blocks))
    connection.executemany(_FIELD_VALUES.put, field_value_rows(doc_id, new.plan, found.field_rows))


def remove_content(connection: apsw.Connection, deltas: CounterDeltas, row: DocumentRow) -> None:
    """Remove the child rows of a live record and take it out of the counts."""
    kinds: list[Any] = connection.execute(_KINDS, (row.doc_id,)).fetchall()
    _count_document(deltas, row, -1)
    deltas.add_objects(row.doc_type, kinds, -1)
    deltas.add_edges(row.doc_type, _edges(connection, row.doc_id), -1)
    for table in _TABLES:
        connection.execute(table.clear, (row.doc_id,))


def replace_content(
    connection: apsw.Connection,
    deltas: CounterDeltas,
    previous: DocumentRow,
    row: DocumentRow,
    new: NewDocument,
) -> None:
    """Turn the child rows of a live record, which keeps its type, into those of `new`."""
    doc_id, found = row.doc_id, new.extraction
    _count_document(deltas, previous, -1)
    _count_document(deltas, row, 1)
    old_objects = _replace(connection, _OBJECTS, doc_id, object_rows(doc_id, found.objects))
    if old_objects is not None:
        deltas.add_objects(row.doc_type, [(old[2], old[3]) for old in old_objects], -1)
        deltas.add_objects(row.doc_type, _kinds(new), 1)
    old_edges: list[Any] = _edges(connection, doc_id)
    edges = relationship_rows(doc_id, row.doc_type, found.relationships)
    if _replace(connection, _RELATIONSHIPS, doc_id, edges) is not None:
        deltas.add_edges(row.doc_type, old_edges, -1)
        deltas.add_edges(row.doc_type, _edges(connection, doc_id), 1)
    _replace(connection, _BLOCKS, doc_id, block_rows(doc_id, new.blocks))
    values = field_value_rows(doc_id, new.plan, found.field_rows)
    _replace(connection, _FIELD_VALUES, doc_id, values)


def _replace(
    connection: apsw.Connection, table: _ChildTable, doc_id: str, rows: Sequence[Row]
) -> list[Row] | None:
    """Make the table hold exactly `rows` for the record; the old ones, None if they are equal."""
    old: list[Row] = connection.execute(table.select, (doc_id,)).fetchall()
    if old == rows:
        return None
    before = {row[: table.key]: row for row in old}
    after = {row[: table.key]: row for row in rows}
    gone = [key for key, row in before.items() if after.get(key) != row]
    come = [row for key, row in after.items() if before.get(key) != row]
    connection.executemany(table.cut, gone)
    connection.executemany(table.put, come)
    return old


def _count_document(deltas: CounterDeltas, row: DocumentRow, sign: int) -> None:
    deltas.add_document(
        row.doc_type, row.model_fingerprint, valid=row.valid, partial=row.partial, sign=sign
    )


def _kinds(new: NewDocument) -> list[tuple[str, str]]:
    return [(found.primitive, found.subtype) for found in new.extraction.objects]


def _edges(connection: apsw.Connection, doc_id: str) -> list[Any]:
    """The record's edges as (relation type, state of the target)."""
    return connection.execute(_EDGES, (doc_id,)).fetchall()
