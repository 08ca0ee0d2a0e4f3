"""The one writing connection: records in and out, stamps, counters (spec 01 §12)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import apsw
import msgspec
from msgspec.structs import astuple

from maadd_worker.disk.log_room import is_cramped, log_room
from maadd_worker.index.block_texts import DocumentTexts, TextSink
from maadd_worker.index.connection import cut_log
from maadd_worker.index.content import (
    add_content,
    count_document,
    has_content,
    move_targets,
    remove_content,
    replace_content,
)
from maadd_worker.index.counters import LIVE, TOMBSTONE, CounterDeltas, read_counters
from maadd_worker.index.documents import (
    DocumentRow,
    FileIdentity,
    find_document,
    find_document_by_path,
    find_documents_by_path,
    find_ids_with_prefix,
    read_meta,
)
from maadd_worker.index.former_paths import note_former_path, trim_former_paths
from maadd_worker.index.new_document import NewDocument
from maadd_worker.index.plan import TypePlan, TypePlans
from maadd_worker.index.short_texts import fold_changes, has_changes
from maadd_worker.index.stamps import VERSIONS_RESET_KEY, Clock, Stamps
from maadd_worker.schema.model import Model

LOADING_KEY = "loading"
"""`engine_meta`: present from the start of a load to its end."""

FIRST_PASS_KEY = "first_pass"
"""`engine_meta`: present until the first pass over the files has come to its end."""

KEPT_DELETIONS = 10_000
"""Logged deletions that a trim leaves."""


_LOG_PAGES = 4000
"""Pages of 4 KiB in the log before a commit writes it back. A create changes about twenty, many of
them again and again: with a thousand, as otherwise, each was written back three times as often. A
disk with little room gets fewer (`log_room`)."""


class IndexWriter:
    """Every change of the index. Used by one thread; each change belongs to a transaction.

    SQLite failures come as apsw.Error and leave the transaction to its owner. `stamps` gives out
    versions, times and change numbers; `loading` tells that a load (`load.py`) is not finished;
    `log_held` that the log may be long (`hold_log`). `texts` takes the texts of blocks, if
    anybody does.
    """

    def __init__(self, connection: apsw.Connection, clock: Clock) -> None:
        self.connection = connection
        self._path = connection.filename
        self._log_pages = 0
        self._most_log_pages = _LOG_PAGES
        self.loading = read_meta(connection, LOADING_KEY) is not None
        self.log_held = False
        self.texts: TextSink | None = None
        self._deltas = CounterDeltas()
        self._plans: TypePlans | None = None
        self.stamps = Stamps(connection, clock, lambda: self.meta_set(VERSIONS_RESET_KEY, "1"))

    @property
    def wants_texts(self) -> bool:
        """Whether records are to come with the texts of their blocks."""
        return self.texts is not None and self.texts.wanted

    def find(self, doc_id: str, include_deleted: bool = False) -> DocumentRow | None:
        """The row of an id; tombstones only when asked for."""
        return find_document(self.connection, doc_id, include_deleted=include_deleted)

    def find_by_path(self, path: str, include_deleted: bool = False) -> DocumentRow | None:
        """The row of a project-relative path; tombstones only when asked for."""
        return find_document_by_path(self.connection, path, include_deleted=include_deleted)

    def find_all_by_path(self, paths: Sequence[str]) -> dict[str, DocumentRow]:
        """The live rows that there are for some paths."""
        return find_documents_by_path(self.connection, paths)

    def taken_ids(self, doc_ids: Sequence[str]) -> set[str]:
        """Those of some ids that have a row, tombstones included."""
        listing = msgspec.json.encode(doc_ids).decode()
        return {doc_id for (doc_id,) in self.connection.execute(_TAKEN, (listing,))}

    def ids_with_prefix(self, prefix: str) -> list[str]:
        """Every id that starts with `prefix`, tombstones included."""
        return find_ids_with_prefix(self.connection, prefix)

    def documents_of(self, doc_type: str) -> int:
        """Live records of a type."""
        return read_counters(self.connection).documents_by_type.get(doc_type, 0)

    def meta_get(self, key: str) -> str | None:
        """A value of `engine_meta`."""
        return read_meta(self.connection, key)

    def hold_log(self, pages: int) -> None:
        """Let the log grow to so many pages before a commit writes it back."""
        self._most_log_pages = pages
        self.log_held = True

    def write_log_back(self) -> None:
        """Copy what readers let go of from the log into the file, and hold it no longer."""
        self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        self._most_log_pages = _LOG_PAGES
        self.log_held = False
        self._fit_log()

    def _fit_log(self) -> None:
        """Before a write: let the log have what the disk has room for, and no more than that."""
        pages = log_room(self._path, self._most_log_pages)
        if pages != self._log_pages:
            self.connection.pragma("wal_autocheckpoint", pages)
            self._log_pages = pages
        if is_cramped(self._path):
            cut_log(self.connection)

    def meta_set(self, key: str, value: str | None) -> None:
        """Set a value of `engine_meta`; None removes it."""
        if value is None:
            self.connection.execute("DELETE FROM engine_meta WHERE key = ?", (key,))
        else:
            self.connection.execute(_META_SET, (key, value))

    def type_plan(self, model: Model, doc_type: str) -> TypePlan:
        """The plan of a type under `model`; UNKNOWN_TYPE."""
        return self.type_plans(model).plan(doc_type)

    def type_plans(self, model: Model) -> TypePlans:
        """The plans of `model`, kept until another model comes."""
        if self._plans is None or self._plans.model is not model:
            self._plans = TypePlans(model)
        return self._plans

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One immediate transaction: committed at the end, undone by an exception."""
        self._fit_log()
        self.connection.execute("BEGIN IMMEDIATE")
        self._deltas = CounterDeltas(self.loading)
        try:
            yield
            self._deltas.store(self.connection)
            self.connection.execute("COMMIT")
        except BaseException:
            # A full disk or a lost file makes SQLite undo the transaction by itself.
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """A part of the transaction that an exception undoes alone."""
        deltas = self._deltas.copy()
        self.connection.execute("SAVEPOINT part")
        try:
            yield
        except BaseException:
            self._deltas = deltas
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK TO part")
                self.connection.execute("RELEASE part")
            raise
        self.connection.execute("RELEASE part")

    def put_document(self, new: NewDocument, previous: DocumentRow | None) -> DocumentRow:
        """Store a record and its child rows; version and times by spec 01 §12.1.

        `previous` is the row of the id, also of a tombstone, which comes to life. Another row
        with the same path raises apsw.Error.
        """
        if previous is not None and previous.doc_type != new.doc_type:
            # Whoever follows the former type sees the record go.
            self._note_deletion(previous)
        row = self._new_row(new, previous, self.stamps.now())
        if previous is not None and previous.file_path != row.file_path:
            note_former_path(self.connection, previous)
        if previous is None or previous.deleted:
            before = None if previous is None else TOMBSTONE
            move_targets(self.connection, self._deltas, [new.doc_id], before, LIVE)
            self._store_rows([(row, new.file)])
            add_content(self.connection, self._deltas, [new])
        elif previous.doc_type != row.doc_type:
            remove_content(self.connection, self._deltas, previous)
            self._store_rows([(row, new.file)])
            add_content(self.connection, self._deltas, [new])
        else:
            if row.change_seq == previous.change_seq and row.file_path == previous.file_path:
                self._refresh_rows([(row, new.file)])
            else:
                self._store_rows([(row, new.file)])
            replace_content(self.connection, self._deltas, previous, new)
        self._replace_texts([new])
        return row

    def add_documents(self, added: Sequence[NewDocument]) -> list[DocumentRow]:
        """Store records whose ids have no row, not even of a tombstone; apsw.Error if one has."""
        now = self.stamps.now()
        rows = [self._new_row(new, None, now) for new in added]
        doc_ids = [new.doc_id for new in added]
        move_targets(self.connection, self._deltas, doc_ids, None, LIVE)
        self._store_rows([(row, new.file) for row, new in zip(rows, added, strict=True)])
        add_content(self.connection, self._deltas, added)
        if self.texts is not None and self.texts.wanted:
            self.texts.add([_texts_of(new) for new in added])
        return rows

    def refresh_documents(
        self, same: Sequence[tuple[NewDocument, DocumentRow]]
    ) -> list[DocumentRow]:
        """Store live records again whose type, path and content are those of their rows."""
        now = self.stamps.now()
        rows = [self._new_row(new, previous, now) for new, previous in same]
        self._refresh_rows([(row, new.file) for row, (new, _) in zip(rows, same, strict=True)])
        if has_content(self.connection, [new for new, _ in same]):
            for row, (_, previous) in zip(rows, same, strict=True):
                count_document(self._deltas, previous, -1)
                count_document(self._deltas, row, 1)
        else:
            for new, previous in same:
                replace_content(self.connection, self._deltas, previous, new)
        self._replace_texts([new for new, _ in same])
        return rows

    def remove_document(self, doc_id: str) -> DocumentRow | None:
        """Remove a record or tombstone for good and note the deletion; the row that was there.

        Stored answers that name the record go too (spec 03 §8).
        """
        row = self.find(doc_id, include_deleted=True)
        if row is None:
            return None
        if not row.deleted:
            remove_content(self.connection, self._deltas, row)
        before = TOMBSTONE if row.deleted else LIVE
        move_targets(self.connection, self._deltas, [doc_id], before, None)
        self._remove_texts(doc_id)
        execute = self.connection.execute
        execute("DELETE FROM documents WHERE doc_id = ?", (doc_id,))
        execute(_FORGET_ANSWERS, (doc_id,))
        execute("DELETE FROM carried WHERE doc_id = ?", (doc_id,))
        self._note_deletion(row)
        return row

    def let_go(self, doc_id: str) -> DocumentRow | None:
        """`remove_document` for a record whose file somebody took away, by hand or with Git:
        its version and times are kept for its return."""
        row = self.remove_document(doc_id)
        if row is not None and not row.deleted:
            note_former_path(self.connection, row)
            self.stamps.carry(
                row.doc_id,
                row.doc_type,
                row.file_hash,
                row.version,
                row.updated_at,
                row.created_at,
            )
        return row

    def tombstone(self, doc_id: str, new_path: str) -> DocumentRow:
        """Turn a live record into a tombstone at `new_path`; the version stays (spec 01 §11).

        KeyError without a live row.
        """
        row = self.find(doc_id)
        if row is None:
            raise KeyError(doc_id)
        remove_content(self.connection, self._deltas, row)
        self._remove_texts(doc_id)
        move_targets(self.connection, self._deltas, [doc_id], LIVE, TOMBSTONE)
        now = self.stamps.now()
        dead = msgspec.structs.replace(
            row,
            file_path=new_path,
            deleted=True,
            indexed_at=now,
            updated_at=now,
            change_seq=self.stamps.next_seq(),
        )
        self._store_rows([(dead, None)])
        note_former_path(self.connection, row)
        return dead

    def register_tombstone(
        self, doc_id: str, doc_type: str, schema_ref: str, path: str, file_hash: str
    ) -> DocumentRow:
        """A row for a tombstone file that the index has lost; the id must be free."""
        move_targets(self.connection, self._deltas, [doc_id], None, TOMBSTONE)
        now = self.stamps.now()
        stamp = self.stamps.of_tombstone(doc_id, path, now)
        row = DocumentRow(
            doc_id, doc_type, schema_ref, path, file_hash, stamp.version, True, now,
            stamp.updated_at, stamp.created_at, True, False, stamp.change_seq, "",
        )  # fmt: skip
        self._store_rows([(row, None)])
        return row

    def fold_values(self) -> None:
        """Leave no text of a value outside of `object_values` and its index."""
        if has_changes(self.connection):
            with self.transaction():
                fold_changes(self.connection)

    def trim_deletions(self) -> None:
        """Drop the oldest logged deletions, whose readers are so far behind that they start
        over, and the oldest notes of `let_go` and of former paths."""
        self.connection.execute(_TRIM_DELETIONS, (KEPT_DELETIONS - 1,))
        self.stamps.trim_carried(KEPT_DELETIONS)
        trim_former_paths(self.connection, KEPT_DELETIONS)

    def mark_unread(self, row: DocumentRow) -> None:
        """The file outgrew the size limit: its rows stay, flagged, until it can be read again."""
        if not row.partial:
            self._deltas.add_partial(row.doc_type)
        self.connection.execute(_MARK_UNREAD, (row.doc_id,))

    def remember_file(self, doc_id: str, file: FileIdentity | None) -> None:
        """Note the stat values of a file whose content was found to be the indexed one."""
        self.connection.execute(_REMEMBER_FILE, (*_file_values(file), doc_id))

    def _note_deletion(self, row: DocumentRow) -> None:
        noted = (self.stamps.next_seq(), row.doc_id, row.doc_type, self.stamps.now())
        self.connection.execute(_NOTE_DELETION, noted)

    def _new_row(self, new: NewDocument, previous: DocumentRow | None, now: str) -> DocumentRow:
        stamp = self.stamps.of(new, previous, now)
        return DocumentRow(
            new.doc_id,
            new.doc_type,
            new.schema_ref,
            new.file_path,
            new.file_hash,
            stamp.version,
            False,
            now,
            stamp.updated_at,
            stamp.created_at,
            new.valid,
            new.partial,
            stamp.change_seq,
            new.model_fingerprint,
        )

    def _replace_texts(self, documents: Sequence[NewDocument]) -> None:
        if self.texts is not None and self.texts.wanted:
            for new in documents:
                self.texts.replace(_texts_of(new))

    def _remove_texts(self, doc_id: str) -> None:
        if self.texts is not None:
            self.texts.remove(doc_id)

    def _store_rows(self, rows: Sequence[tuple[DocumentRow, FileIdentity | None]]) -> None:
        # The columns are the members of both structs in order.
        self.connection.executemany(
            _PUT_ROW, [(*astuple(row), *_file_values(file)) for row, file in rows]
        )

    def _refresh_rows(self, rows: Sequence[tuple[DocumentRow, FileIdentity | None]]) -> None:
        """Store what can differ in rows of unchanged content; most indexes stay untouched."""
        self.connection.executemany(
            _REFRESH_ROW,
            [
                (
                    row.schema_ref,
                    row.indexed_at,
                    row.valid,
                    row.partial,
                    row.model_fingerprint,
                    *_file_values(file),
                    row.doc_id,
                )
                for row, file in rows
            ],
        )


