"""Opening SQLite connections: one writing, any number of reading ones (spec 01 §12)."""

from __future__ import annotations

import contextlib
import os
from urllib.parse import quote

import apsw

from maadd.protocol.errors import MaadError
from maadd_worker.disk.full_disk import FREE_SOME, is_full_disk

BUSY_TIMEOUT_MS = 5000
WRITER_CACHE_KIB = 8192
READER_CACHE_KIB = (4096, 16_384)
"""The least and the most of a reading connection; between them the `_CACHED`th part of the file."""

_CACHED = 32
STATEMENT_CACHE = 200
"""Prepared statements kept per connection."""

_READ_AND_WRITE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE


def open_writer(path: str) -> apsw.Connection:
    """The writing connection; the file is created when absent.

    Deleted content is overwritten at once, so that a hard delete leaves no text in free pages.
    Raises apsw.Error, and BACKEND_ERROR on a file system that cannot hold a shared log.
    """
    connection = _connect(path)
    try:
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        if connection.pragma("journal_mode", "WAL") != "wal":
            raise MaadError(
                "BACKEND_ERROR",
                "the file system under _backend cannot hold an SQLite index that several "
                "connections share (WAL); put the project on a local disk",
            )
        connection.pragma("synchronous", "NORMAL")
        connection.pragma("foreign_keys", True)
        connection.pragma("secure_delete", True)
        connection.pragma("cache_size", -WRITER_CACHE_KIB)
        # Savepoints copy the pages they touch; a file for that would cost more than the write.
        connection.pragma("temp_store", "MEMORY")
    except (apsw.Error, MaadError):
        connection.close()
        raise
    return connection


def open_reader(path: str) -> apsw.Connection:
    """A reading connection to a file that somebody else may write. Raises apsw.Error."""
    connection = _connect(path, apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    least, most = READER_CACHE_KIB
    connection.pragma(
        "cache_size", -max(least, min(most, os.path.getsize(path) // 1024 // _CACHED))
    )
    return connection


def open_immutable(path: str) -> apsw.Connection:
    """A connection to a file that nobody writes; touches nothing beside it. Raises apsw.Error."""
    uri = f"file:{quote(path)}?mode=ro&immutable=1"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    return _connect(uri, flags)


def _connect(path: str, flags: int = _READ_AND_WRITE) -> apsw.Connection:
    """A connection whose statements are planned once. With the histograms of `ANALYZE` a
    statement would else be compiled anew for each value that is bound to it, which takes longer
    than most of them run."""
    connection = apsw.Connection(path, flags=flags, statementcachesize=STATEMENT_CACHE)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    return connection


def open_for_look(path: str) -> apsw.Connection:
    """A reading connection that leaves nothing behind, whether or not somebody writes the file.

    Only a log that is there already is read with the file. Raises apsw.Error.
    """
    log = f"{path}-wal"
    in_use = os.path.exists(log) and os.path.getsize(log) > 0
    return open_reader(path) if in_use else open_immutable(path)


def cut_log(connection: apsw.Connection) -> bool:
    """Write the log of a database back and cut it off; False when somebody still reads from it,
    or the disk is too full for the file to take it. Raises apsw.Error."""
    connection.set_busy_timeout(0)
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (apsw.BusyError, apsw.FullError):
        return False
    finally:
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    return True


def cut_log_alone(path: str) -> None:
    """`cut_log` for a database that no process has open, on a disk that may be too full for the
    file that connections share. What keeps it from that is found by who opens it next."""
    with (
        contextlib.suppress(apsw.Error),
        contextlib.closing(apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)) as connection,
    ):
        connection.pragma("locking_mode", "EXCLUSIVE")
        cut_log(connection)


def backend_error(error: Exception, doing: str) -> MaadError:
    """BACKEND_ERROR for an SQLite failure, on a full disk with its `errno`; `doing` completes
    "the index could not be ..."."""
    text = f"the index could not be {doing}: {error}"
    if is_full_disk(error):
        return MaadError("BACKEND_ERROR", f"{text}; {FREE_SOME}", {"errno": "ENOSPC"})
    if isinstance(error, (apsw.CorruptError, apsw.NotADBError)):
        text += "; it is damaged: stop the server, delete _backend/maad.db and run `maad reindex`"
    return MaadError("BACKEND_ERROR", text)
