"""Where records stood before somebody moved or took away their files by hand.

Git may still have a record there. The commit that next holds the record leaves the former path
out, so that no commit has one record in two files.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from maadd_worker.index.documents import DocumentRow


class FormerPath(msgspec.Struct, frozen=True):
    """A record, and where it does not stand any more."""

    doc_id: str
    doc_type: str
    path: str


def note_former_path(connection: apsw.Connection, row: DocumentRow) -> None:
    """The record is no longer at the project-relative path of its row."""
    connection.execute(_NOTE, (row.doc_id, row.doc_type, row.file_path))


def former_paths(connection: apsw.Connection, doc_id: str) -> list[str]:
    """The noted paths of a record, oldest first; something else may stand there by now."""
    return [path for (path,) in connection.execute(_OF_RECORD, (doc_id,))]


def who_left(connection: apsw.Connection, paths: Sequence[str]) -> list[FormerPath]:
    """The notes about these paths, oldest first."""
    listing = msgspec.json.encode(paths).decode()
    return [FormerPath(*row) for row in connection.execute(_OF_PATHS, (listing,))]


def forget_former_paths(connection: apsw.Connection, doc_id: str, paths: Sequence[str]) -> None:
    """A commit of the record covers these paths."""
    connection.execute(_FORGET, (doc_id, msgspec.json.encode(paths).decode()))


def trim_former_paths(connection: apsw.Connection, kept: int) -> None:
    """Drop all but the latest notes: most moves are committed by whoever made them."""
    connection.execute(_TRIM, (kept,))


_NOTE = "INSERT OR REPLACE INTO former_paths (doc_id, doc_type, path) VALUES (?, ?, ?)"
_OF_PATHS = """
SELECT doc_id, doc_type, path FROM former_paths
WHERE path IN (SELECT value FROM json_each(?)) ORDER BY id
"""
_OF_RECORD = "SELECT path FROM former_paths WHERE doc_id = ? ORDER BY id"
_FORGET = """
DELETE FROM former_paths WHERE doc_id = ? AND path IN (SELECT value FROM json_each(?))
"""
_TRIM = """
DELETE FROM former_paths WHERE id <=
    (SELECT id FROM former_paths ORDER BY id DESC LIMIT 1 OFFSET ?)
"""
