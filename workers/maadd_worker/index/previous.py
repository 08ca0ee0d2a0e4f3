"""What an older index file hands over to a new one (spec 01 §1, §12).

Versions, times, hard deletions and stored answers live in the index alone. When its layout
changes the file is kept beside the new one; whatever of it can be read is copied at once, and
each record takes its part when it is indexed again.
"""

from __future__ import annotations

import os

import apsw
import msgspec

from maadd_worker.index.connection import BUSY_TIMEOUT_MS
from maadd_worker.index.layout import layout_version

_SUFFIXES = ("", "-wal", "-shm")
_CARRIED_COLUMNS = {
    "doc_id": None,
    "doc_type": None,
    "indexed_at": None,
    "file_hash": "''",
    "version": "1",
    "deleted": "0",
    "updated_at": "''",
    "created_at": "''",
}
"""Columns of the old `documents`, each with what stands for it in a file that lacks it; a file
without those marked None has nothing to hand over."""

_KEPT_META = ("last_integrity_sweep_at", "last_integrity_findings", "last_backup_tag")
"""Keys of `engine_meta` that say something about the project, not about the file."""

_KEPT_TABLES = {
    "deletions": "change_seq, doc_id, doc_type, deleted_at",
    "idempotency": "principal, tool, key, fingerprint, request_id, completed_at_ms, used_at_ms, "
    "result",
    "idempotency_records": "doc_id, principal, tool, key",
}
"""What is kept whole: the log of hard deletions, whose numbers those of the new index follow, and
stored answers."""


_PUT_CARRIED = "INSERT OR IGNORE INTO carried VALUES (?, ?, ?, ?, ?, ?, ?)"


def previous_path(path: str) -> str:
    """Where the older file of an index is kept."""
    return f"{path}.prev"


def found_layout(path: str) -> int | None:
    """The layout of the index file at `path`; None for one that is not of ours. Raises apsw.Error.

    A file that is no database, or a damaged one, is none of ours: the index is derived, so it
    is kept aside and built again.
    """
    if not os.path.exists(path) or not os.path.getsize(path):
        return None
    try:
        connection = apsw.Connection(path)
    except (apsw.NotADBError, apsw.CorruptError):
        return None
    try:
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        return layout_version(connection)
    except (apsw.NotADBError, apsw.CorruptError):
        return None
    finally:
        connection.close()


class CarriedOver(msgspec.Struct, frozen=True):
    """How many records will keep version and times, and whether the older file could be read to
    its end."""

    records: int
    complete: bool


def set_aside(path: str) -> bool:
    """Rename the file at `path`, with its log, to `<path>.prev`; without one do nothing.

    True when `<path>.prev` is what the index was until now. A file without records, such as a
    rebuild that was cut short leaves, does not replace an earlier `<path>.prev`; it goes.
    """
    if not os.path.exists(path) or not os.path.getsize(path):
        return False
    keep = not os.path.exists(previous_path(path)) or _has_records(path)
    if keep:
        remove_previous(path)
    for suffix in reversed(_SUFFIXES):
        if os.path.exists(path + suffix):
            if keep:
                os.rename(path + suffix, previous_path(path) + suffix)
            else:
                os.unlink(path + suffix)
    return keep


def remove_previous(path: str) -> None:
    """Remove the older file of the index at `path`, so that no text survives in it."""
    for suffix in _SUFFIXES:
        try:
            os.unlink(previous_path(path) + suffix)
        except FileNotFoundError:
            continue


def carry_over(connection: apsw.Connection, path: str) -> CarriedOver:
    """Copy from `<path>.prev`, if there is one, into the tables of the new index, in its open
    transaction."""
    if not os.path.exists(previous_path(path)):
        return CarriedOver(0, complete=False)
    try:
        old = apsw.Connection(previous_path(path))
    except apsw.Error:
        return CarriedOver(0, complete=False)
    try:
        old.set_busy_timeout(BUSY_TIMEOUT_MS)
        carried = _copy_documents(old, connection)
        if {"key", "value"} <= _columns(old, "engine_meta"):
            connection.executemany(
                "INSERT OR IGNORE INTO engine_meta (key, value) VALUES (?, ?)",
                old.execute(
                    "SELECT key, CAST(value AS TEXT) FROM engine_meta "
                    f"WHERE key IN ({', '.join('?' * len(_KEPT_META))})",
                    _KEPT_META,
                ),
            )
        for table, columns in _KEPT_TABLES.items():
            names = columns.split(", ")
            if set(names) <= _columns(old, table):
                connection.executemany(
                    f"INSERT OR IGNORE INTO {table} ({columns}) "
                    f"VALUES ({', '.join('?' * len(names))})",
                    old.execute(f"SELECT {columns} FROM {table}"),
                )
    except apsw.Error:
        # Whatever was read before the damage is of use.
        kept: int = connection.execute("SELECT count(*) FROM carried").get
        return CarriedOver(kept, complete=False)
    finally:
        old.close()
    return CarriedOver(carried, complete=True)


def _has_records(path: str) -> bool:
    try:
        connection = apsw.Connection(path)
    except apsw.Error:
        return False
    try:
        return any(
            connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None
            for table in ("documents", "carried")
            if _columns(connection, table)
        )
    except apsw.Error:
        return False
    finally:
        connection.close()


def _copy_documents(old: apsw.Connection, new: apsw.Connection) -> int:
    present = _columns(old, "documents")
    if any(default is None and name not in present for name, default in _CARRIED_COLUMNS.items()):
        return 0
    chosen = ", ".join(
        name if name in present else f"{default} AS {name}"
        for name, default in _CARRIED_COLUMNS.items()
    )
    new.executemany(
        _PUT_CARRIED,
        old.execute(f"""
            SELECT CAST(doc_id AS TEXT), CAST(doc_type AS TEXT), CAST(file_hash AS TEXT),
                   CAST(version AS INTEGER), deleted = 1, CAST(updated AS TEXT),
                   CAST(coalesce(nullif(created_at, ''), updated) AS TEXT)
            FROM (SELECT *, coalesce(nullif(updated_at, ''), indexed_at) AS updated
                  FROM (SELECT {chosen} FROM documents))
        """),
    )
    if _columns(old, "carried") == _columns(new, "carried"):
        # The old file was itself a rebuild that had not met all of its records again.
        new.executemany(_PUT_CARRIED, old.execute("SELECT * FROM carried"))
    return int(new.execute("SELECT count(*) FROM carried").get)


def _columns(connection: apsw.Connection, table: str) -> set[str]:
    rows = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
    return {name for (name,) in rows}
