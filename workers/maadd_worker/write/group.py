"""Carrying out planned writes as a group (design §5, spec 03 §2.5).

New bytes beside their files, one durable journal transaction, then each file, one sync per
folder, one index transaction. Every result is what the writes would have given one after the
other. What fails is taken back alone; what is answered as done is on the disk and in the index.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any

import apsw
import msgspec

from maadd.protocol.errors import MaadError, MaadErrors, errors_of
from maadd_worker.disk.journal import Journal, JournalEntry, new_entry_id
from maadd_worker.disk.publish import Staged, discard, fsync_dirs
from maadd_worker.failpoints import reach, reach_sqlite
from maadd_worker.history.outcome import encode_request
from maadd_worker.index.connection import backend_error
from maadd_worker.index.document import index_document
from maadd_worker.index.former_paths import forget_former_paths, former_paths, who_left
from maadd_worker.index.store import DocumentRow
from maadd_worker.markdown.text import iso_milliseconds
from maadd_worker.write.bulk_commit import BulkMark, encode_member
from maadd_worker.write.context import FileChange, Plan, WriteContext
from maadd_worker.write.expected import Expectation, with_expectation
from maadd_worker.write.moves import moves_of
from maadd_worker.write.publication import (
    Staging,
    discard_staging,
    publish_changes,
    stage_changes,
    touched_paths,
    withdraw,
)

_LAST_DELETION = """
SELECT max(change_seq), max(deleted_at) FROM deletions WHERE doc_id = ?
"""


class Change(msgspec.Struct, frozen=True):
    """What a write left in the index: its row (None after a hard delete) and its number."""

    row: DocumentRow | None
    seq: int
    updated_at: str


class Execution(msgspec.Struct, frozen=True):
    """The end of one planned write; exactly one of `change` and `errors` is given, and neither
    for a write that changes no byte. `journal_id` stays open until its history step is over.
    `aside` keeps what is needed to take it back; `stays` that this was not possible."""

    plan: Plan
    change: Change | None = None
    errors: tuple[MaadError, ...] = ()
    journal_id: str | None = None
    aside: Staged | None = None
    stays: bool = False


BeforeCommit = Callable[[Sequence[Execution]], None]
"""Called inside the index transaction once every write of the group is done or has failed; not
for an atomic group that failed."""


def execute_group(
    context: WriteContext,
    journal: Journal,
    plans: Sequence[Plan],
    before_commit: BeforeCommit,
    bulk: BulkMark | None = None,
    expected: Sequence[Expectation | None] = (),
) -> list[Execution]:
    """Journal, publish and index the plans; one Execution each, in order.

    With an atomic `bulk` mark all of them succeed, or all carry the errors of those that
    could not be done. `expected` is what the journal keeps for calls with a key, one for each
    plan.
    """
    plans = [_with_moves(context, plan) for plan in plans]
    done = [
        Execution(plan, journal_id=new_entry_id() if plan.change is not None else None)
        for plan in plans
    ]
    atomic = bulk is not None and bulk.atomic
    entries = [
        _entry(one, bulk, expectation)
        for one, expectation in zip(done, expected or [None] * len(done), strict=True)
        if one.journal_id is not None
    ]
    # The bytes travel while the journal waits for the disk; no name changes before it is there.
    changes = [change for plan in plans if (change := plan.change) is not None]
    staging = stage_changes(context.root, changes, fsync=context.settings.fsync)
    try:
        journal.begin(entries)
    except MaadError as failure:
        discard_staging(context.root, staging)
        return [msgspec.structs.replace(one, errors=(failure,), journal_id=None) for one in done]
    _publish_all(context, done, staging)
    refused = next((one.errors for one in done if one.errors), None)
    if atomic and refused is not None:
        _take_back_all(context, done, MaadErrors(list(refused)))
    else:
        _index_all(context, done, before_commit, atomic=atomic)
    _drop_asides(context, done)
    # What could not be taken back is looked at by the next start.
    gone = [one for one in done if one.errors and not one.stays]
    _forget(journal, [entry for one in gone for entry in _ids(one)])
    if atomic:
        # Without the mark, too, a start sees in the index that the records are there.
        with contextlib.suppress(MaadError):
            journal.mark(
                [entry for one in done if not one.errors for entry in _ids(one)], "indexed"
            )
    return [msgspec.structs.replace(one, journal_id=None) if one.errors else one for one in done]


def _with_moves(context: WriteContext, plan: Plan) -> Plan:
    """The plan whose commit also knows of the files that people have moved about: no record is
    to be in two files afterwards, or in none."""
    connection, commit = context.writer.connection, plan.commit
    if plan.change is None or not commit.paths:
        return plan
    if not former_paths(connection, plan.doc_id) and not who_left(connection, commit.paths):
        return plan
    moves = moves_of(context.writer, plan.doc_id, commit.paths)
    moves |= dict.fromkeys(commit.paths, plan.doc_id)
    return msgspec.structs.replace(plan, commit=msgspec.structs.replace(commit, moves=moves))


def _publish_all(context: WriteContext, done: list[Execution], staging: Staging) -> None:
    fsync = context.settings.fsync
    changing = [number for number, one in enumerate(done) if one.plan.change is not None]
    changes = [change for one in done if (change := one.plan.change) is not None]
    paths: list[str] = []
    ends = publish_changes(context.root, changes, staging)
    for number, change, end in zip(changing, changes, ends, strict=True):
        if end.failure is not None:
            done[number] = _failed(done[number], end.failure)
        else:
            done[number] = msgspec.structs.replace(done[number], aside=end.aside)
            paths.extend(touched_paths(change))
    if fsync and paths:
        try:
            fsync_dirs(context.root, paths)
        except MaadError as failure:
            _take_back_all(context, done, failure)


def _index_all(
    context: WriteContext, done: list[Execution], before_commit: BeforeCommit, *, atomic: bool
) -> None:
    writer = context.writer
    try:
        with writer.transaction():
            reach_sqlite("index.begun")
            for number, one in enumerate(done):
                if one.errors:
                    continue
                try:
                    with writer.savepoint():
                        done[number] = msgspec.structs.replace(
                            one, change=_index(context, one.plan)
                        )
                        forget_former_paths(
                            writer.connection,
                            one.plan.doc_id,
                            (*one.plan.commit.paths, *one.plan.commit.moves),
                        )
                except (MaadError, MaadErrors) as failure:
                    # A full disk makes SQLite undo the whole transaction by itself.
                    if atomic or not writer.connection.in_transaction:
                        raise
                    done[number] = _taken_back(context, one, failure)
                reach_sqlite("index.member")
            before_commit(done)
            reach_sqlite("index.commit")
    except apsw.Error as failure:
        # Nothing of the group is in the index, so nothing of it may stay on the disk.
        _take_back_all(context, done, backend_error(failure, "written"))
    except (MaadError, MaadErrors) as failure:
        _take_back_all(context, done, failure)
    else:
        reach("index.committed")


def _take_back_all(
    context: WriteContext, done: list[Execution], failure: MaadError | MaadErrors
) -> None:
    for number, one in enumerate(done):
        if not one.errors:
            done[number] = _taken_back(context, one, failure)


def _drop_asides(context: WriteContext, done: Sequence[Execution]) -> None:
    """The old bytes of what is done are not needed any more."""
    reach("file.aside")
    for one in done:
        if one.aside is not None and not one.errors:
            discard(context.root, one.aside)


def _forget(journal: Journal, ids: Sequence[str]) -> None:
    """Drop the entries of writes that did not happen."""
    # A journal that cannot be written keeps them; the next start finds nothing on the disk
    # and drops them. The callers are told of the failure that came first.
    with contextlib.suppress(MaadError):
        journal.complete(ids)


def _ids(one: Execution) -> tuple[str, ...]:
    return () if one.journal_id is None else (one.journal_id,)


def _index(context: WriteContext, plan: Plan) -> Change | None:
    change = plan.change
    if change is None:
        return None
    if change.kind in ("create", "replace"):
        assert change.data is not None
        row = index_document(
            context.writer,
            context.model,
            context.root,
            change.path,
            change.data,
            max_annotations=context.settings.max_doc_annotations,
            parsed=change.parsed,
        ).row
        return Change(row, row.change_seq, row.updated_at)
    if change.new_path is not None:
        row = context.writer.tombstone(plan.doc_id, change.new_path)
        return Change(row, row.change_seq, row.updated_at)
    context.writer.remove_document(plan.doc_id)
    noted: Any = context.writer.connection.execute(_LAST_DELETION, (plan.doc_id,)).fetchone()
    seq, deleted_at = noted
    return Change(None, seq, deleted_at)


def _taken_back(
    context: WriteContext, one: Execution, failure: MaadError | MaadErrors
) -> Execution:
    """Undo the publication of a write that could not be indexed (spec 03 §2.5)."""
    change = one.plan.change
    written = one.plan.keeps_file
    if change is not None and not written:
        try:
            withdraw(context.root, change, one.aside, fsync=context.settings.fsync)
            if context.settings.fsync:
                fsync_dirs(context.root, touched_paths(change))
        except MaadError:
            written = True
    return _failed(one, failure, written=written)


def _failed(one: Execution, failure: MaadError | MaadErrors, *, written: bool = False) -> Execution:
    path = one.plan.change.path if one.plan.change is not None else None
    errors = []
    for error in errors_of(failure):
        code, details = error.code, dict(error.details or {})
        if written or code == "BACKEND_ERROR":
            details |= {"docId": one.plan.doc_id, "filePath": path, "fileWritten": written}
        if written:
            if one.plan.keeps_file:
                details["writeOutcome"] = "unknown_reconcile"
            details["indexed"] = False
            details["recoveryHint"] = "run maad_reindex once the index can be written again"
        if code == "BACKEND_ERROR" and details.get("errno") == "ENOSPC":
            # Whichever file of a write finds no room, it is the same refusal.
            code = "WRITE_ERROR"
        errors.append(MaadError(code, error.message, details or None))
    return msgspec.structs.replace(one, errors=tuple(errors), change=None, stays=written)


def _entry(one: Execution, bulk: BulkMark | None, expectation: Expectation | None) -> JournalEntry:
    plan, change = one.plan, one.plan.change
    assert change is not None
    assert one.journal_id is not None
    path, old_path = _entry_paths(change)
    commit = encode_request(plan.commit) if bulk is None else encode_member(bulk, plan.commit)
    return JournalEntry(
        id=one.journal_id,
        op=plan.action,
        doc_id=plan.doc_id,
        doc_type=plan.doc_type,
        path=path,
        old_path=old_path,
        temp_path=None,
        old_hash=change.old_hash,
        new_hash=change.new_hash,
        status="pending",
        created_at=iso_milliseconds(dt.datetime.now(dt.UTC)),
        commit=with_expectation(commit, expectation),
    )


def _entry_paths(change: FileChange) -> tuple[str, str | None]:
    """The path that the write leaves behind, and the one it takes away."""
    if change.new_path is not None:
        return change.new_path, change.path
    return change.path, None
