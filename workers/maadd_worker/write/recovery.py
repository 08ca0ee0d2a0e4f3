"""After a crash: what the journal's entries mean is decided from the disk (spec 01 §15.1).

A write whose bytes are on the disk is indexed and keeps its entry for the history step; one
that never reached the disk is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from maadd.protocol.errors import MaadError, MaadErrors
from maadd.protocol.messages import WorkerSettings
from maadd_worker.disk.journal import Journal, JournalEntry
from maadd_worker.disk.publish import fsync_dirs, sweep_temp_files, unlink
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.failpoints import reach
from maadd_worker.history.controller import HistoryController
from maadd_worker.index.document import index_document
from maadd_worker.index.store import IndexWriter
from maadd_worker.markdown.frontmatter import content_hash
from maadd_worker.schema.model import Model
from maadd_worker.write.admission import now_ms
from maadd_worker.write.bulk_commit import BulkMark, join_members, mark_of
from maadd_worker.write.expected import recover_answers
from maadd_worker.write.idempotency import AnswerStore


def recover(
    journal: Journal,
    writer: IndexWriter,
    model: Model,
    root: ProjectRoot,
    history: HistoryController,
    settings: WorkerSettings,
) -> list[str]:
    """Finish or forget what a stopped process left; the notes for health."""
    entries = journal.pending()
    undone = undo_partial_bulks(entries, writer, root, fsync=settings.fsync)
    reach("recovery.undone")
    found = reconcile(entries, writer, model, root, settings.max_doc_annotations)
    swept = sweep_temp_files(root, [entry.path for entry in model.registry.types.values()])
    published = {entry.id for entry in found.published}
    answers = AnswerStore(writer, settings.idempotency_ttl_ms, settings.idempotency_max)
    recover_answers(entries, published, writer, answers, now_ms())
    # Last: an answer also tells what was not done.
    _forget(journal, [entry.id for entry in found.discarded])
    reach("recovery.history")
    notes = [*undone, *found.notes, *(f"temp_file_removed:{path}" for path in swept)]
    return notes + history.recover(join_members(found.published))


def _forget(journal: Journal, ids: list[str]) -> None:
    """Drop entries of writes that did not happen; a full disk keeps them for the next start."""
    try:
        journal.complete(ids)
    except MaadError as failure:
        if failure.code != "WRITE_ERROR":
            raise


def undo_partial_bulks(
    entries: Sequence[JournalEntry], writer: IndexWriter, root: ProjectRoot, *, fsync: bool
) -> list[str]:
    """Remove the new files of atomic bulk creates that did not reach the disk as a whole.

    Nobody was told of them: the records of an atomic call come into the index together, and
    none is there. A file that somebody has changed since then, or that cannot be removed, is
    indexed like any other. Gives a note for each file.
    """
    calls: dict[BulkMark, list[JournalEntry]] = {}
    for entry in entries:
        mark = mark_of(entry)
        if mark is not None and mark.atomic and entry.status == "pending":
            calls.setdefault(mark, []).append(entry)
    notes: list[str] = []
    for members in calls.values():
        there = [entry for entry in members if _holds_new_bytes(root, entry)]
        if len(there) == len(members) or any(_is_indexed(writer, entry) for entry in members):
            continue
        for entry in there:
            try:
                unlink(root, entry.path)
                if fsync:
                    fsync_dirs(root, (entry.path,))
            except MaadError as failure:
                notes.append(f"bulk_not_undone:{entry.doc_id}:{failure}")
            else:
                notes.append(f"bulk_undone:{entry.doc_id}")
    return notes


class Reconciled(msgspec.Struct, frozen=True):
    """Entries that need their history step, entries to forget, and notes for health."""

    published: list[JournalEntry]
    discarded: list[JournalEntry]
    notes: list[str]


def reconcile(
    entries: list[JournalEntry],
    writer: IndexWriter,
    model: Model,
    root: ProjectRoot,
    max_annotations: int,
) -> Reconciled:
    """Bring the index in line with the disk for every entry; BACKEND_ERROR when it cannot."""
    result = Reconciled([], [], [])
    for entry in entries:
        with writer.transaction():
            published = _settle(entry, writer, model, root, max_annotations, result.notes)
        reach("recovery.settled")
        (result.published if published else result.discarded).append(entry)
        if not published:
            result.notes.append(f"write_discarded:{entry.op}:{entry.doc_id}")
    return result


def _settle(
    entry: JournalEntry,
    writer: IndexWriter,
    model: Model,
    root: ProjectRoot,
    max_annotations: int,
    notes: list[str],
) -> bool:
    """Whether the write of this entry was done; the index follows the disk."""
    if entry.status == "indexed":
        # Done and answered long ago, it waits for its commit; later writes may have
        # replaced its bytes.
        return True
    _drop_half_taken_name(entry, root, notes)
    if entry.op == "delete":
        return _settle_delete(entry, writer, root, notes)
    data = _read(root, entry.path)
    if data is None or content_hash(data) == entry.old_hash:
        return False
    try:
        indexed = index_document(
            writer, model, root, entry.path, data, max_annotations=max_annotations
        )
    except (MaadError, MaadErrors) as failure:
        notes.append(f"write_not_indexed:{entry.doc_id}:{failure}")
        return True
    if indexed.action != "unchanged":
        notes.append(f"write_indexed:{entry.op}:{entry.doc_id}")
    return True


def _settle_delete(
    entry: JournalEntry, writer: IndexWriter, root: ProjectRoot, notes: list[str]
) -> bool:
    original = entry.path if entry.old_path is None else entry.old_path
    if root.exists(original):
        return False
    row = writer.find(entry.doc_id, include_deleted=True)
    if row is not None and row.file_path == original:
        if not row.deleted and entry.old_path is not None and root.exists(entry.path):
            writer.tombstone(entry.doc_id, entry.path)
        else:
            writer.remove_document(entry.doc_id)
        notes.append(f"delete_finished:{entry.doc_id}")
    return True


def _drop_half_taken_name(entry: JournalEntry, root: ProjectRoot, notes: list[str]) -> None:
    """Free a name that a new file or a tombstone had taken, but not its bytes.

    On file systems that cannot rename without replacing, the name is taken first: with an empty
    file, or as a second name of the record (`disk.publish`).
    """
    if entry.op == "update" or (entry.op == "delete" and entry.old_path is None):
        return
    data = _read(root, entry.path)
    if data is None:
        return
    if entry.op == "create":
        half_taken = not data and entry.new_hash != content_hash(data)
    else:
        half_taken = root.exists(entry.old_path or "") and (
            not data or content_hash(data) == entry.old_hash
        )
    if half_taken:
        unlink(root, entry.path)
        notes.append(f"half_taken_name_freed:{entry.path}")


def _is_indexed(writer: IndexWriter, entry: JournalEntry) -> bool:
    row = writer.find_by_path(entry.path)
    return row is not None and row.file_hash == entry.new_hash


def _holds_new_bytes(root: ProjectRoot, entry: JournalEntry) -> bool:
    data = _read(root, entry.path)
    return data is not None and content_hash(data) == entry.new_hash


def _read(root: ProjectRoot, path: str) -> bytes | None:
    try:
        return root.read(path).data
    except MaadError:
        return None
