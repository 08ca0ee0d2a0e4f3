"""Storing what a batch of files gave (spec 01 §14.2, §14.3).

Most batches hold records that the index does not know yet, or knows exactly so: these are
stored together. Whatever needs a decision is stored file by file.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import apsw
import msgspec

from maadd.protocol.errors import MaadError, MaadErrors, errors_of
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.index.document import IndexedDocument, let_go, store_document
from maadd_worker.index.documents import DocumentRow
from maadd_worker.index.new_document import NewDocument
from maadd_worker.index.prepare import PreparedFile
from maadd_worker.index.writer import IndexWriter


class FileOutcome(msgspec.Struct, frozen=True):
    """What became of a file: its record, or why it has none.

    `gone` is the row of the record that the file held before: with the id of another record in
    it there is no file of that id any more.
    """

    path: str
    done: IndexedDocument | None
    errors: tuple[MaadError, ...] = ()
    gone: DocumentRow | None = None


def store_batch(
    writer: IndexWriter, root: ProjectRoot, files: Sequence[PreparedFile]
) -> list[FileOutcome]:
    """Store the files in one transaction, whose outcomes are in their order.

    Files must be prepared from what the index holds now. A failure of one file is its outcome;
    BACKEND_ERROR or apsw.Error when nothing could be stored.
    """
    try:
        with writer.transaction():
            return _store_together(writer, root, files)
    except (MaadError, apsw.Error):
        # One file made SQLite fail: the others must not pay for it.
        with writer.transaction():
            return [_store_alone(writer, root, file, guarded=True) for file in files]


def _store_together(
    writer: IndexWriter, root: ProjectRoot, files: Sequence[PreparedFile]
) -> list[FileOutcome]:
    records = [file.record for file in files if file.record is not None]
    doc_ids = [record.doc_id for record in records]
    done: dict[str, IndexedDocument] = {}
    if len(set(doc_ids)) == len(doc_ids):
        known = writer.find_all_by_path([record.file_path for record in records])
        taken = writer.taken_ids(doc_ids)
        fresh = [
            record
            for record in records
            if record.doc_id not in taken and record.file_path not in known
        ]
        same = [
            (record, row)
            for record in records
            if (row := known.get(record.file_path)) is not None and _is_same(record, row)
        ]
        if fresh:
            for row in writer.add_documents(fresh):
                done[row.file_path] = IndexedDocument(row, None, "create")
        if same:
            refreshed = writer.refresh_documents(same)
            for row, (_, previous) in zip(refreshed, same, strict=True):
                done[row.file_path] = IndexedDocument(row, previous, "unchanged")
    return [
        FileOutcome(file.path, made)
        if (made := done.get(file.path)) is not None
        else _store_alone(writer, root, file, guarded=False)
        for file in files
    ]


def _is_same(record: NewDocument, row: DocumentRow) -> bool:
    """Whether the row is of this very content, so that only derived rows can differ."""
    return (
        row.doc_id == record.doc_id
        and row.doc_type == record.doc_type
        and row.file_hash == record.file_hash
    )


def _store_alone(
    writer: IndexWriter, root: ProjectRoot, file: PreparedFile, *, guarded: bool
) -> FileOutcome:
    """Store one file. Guarded, it has its savepoint and fails alone; otherwise a failure of
    the database ends the transaction."""
    try:
        with writer.savepoint() if guarded else nullcontext():
            return _store(writer, root, file)
    except (MaadError, MaadErrors) as failure:
        errors = errors_of(failure)
        if errors[0].code == "BACKEND_ERROR" and not (guarded and writer.connection.in_transaction):
            raise
        return FileOutcome(file.path, None, tuple(errors))


def _store(writer: IndexWriter, root: ProjectRoot, file: PreparedFile) -> FileOutcome:
    known = writer.find_by_path(file.path)
    if file.record is not None:
        try:
            return FileOutcome(file.path, store_document(writer, root, file.record, known))
        except MaadError as error:
            if error.code != "DUPLICATE_DOC_ID" or known is None:
                raise
            return FileOutcome(file.path, None, (error,), gone=let_go(writer, known))
    if file.state == "same" and known is not None:
        if known.file_hash == file.same_hash:
            writer.remember_file(known.doc_id, file.file)
        return FileOutcome(file.path, IndexedDocument(known, known, "unchanged", rows_made=False))
    if known is not None and known.file_hash and file.failures[0].code == "DOC_TOO_LARGE":
        writer.mark_unread(known)
    return FileOutcome(file.path, None, tuple(failure.error() for failure in file.failures))