def _texts_of(new: NewDocument) -> DocumentTexts:
    return DocumentTexts(new.doc_id, new.file_hash, new.texts)


def _file_values(file: FileIdentity | None) -> tuple[int | None, ...]:
    return (None, None, None) if file is None else (file.mtime_ns, file.size, file.inode)


_TAKEN = "SELECT doc_id FROM documents WHERE doc_id IN (SELECT value FROM json_each(?))"
_TRIM_DELETIONS = """
DELETE FROM deletions WHERE change_seq <
    (SELECT change_seq FROM deletions ORDER BY change_seq DESC LIMIT 1 OFFSET ?)
"""
_META_SET = """
INSERT INTO engine_meta (key, value) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value
"""
_PUT_ROW = """
INSERT INTO documents
    (doc_id, doc_type, schema_ref, file_path, file_hash, version, deleted, indexed_at, updated_at,
     created_at, valid, partial, change_seq, model_fingerprint, mtime_ns, size, inode)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (doc_id) DO UPDATE SET
    doc_type = excluded.doc_type, schema_ref = excluded.schema_ref,
    file_path = excluded.file_path, file_hash = excluded.file_hash, version = excluded.version,
    deleted = excluded.deleted, indexed_at = excluded.indexed_at,
    updated_at = excluded.updated_at, created_at = excluded.created_at, valid = excluded.valid,
    partial = excluded.partial, change_seq = excluded.change_seq,
    model_fingerprint = excluded.model_fingerprint, mtime_ns = excluded.mtime_ns,
    size = excluded.size, inode = excluded.inode
"""
_REFRESH_ROW = """
UPDATE documents SET schema_ref = ?, indexed_at = ?, valid = ?, partial = ?,
    model_fingerprint = ?, mtime_ns = ?, size = ?, inode = ?
WHERE doc_id = ?
"""
_MARK_UNREAD = """
UPDATE documents SET partial = 1, file_hash = '', mtime_ns = NULL WHERE doc_id = ?
"""
_REMEMBER_FILE = "UPDATE documents SET mtime_ns = ?, size = ?, inode = ? WHERE doc_id = ?"
_FORGET_ANSWERS = """
DELETE FROM idempotency WHERE (principal, tool, key) IN
    (SELECT principal, tool, key FROM idempotency_records WHERE doc_id = ?)
"""
_NOTE_DELETION = """
INSERT INTO deletions (change_seq, doc_id, doc_type, deleted_at) VALUES (?, ?, ?, ?)
"""
