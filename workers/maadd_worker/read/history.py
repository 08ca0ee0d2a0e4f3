"""`maad_history`: the commits that changed one record (spec 02 §7.1)."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from typing import Any

import msgspec

from maadd.protocol.arguments import HistoryArgs
from maadd.protocol.doc_ids import doc_id_fault
from maadd_worker.disk.scan import TOMBSTONE_PREFIX
from maadd_worker.outcome import Advice, Outcome
from maadd_worker.read.commits import (
    Commit,
    LogEntry,
    PathChange,
    changes_of,
    date_options,
    literal,
    parse_commit,
    read_commits,
    read_log,
    require_repository,
)
from maadd_worker.read.context import ReadContext, not_found

_RENAMES_FOLLOWED = 20


def history(context: ReadContext, args: HistoryArgs) -> Outcome:
    """Commits of a record, newest first, also of one that is deleted.

    Raises HISTORY_DISABLED, GIT_NOT_INITIALIZED, FILE_NOT_FOUND for an id that neither the
    index nor Git knows, GIT_ERROR.
    """
    require_repository(context)
    row = context.reader.find(args.doc_id, include_deleted=True)
    if row is None:
        paths = _former_paths(context, args.doc_id)
    elif row.deleted:
        folder, name = posixpath.split(row.file_path)
        paths = [row.file_path, posixpath.join(folder, name.removeprefix(TOMBSTONE_PREFIX))]
    else:
        paths = [row.file_path]
    doc_type = None if row is None else row.doc_type
    entries = [
        _view(commit, args.doc_id, doc_type)
        for entry in _log_of(context, paths, date_options(args.since, None))
        if (commit := parse_commit(entry)) is not None and _concerns(commit, args.doc_id)
    ]
    warnings = pending_advice(context)
    if len(entries) > args.limit:
        warnings.append(truncated_advice("commits", args.limit, len(entries)))
    shown = entries[: args.limit]
    return Outcome(shown, tuple(warnings), rows=len(shown))


def pending_advice(context: ReadContext) -> list[Advice]:
    """HISTORY_PENDING while Git lags behind the files."""
    pending = context.pending_writes()
    if not pending:
        return []
    message = f"{pending} writes are not in Git yet; maad_flush commits them"
    return [Advice("", message, "HISTORY_PENDING")]


def truncated_advice(what: str, shown: int, there: int) -> Advice:
    """RESULT_TRUNCATED when a limit cut something off."""
    message = f"{there} {what} match, {shown} are shown; raise limit or narrow the period"
    return Advice("limit", message, "RESULT_TRUNCATED")


def _concerns(commit: Commit, doc_id: str) -> bool:
    """Whether a commit on the record's path holds a write of the record.

    A commit for several records that does not name them counts for each whose file it touches.
    """
    if commit.subject.doc_id == doc_id:
        return True
    if commit.body.writes:
        return any(write.doc_id == doc_id for write in commit.body.writes)
    return commit.shared is not None


def _view(commit: Commit, doc_id: str, doc_type: str | None) -> dict[str, Any]:
    subject = commit.subject
    write = next((write for write in commit.body.writes if write.doc_id == doc_id), None)
    named = doc_type if subject.doc_id != doc_id and doc_type is not None else subject.doc_type
    view: dict[str, Any] = {
        "action": subject.action if write is None else write.action,
        "docId": doc_id,
        "docType": named if write is None else write.doc_type,
        "detail": subject.detail if write is None else write.detail,
        "summary": subject.summary,
        "sha": commit.sha,
        "author": commit.author,
        "timestamp": commit.timestamp,
    }
    if commit.shared is not None:
        view |= {"bulk": True, "bulkSize": commit.shared}
    identity = commit.identity_of(write)
    if identity is not None:
        view["identity"] = msgspec.to_builtins(identity)
    return view


def _log_of(context: ReadContext, paths: list[str], since: list[str]) -> list[LogEntry]:
    """The commits on the paths, and on those the file had before it was renamed.

    Git's own way to follow renames compares whole trees at every commit. Only a commit that
    adds a path and is no creation by us can be a rename, so those alone are looked at.
    """
    known = dict.fromkeys(paths)
    looked_at: set[str] = set()
    for _ in range(_RENAMES_FOLLOWED):
        log = list(read_log(context, since, map(literal, known), with_changes=True))
        suspects = {entry.sha for entry in log if _may_be_rename(entry)} - looked_at
        looked_at |= suspects
        former = {
            change.old_path: None
            for changes in changes_of(context, suspects).values()
            for change in changes
            if change.old_path is not None and change.status == "R" and change.path in known
        }
        if former.keys() <= known.keys():
            break
        known |= former
    return log


def _may_be_rename(entry: LogEntry) -> bool:
    if not any(change.status == "A" for change in entry.changes):
        return False
    commit = parse_commit(entry)
    return commit is None or commit.subject.action != "create"


def _former_paths(context: ReadContext, doc_id: str) -> list[str]:
    """Where a record stood that the index does not know; FILE_NOT_FOUND unless Git does."""
    if doc_id_fault(doc_id) is None:
        name = doc_id.replace(".", "[.]")
        named = read_commits(
            context,
            [
                "--extended-regexp",
                f"--grep=^maad:[A-Za-z0-9_]+[ \t]+{name}[ \t]+\\[",
                f"--grep=^Maad-Write: [A-Za-z0-9_]+ {name} \\[",
            ],
        )
        commits = {commit.sha: commit for commit in named if _concerns(commit, doc_id)}
        paths = {
            path
            for sha, changes in changes_of(context, commits.keys()).items()
            for path in _markdown_paths(changes)
            if commits[sha].shared is None or _bears_name(path, doc_id)
        }
        if not paths:
            specs = [f":(top,glob)**/{prefix}{doc_id}.md" for prefix in ("", TOMBSTONE_PREFIX)]
            paths = {
                path
                for commit in read_commits(context, [], specs, with_changes=True)
                for path in _markdown_paths(commit.changes)
                if _bears_name(path, doc_id)
            }
        if paths:
            return sorted(paths)
    raise not_found(doc_id)


def _markdown_paths(changes: Iterable[PathChange]) -> list[str]:
    paths = (path for change in changes for path in (change.path, change.old_path))
    return [path for path in paths if path is not None and path.endswith(".md")]


def _bears_name(path: str, doc_id: str) -> bool:
    return posixpath.basename(path).removeprefix(TOMBSTONE_PREFIX) == f"{doc_id}.md"
