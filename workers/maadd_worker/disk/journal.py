"""The write journal: intents in flight, in `_backend/journal.db` (spec 01 §15.1).

`begin` is durable when it returns; `mark` and `complete` are not, since recovery decides
from the disk what an entry still means. The log of the database is folded back only in
quiet moments (`checkpoint`), so that a `begin` costs one fsync and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import apsw
import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.disk.folders import make_folders
from maadd_worker.disk.full_disk import FREE_SOME, is_full_disk
from maadd_worker.disk.journal_import import read_reference_journal
from maadd_worker.disk.log_room import is_cramped, log_room
from maadd_worker.failpoints import reach_sqlite

JOURNAL_PATH = "_backend/journal.db"
REFERENCE_PATH = "_backend/journal.json"

_LAYOUT = 1
_SCHEMA = """
CREATE TABLE entry (
    id TEXT PRIMARY KEY, op TEXT NOT NULL, doc_id TEXT NOT NULL, doc_type TEXT NOT NULL,
    path TEXT NOT NULL, old_path TEXT, temp_path TEXT, old_hash TEXT, new_hash TEXT,
    status TEXT NOT NULL, created_at TEXT NOT NULL, commit_request TEXT,
    boundary_sha TEXT, snapshot_tag TEXT, seq INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
_COLUMNS = (
    "id, op, doc_id, doc_type, path, old_path, temp_path, old_hash, new_hash, "
    "status, created_at, commit_request, boundary_sha, snapshot_tag"
)
_INSERT = f"INSERT INTO entry ({_COLUMNS}, seq) VALUES ({','.join('?' * 15)})"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_QUIET_PAGES = 64
_MOST_PAGES = 512
"""A write takes about three pages: the log is folded back every some hundred writes at the latest,
and keeps the size that it has then, since growing a file costs more than writing to it."""


class JournalEntry(msgspec.Struct, frozen=True):
    """One operation in flight; paths are project-relative, hashes as in the index.

    `status` is pending, file_written, indexed or committed. `commit` is the JSON of the
    commit request that the history step will use, None when none was known. `boundary_sha` is
    the commit that holds the write already, `snapshot_tag` the name of the tag it shall bear.
    """

    id: str
    op: str
    doc_id: str
    doc_type: str
    path: str
    old_path: str | None
    temp_path: str | None
    old_hash: str | None
    new_hash: str | None
    status: str
    created_at: str
    commit: str | None
    boundary_sha: str | None = None
    snapshot_tag: str | None = None


def new_entry_id() -> str:
    """A fresh id, `<milliseconds>-<6 random base-36 digits>`."""
    tail = "".join(secrets.choice(_DIGITS) for _ in range(6))
    return f"{time.time_ns() // 1_000_000}-{tail}"


def begun_at_ms(entry_id: str) -> int | None:
    """When an entry with this id was begun, in milliseconds since 1970; None for an id that is
    not of this form."""
    milliseconds = entry_id.partition("-")[0]
    return int(milliseconds) if milliseconds.isascii() and milliseconds.isdigit() else None


class Journal:
    """The journal of one project; used from one thread at a time, under the owner lock."""

    __slots__ = ("_db", "_durable", "_fsync", "_next_seq", "_pages", "_path")

    def __init__(self, db: apsw.Connection, *, fsync: bool) -> None:
        self._db = db
        self._path = db.filename
        self._fsync = fsync
        self._durable: bool | None = None
        self._pages = 0
        self._next_seq = 1

    @classmethod
    def open(cls, root: str, *, fsync: bool = True) -> Journal:
        """Open or create the journal of the project at `root`.

        Takes over a `journal.json` of the reference once. Raises BACKEND_ERROR for a
        damaged journal of either kind and leaves the file as it is.
        """
        path = os.path.join(root, JOURNAL_PATH)
        reference = os.path.join(root, REFERENCE_PATH)
        imported = reference_entries(root)
        make_folders(root, os.path.dirname(JOURNAL_PATH))
        try:
            db = apsw.Connection(path)
        except apsw.Error as failure:
            raise unusable(failure) from failure
        journal = cls(db, fsync=fsync)
        try:
            journal._prepare()
            if imported is not None:
                journal._insert_new(imported)
                os.unlink(reference)
                _fsync_dir(os.path.dirname(reference))
        except apsw.Error as failure:
            db.close()
            raise unusable(failure) from failure
        except BaseException:
            db.close()
            raise
        return journal

    def _prepare(self) -> None:
        db = self._db
        db.set_busy_timeout(2_000)
        # A damaged file must stay as it was found, its log included.
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        is_new = check_journal(db)
        db.execute("PRAGMA journal_mode=WAL")
        # Commit summaries quote record values, of which a hard delete must leave no copy.
        db.execute("PRAGMA secure_delete=ON")
        db.execute(f"PRAGMA journal_size_limit={_MOST_PAGES * 4096}")
        db.set_wal_hook(self._log_grew)
        if is_new:
            with self._transaction(durable=True):
                db.execute(_SCHEMA)
                db.execute(f"PRAGMA user_version={_LAYOUT}")
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        self._next_seq = int(_scalar(db, "SELECT coalesce(max(seq), 0) + 1 FROM entry"))
        self._start_log()

    def begin(self, entries: Sequence[JournalEntry]) -> None:
        """Record the intents of a whole group in one durable transaction.

        Raises WRITE_ERROR on a full disk and BACKEND_ERROR when they are not on disk for another
        reason; nothing of the group is recorded then.
        """
        if entries:
            with self._reported():
                if is_cramped(self._path):
                    with contextlib.suppress(apsw.FullError):
                        self._cut()
                reach_sqlite("journal.begin")
                with self._transaction(durable=True):
                    self._db.executemany(_INSERT, self._rows(entries))
                reach_sqlite("journal.begun")

    def mark(self, ids: Sequence[str], status: str) -> None:
        """Set the status of some entries. Not durable by itself."""
        if not ids:
            return
        with self._reported():
            reach_sqlite("journal.mark")
            if len(ids) == 1:
                self._set_durable(False)
                self._db.execute("UPDATE entry SET status=? WHERE id=?", (status, ids[0]))
                return
            with self._transaction(durable=False):
                self._db.executemany(
                    "UPDATE entry SET status=? WHERE id=?", ((status, entry) for entry in ids)
                )

    def set_boundary(self, ids: Sequence[str], sha: str, tag: str | None) -> None:
        """Note the commit that holds some entries, and the tag it shall bear; empty for content
        that needed no commit.

        Durable when there is a tag, which is made next.
        """
        with self._reported():
            reach_sqlite("journal.boundary")
            with self._transaction(durable=tag is not None):
                self._db.executemany(
                    "UPDATE entry SET boundary_sha=?, snapshot_tag=? WHERE id=?",
                    ((sha, tag, entry) for entry in ids),
                )

    def complete(self, ids: Sequence[str]) -> None:
        """Remove entries whose operation is over. Not durable by itself."""
        if not ids:
            return
        with self._reported():
            reach_sqlite("journal.complete")
            if len(ids) == 1:
                self._set_durable(False)
                self._db.execute("DELETE FROM entry WHERE id=?", (ids[0],))
            else:
                with self._transaction(durable=False):
                    self._db.executemany(
                        "DELETE FROM entry WHERE id=?", ((entry,) for entry in ids)
                    )
            reach_sqlite("journal.completed")

    def pending(self) -> list[JournalEntry]:
        """Every entry not completed, in the order of their begin."""
        with self._reported():
            rows = self._db.execute(f"SELECT {_COLUMNS} FROM entry ORDER BY seq")
            return [JournalEntry(*row) for row in rows]

    def is_empty(self) -> bool:
        """Whether every entry is completed."""
        with self._reported():
            return _scalar(self._db, "SELECT NOT EXISTS (SELECT 1 FROM entry)") == 1

    def meta_get(self, key: str) -> str | None:
        """A value stored under `key`, None when there is none."""
        with self._reported():
            for row in self._db.execute("SELECT value FROM meta WHERE key=?", (key,)):
                return str(row[0])
        return None

    def meta_set(self, key: str, value: str | None, *, durable: bool = False) -> None:
        """Store `value` under `key`; None removes the key."""
        with self._reported():
            self._set_meta(key, value, durable=durable)

    def _set_meta(self, key: str, value: str | None, *, durable: bool) -> None:
        with self._transaction(durable=durable):
            if value is None:
                self._db.execute("DELETE FROM meta WHERE key=?", (key,))
            else:
                self._db.execute("INSERT OR REPLACE INTO meta VALUES (?,?)", (key, value))

    def checkpoint(self) -> bool:
        """Fold a grown log back into the database; for quiet moments. True when it did."""
        if self._pages < _QUIET_PAGES:
            return False
        with self._reported():
            self._fold()
        return True

    def forget_completed(self) -> None:
        """Leave no text of completed entries on the disk: fold the log back and cut it off."""
        with self._reported():
            self._cut()

    def copy_to(self, other: Journal) -> int:
        """Hand every pending entry over to the journal of a later process; how many there are."""
        entries = self.pending()
        with other._reported():
            other._insert_new(entries)
        return len(entries)

    def close(self) -> None:
        """Close the database; the journal must not be used afterwards."""
        with self._reported():
            self._db.close()

    def _rows(self, entries: Iterable[JournalEntry]) -> Iterator[tuple[str | int | None, ...]]:
        for entry in entries:
            yield (*msgspec.structs.astuple(entry), self._next_seq)
            self._next_seq += 1

    def _insert_new(self, entries: Sequence[JournalEntry]) -> None:
        known = {row[0] for row in self._db.execute("SELECT id FROM entry")}
        fresh = [entry for entry in entries if entry.id not in known]
        if fresh:
            with self._transaction(durable=True):
                self._db.executemany(_INSERT, self._rows(fresh))

    def _set_durable(self, durable: bool) -> None:
        durable = durable and self._fsync
        if durable is not self._durable:
            self._db.execute("PRAGMA synchronous=FULL" if durable else "PRAGMA synchronous=OFF")
            self._durable = durable

    @contextmanager
    def _transaction(self, *, durable: bool) -> Iterator[None]:
        self._set_durable(durable)
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        if self._pages > log_room(self._path, _MOST_PAGES):
            # What was written is safe in the log, which then waits for more room.
            with contextlib.suppress(apsw.FullError):
                self._fold()

    def _cut(self) -> None:
        self._set_durable(True)
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._start_log()

    def _fold(self) -> None:
        self._set_durable(True)
        self._db.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        self._start_log()

    def _start_log(self) -> None:
        """Write the head of a new log now: SQLite syncs it apart, which `begin` then need not."""
        self._pages = 0
        # On a full disk `begin` has to do it, and tells its caller if there is no room for that.
        with contextlib.suppress(apsw.FullError):
            self._set_meta("log_started", str(time.time_ns()), durable=True)

    def _log_grew(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        self._pages = pages
        return apsw.SQLITE_OK

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as failure:
            if is_full_disk(failure):
                text = f"the write journal has no room: {failure}; {FREE_SOME}"
                raise MaadError("WRITE_ERROR", text, {"errno": "ENOSPC"}) from failure
            raise MaadError("BACKEND_ERROR", f"the write journal failed: {failure}") from failure


def check_journal(db: apsw.Connection) -> bool:
    """Whether the file is a journal without its tables, as a new one is.

    Raises BACKEND_ERROR for one that this version cannot read, apsw.Error for a damaged one.
    """
    layout = _scalar(db, "PRAGMA user_version")
    tables = _scalar(db, "SELECT count(*) FROM sqlite_schema")
    if layout not in (0, _LAYOUT) or (layout == 0) != (tables == 0):
        raise MaadError(
            "BACKEND_ERROR",
            f"{JOURNAL_PATH} is not a journal this version can read; it was left as it is. "
            "Start the version that wrote it, or move the file away",
        )
    verdict = _scalar(db, "PRAGMA quick_check(1)")
    if verdict != "ok":
        raise apsw.CorruptError(str(verdict))
    return layout == 0


def reference_entries(root: str) -> list[JournalEntry] | None:
    """What a journal of the reference holds that was not taken over yet, None where there is
    none; BACKEND_ERROR when it cannot be read."""
    path = os.path.join(root, REFERENCE_PATH)
    if not os.path.exists(path):
        return None
    return [JournalEntry(**fields) for fields in read_reference_journal(root, path)]


def _scalar(db: apsw.Connection, sql: str) -> str | int:
    value = db.execute(sql).get
    return value if isinstance(value, str | int) else str(value)


def unusable(failure: apsw.Error) -> MaadError:
    """BACKEND_ERROR for a journal that cannot be opened: damaged, or kept from us."""
    if is_full_disk(failure):
        text = f"{JOURNAL_PATH} cannot be opened: {failure}; {FREE_SOME}"
        return MaadError("BACKEND_ERROR", text, {"errno": "ENOSPC"})
    if not isinstance(failure, apsw.CorruptError | apsw.NotADBError):
        return MaadError("BACKEND_ERROR", f"{JOURNAL_PATH} cannot be opened: {failure}")
    return MaadError(
        "BACKEND_ERROR",
        f"{JOURNAL_PATH} is damaged ({failure}) and was left as it is. Move it away to start "
        "without it, then compare `git status` with the records it would have recovered",
    )


def _fsync_dir(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
