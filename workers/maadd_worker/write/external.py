"""Taking over what was changed on the disk by others (spec 01 §14.3, §14.7).

The index follows the files; no file is ever written here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Literal

import msgspec

from maadd.protocol.errors import MaadError
from maadd.protocol.messages import Event
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.disk.scan import TOMBSTONE_PREFIX, MarkdownFile
from maadd_worker.history.external import EditedRecord
from maadd_worker.index.batch import store_batch
from maadd_worker.index.documents import DocumentRow, FileIdentity
from maadd_worker.index.former_paths import former_paths, who_left
from maadd_worker.index.known_files import known_files
from maadd_worker.index.pass_report import ChangedId
from maadd_worker.index.prepare import FileTask, Limits, PreparedFile, prepare_files
from maadd_worker.index.tombstone_files import register_tombstones
from maadd_worker.index.writer import IndexWriter
from maadd_worker.markdown.frontmatter import content_hash
from maadd_worker.watch.findings import FailedFile, Finding
from maadd_worker.write.context import WriteContext
from maadd_worker.write.moves import moves_of

_SETTLED_NS = 2_000_000_000

_LIES_IN_THE_CONTENT = frozenset(
    {
        "PARSE_ERROR",
        "YAML_PROFILE_VIOLATION",
        "UNKNOWN_TYPE",
        "INVALID_DOC_ID",
        "DOC_TOO_LARGE",
    }
)
"""Failures that stay for as long as the file and the schemas do."""


class ExternalChange(msgspec.Struct, frozen=True):
    """A record that somebody else changed, and that the index now has so."""

    action: Literal["create", "update", "delete"]
    row: DocumentRow


def event_of(change: ExternalChange) -> Event:
    """What subscribers are told of a change."""
    row = change.row
    return Event(
        row.change_seq, change.action, row.doc_id, row.doc_type, row.updated_at, "external"
    )


def edited_record(writer: IndexWriter, change: ExternalChange) -> EditedRecord:
    """A change with every path that a commit of it must cover."""
    return _edited(
        writer, change.action, change.row.doc_id, change.row.doc_type, change.row.file_path
    )


def _edited(
    writer: IndexWriter, action: str, doc_id: str, doc_type: str, path: str
) -> EditedRecord:
    left = former_paths(writer.connection, doc_id)
    paths = tuple(dict.fromkeys((path, *left)))
    return EditedRecord(action, doc_id, doc_type, paths, moves_of(writer, doc_id, paths))


def uncommitted_records(context: WriteContext, changed: Sequence[str]) -> list[EditedRecord]:
    """The records of files that Git has otherwise than the index, or not at all; a file that the
    index has not taken over as it is stands for none."""
    writer = context.writer
    found: dict[str, EditedRecord] = {}
    for path, row in writer.find_all_by_path(changed).items():
        if _has_content(context, row):
            found[path] = edited_record(writer, ExternalChange("update", row))
    covered = {path for edit in found.values() for path in edit.paths}
    for left in who_left(writer.connection, changed):
        if left.path in covered or _is_there(context.root, left.path):
            continue
        owner = writer.find(left.doc_id, include_deleted=True)
        if owner is None:
            found[left.path] = _edited(writer, "delete", left.doc_id, left.doc_type, left.path)
        else:
            change = ExternalChange("delete" if owner.deleted else "update", owner)
            found[left.path] = edited_record(writer, change)
    return list(found.values())


def _has_content(context: WriteContext, row: DocumentRow) -> bool:
    try:
        return content_hash(context.read_file(row).data) == row.file_hash
    except MaadError:
        return False


def _is_there(root: ProjectRoot, path: str) -> bool:
    try:
        return root.exists(path)
    except (OSError, MaadError):
        return True


class TakenOver(msgspec.Struct, frozen=True):
    """What became of some findings; `settled` are the paths with nothing to complain of."""

    changes: tuple[ExternalChange, ...]
    failed: dict[str, FailedFile]
    settled: tuple[str, ...]
    changed_ids: tuple[ChangedId, ...]


def take_over(context: WriteContext, findings: Sequence[Finding]) -> TakenOver:
    """Bring the rows of the paths up to date, files that are there before those that are not:
    a record that moved keeps its row. BACKEND_ERROR when the database fails."""
    tombstones = [one.path for one in findings if _is_tombstone(one.path)]
    if tombstones:
        files = [MarkdownFile(path, 0, 0, 0) for path in tombstones]
        register_tombstones(context.writer, context.root, files, context.settings.max_doc_bytes)
    records = [one for one in findings if not _is_tombstone(one.path)]
    changes: list[ExternalChange] = []
    changed_ids: list[ChangedId] = []
    failed: dict[str, FailedFile] = {}
    stamps = {one.path: _stamp(context.root, one.path) for one in records}
    prepared = prepare_paths(context, [one.path for one in records])
    there = [file for file in prepared if file.state != "gone"]
    for outcome in store_batch(context.writer, context.root, there) if there else ():
        if outcome.errors:
            error = outcome.errors[0]
            lasting = error.code in _LIES_IN_THE_CONTENT
            failed[outcome.path] = FailedFile(stamps[outcome.path] if lasting else None, error)
        if outcome.gone is not None:
            changes.append(ExternalChange("delete", outcome.gone))
        done = outcome.done
        if done is None or not done.rows_made:
            continue
        if done.replaced is not None:
            changes.append(ExternalChange("delete", done.replaced))
        if done.changed_id is not None:
            changed_ids.append(done.changed_id)
        if done.action != "unchanged":
            changes.append(ExternalChange(done.action, done.row))
    missing = {file.path for file in prepared if file.state == "gone"}
    gone = [one for one in records if one.path in missing]
    if gone:
        with context.writer.transaction():
            removed = [_remove(context, one) for one in gone]
        changes.extend(change for change in removed if change is not None)
    settled = tuple(one.path for one in findings if one.path not in failed)
    return TakenOver(tuple(changes), failed, settled, tuple(changed_ids))


def prepare_paths(
    context: WriteContext, paths: Sequence[str], *, made_since: str = ""
) -> list[PreparedFile]:
    """The files at some paths, ready to be stored, except for those with current rows that were
    made since `made_since` (a stamp of the index)."""
    plans = context.writer.type_plans(context.model)
    known = {
        path: row
        for path, row in known_files(context.writer.connection, paths).items()
        if row.indexed_at >= made_since
    }
    limits = Limits(
        context.settings.max_doc_bytes,
        context.settings.max_doc_annotations,
        context.writer.wants_texts,
    )
    tasks = [
        FileTask(path, row.current_hash(plans) if (row := known.get(path)) else None)
        for path in paths
    ]
    return prepare_files(context.root, plans, limits, tasks)


def _remove(context: WriteContext, finding: Finding) -> ExternalChange | None:
    """The row of a file that is gone goes too, when its absence means something."""
    row = context.writer.find_by_path(finding.path)
    if row is None or not _means_something(context.root, finding):
        return None
    folder, _, name = finding.path.rpartition("/")
    buried = f"{folder}/{TOMBSTONE_PREFIX}{name}"
    try:
        deleted_softly = context.root.exists(buried)
    except (OSError, MaadError):
        deleted_softly = False
    if deleted_softly:
        return ExternalChange("delete", context.writer.tombstone(row.doc_id, buried))
    context.writer.let_go(row.doc_id)
    return ExternalChange("delete", row)


def _means_something(root: ProjectRoot, finding: Finding) -> bool:
    """Whether the absence of a file tells that it was deleted.

    A survey has judged the folder of one that is `absent`. For one that an event told of, the
    nearest folder that is there must be readable: then the disk is mounted.
    """
    if finding.evidence == "seen":
        return False
    try:
        if root.exists(finding.path):
            return False
        folder = finding.path.rpartition("/")[0]
        while folder and not root.exists(folder):
            folder = folder.rpartition("/")[0]
        os.close(root.open_directory(folder))
    except (OSError, MaadError):
        return False
    return True


def _stamp(root: ProjectRoot, path: str) -> FileIdentity | None:
    try:
        status = root.stat(path)
    except OSError:
        return None
    if time.time_ns() - status.st_mtime_ns < _SETTLED_NS:
        return None
    return FileIdentity(status.st_mtime_ns, status.st_size, status.st_ino)


def _is_tombstone(path: str) -> bool:
    return path.rpartition("/")[2].startswith(TOMBSTONE_PREFIX)
