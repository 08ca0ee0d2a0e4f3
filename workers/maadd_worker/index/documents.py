"""Rows of the table `documents` as values, and the look-ups that readers and the writer share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec


class DocumentRow(msgspec.Struct, frozen=True):
    """One record as the index knows it (spec 01 §12).

    Times are ISO-8601 UTC with milliseconds. `file_hash` is empty when the file must be indexed
    again whatever its content.
    """

    doc_id: str
    doc_type: str
    schema_ref: str
    file_path: str
    file_hash: str
    version: int
    deleted: bool
    indexed_at: str
    updated_at: str
    created_at: str
    valid: bool
    partial: bool
    change_seq: int
    model_fingerprint: str


class FileIdentity(msgspec.Struct, frozen=True, array_like=True):
    """What `stat` says of a file whose content was read: unchanged means the same content."""

    mtime_ns: int
    size: int
    inode: int


_COLUMNS = (
    "doc_id, doc_type, schema_ref, file_path, file_hash, version, deleted, indexed_at, "
    "updated_at, created_at, valid, partial, change_seq, model_fingerprint"
)
_FIND_ANY = f"SELECT {_COLUMNS} FROM documents WHERE doc_id = ?"
_FIND_LIVE = f"{_FIND_ANY} AND deleted = 0"
_FIND_PATH_ANY = f"SELECT {_COLUMNS} FROM documents WHERE file_path = ?"
_FIND_PATH_LIVE = f"{_FIND_PATH_ANY} AND deleted = 0"
_FIND_PATHS_LIVE = f"""
SELECT {_COLUMNS} FROM documents
WHERE file_path IN (SELECT value FROM json_each(?)) AND deleted = 0
"""
_IDS_IN_RANGE = "SELECT doc_id FROM documents WHERE doc_id >= ? AND doc_id < ? ORDER BY doc_id"
_META_GET = "SELECT value FROM engine_meta WHERE key = ?"

_LAST_CODE_POINT = "\U0010ffff"


def find_document(
    connection: apsw.Connection, doc_id: str, *, include_deleted: bool
) -> DocumentRow | None:
    """The row of an id; tombstones only when asked for."""
    sql = _FIND_ANY if include_deleted else _FIND_LIVE
    return _one(connection.execute(sql, (doc_id,)).fetchone())


def find_document_by_path(
    connection: apsw.Connection, path: str, *, include_deleted: bool
) -> DocumentRow | None:
    """The row of a project-relative path; tombstones only when asked for."""
    sql = _FIND_PATH_ANY if include_deleted else _FIND_PATH_LIVE
    return _one(connection.execute(sql, (path,)).fetchone())


def find_documents_by_path(
    connection: apsw.Connection, paths: Sequence[str]
) -> dict[str, DocumentRow]:
    """The live rows that there are for some project-relative paths."""
    listing = msgspec.json.encode(paths).decode()
    rows = map(_one, connection.execute(_FIND_PATHS_LIVE, (listing,)))
    return {row.file_path: row for row in rows if row is not None}


def find_ids_with_prefix(connection: apsw.Connection, prefix: str) -> list[str]:
    """Every id that starts with `prefix`, tombstones included, in code point order."""
    rows = connection.execute(_IDS_IN_RANGE, (prefix, prefix + _LAST_CODE_POINT))
    return [doc_id for (doc_id,) in rows]


def read_meta(connection: apsw.Connection, key: str) -> str | None:
    """A value of `engine_meta`."""
    row = connection.execute(_META_GET, (key,)).fetchone()
    return None if row is None else str(row[0])


def _one(row: tuple[Any, ...] | None) -> DocumentRow | None:
    if row is None:
        return None
    (
        doc_id,
        doc_type,
        schema_ref,
        file_path,
        file_hash,
        version,
        deleted,
        indexed_at,
        updated_at,
        created_at,
        valid,
        partial,
        change_seq,
        model_fingerprint,
    ) = row
    return DocumentRow(
        doc_id,
        doc_type,
        schema_ref,
        file_path,
        file_hash,
        version,
        deleted == 1,
        indexed_at,
        updated_at,
        created_at,
        valid == 1,
        partial == 1,
        change_seq,
        model_fingerprint,
    )
