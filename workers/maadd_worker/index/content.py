"""The child rows of records in and out of the tables, and their counts (spec 01 §12).

Rows that are the same before and after are not touched: most updates change one field, and a
forced pass over unchanged files changes none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import apsw
import msgspec

from maadd_worker.index.child_rows import Row
from maadd_worker.index.counters import CounterDeltas
from maadd_worker.index.documents import DocumentRow
from maadd_worker.index.new_document import NewDocument


class _ChildTable(msgspec.Struct, frozen=True):
    """The statements of one table. A row begins with its owner's id and ends its key at `key`."""

    select: str
    select_many: str
    put: str
    cut: str
    clear: str
    key: int


def _child_table(name: str, columns: int, *key: str) -> _ChildTable:
    order = ", ".join(key[1:])
    return _ChildTable(
        select=f"SELECT * FROM {name} WHERE {key[0]} = ? ORDER BY {order}",
        select_many=(
            f"SELECT t.* FROM json_each(?) i CROSS JOIN {name} t ON t.{key[0]} = i.value "
            f"ORDER BY i.id, {order}"
        ),
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

_KINDS = "SELECT primitive, subtype, value FROM objects WHERE doc_id = ?"
_EDGES = """
SELECT r.source_type, r.relation_type, t.deleted, count(*)
FROM json_each(?) i CROSS JOIN relationships r ON r.source_doc_id = i.value
LEFT JOIN documents t ON t.doc_id = r.target_doc_id
GROUP BY r.source_type, r.relation_type, t.deleted
"""
_INBOUND = """
SELECT r.source_type, r.relation_type, count(*)
FROM json_each(?) i CROSS JOIN relationships r ON r.target_doc_id = i.value
GROUP BY r.source_type, r.relation_type
"""


def move_targets(
    connection: apsw.Connection,
    deltas: CounterDeltas,
    doc_ids: Sequence[str],
    before: int | None,
    after: int | None,
) -> None:
    """Count that records which edges may point to change their state."""
    if deltas.loading:
        return
    inbound: list[Any] = connection.execute(_INBOUND, (_json(doc_ids),)).fetchall()
    if inbound:
        deltas.move_target(inbound, before, after)


def add_content(
    connection: apsw.Connection, deltas: CounterDeltas, added: Sequence[NewDocument]
) -> None:
    """Store the child rows of records that have none, whose own rows are stored already."""
    for new in added:
        deltas.add_document(
            new.doc_type, new.model_fingerprint, valid=new.valid, partial=new.partial, sign=1
        )
        deltas.add_objects(new.doc_type, _kinds(new.objects), 1)
    flat = chain.from_iterable
    connection.executemany(_OBJECTS.put, flat(new.objects for new in added))
    connection.executemany(_RELATIONSHIPS.put, flat(new.relationships for new in added))
    connection.executemany(_BLOCKS.put, flat(new.blocks for new in added))
    connection.executemany(_FIELD_VALUES.put, flat(new.field_values for new in added))
    _count_edges(connection, deltas, [new.doc_id for new in added if new.relationships], 1)


def remove_content(connection: apsw.Connection, deltas: CounterDeltas, row: DocumentRow) -> None:
    """Remove the child rows of a live record and take it out of the counts."""
    kinds: list[Any] = connection.execute(_KINDS, (row.doc_id,)).fetchall()
    count_document(deltas, row, -1)
    deltas.add_objects(row.doc_type, kinds, -1)
    _count_edges(connection, deltas, [row.doc_id], -1)
    for table in _TABLES:
        connection.execute(table.clear, (row.doc_id,))


def replace_content(
    connection: apsw.Connection,
    deltas: CounterDeltas,
    previous: DocumentRow,
    new: NewDocument,
) -> None:
    """Turn the child rows of a live record, which keeps its type, into those of `new`."""
    doc_id, doc_type = new.doc_id, new.doc_type
    count_document(deltas, previous, -1)
    deltas.add_document(
        doc_type, new.model_fingerprint, valid=new.valid, partial=new.partial, sign=1
    )
    old_objects = _replace(connection, _OBJECTS, doc_id, new.objects)
    if old_objects is not None:
        deltas.add_objects(doc_type, _kinds(old_objects), -1)
        deltas.add_objects(doc_type, _kinds(new.objects), 1)
    old_edges = _edges(connection, deltas, [doc_id])
    if _replace(connection, _RELATIONSHIPS, doc_id, new.relationships) is not None:
        deltas.add_edges(old_edges, -1)
        _count_edges(connection, deltas, [doc_id], 1)
    _replace(connection, _BLOCKS, doc_id, new.blocks)
    _replace(connection, _FIELD_VALUES, doc_id, new.field_values)


def count_document(deltas: CounterDeltas, row: DocumentRow, sign: int) -> None:
    """Count a live record that comes (`sign` 1) or goes (-1), by its row."""
    deltas.add_document(
        row.doc_type, row.model_fingerprint, valid=row.valid, partial=row.partial, sign=sign
    )


def has_content(connection: apsw.Connection, documents: Sequence[NewDocument]) -> bool:
    """Whether the tables hold exactly the child rows of these records."""
    doc_ids = _json([new.doc_id for new in documents])
    wanted = (
        (_OBJECTS, [row for new in documents for row in new.objects]),
        (_RELATIONSHIPS, [row for new in documents for row in new.relationships]),
        (_BLOCKS, [row for new in documents for row in new.blocks]),
        (_FIELD_VALUES, [row for new in documents for row in new.field_values]),
    )
    return all(
        connection.execute(table.select_many, (doc_ids,)).fetchall() == rows
        for table, rows in wanted
    )


def _replace(
    connection: apsw.Connection, table: _ChildTable, doc_id: str, rows: list[Row]
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


def _count_edges(
    connection: apsw.Connection, deltas: CounterDeltas, doc_ids: Sequence[str], sign: int
) -> None:
    deltas.add_edges(_edges(connection, deltas, doc_ids), sign)


def _edges(connection: apsw.Connection, deltas: CounterDeltas, doc_ids: Sequence[str]) -> list[Any]:
    """The edges of records as `CounterDeltas.add_edges` takes them; none during a load."""
    if deltas.loading or not doc_ids:
        return []
    return connection.execute(_EDGES, (_json(doc_ids),)).fetchall()


def _kinds(objects: Iterable[Row]) -> Iterable[tuple[str, str, str]]:
    """Primitive, subtype and value of rows of `objects`."""
    return (row[2:5] for row in objects)


def _json(doc_ids: Sequence[str]) -> str:
    return msgspec.json.encode(doc_ids).decode()
