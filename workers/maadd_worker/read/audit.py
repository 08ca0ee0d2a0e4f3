"""`maad_audit`: which records were changed in a period, and last by whom (spec 02 §7.2)."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from maadd.protocol.arguments import AuditArgs
from maadd_worker.disk.scan import TOMBSTONE_PREFIX
from maadd_worker.history.outcome import LogicalWrite
from maadd_worker.outcome import Outcome
from maadd_worker.read.commits import (
    Commit,
    PathChange,
    changes_of,
    date_options,
    read_commits,
    require_repository,
)
from maadd_worker.read.context import ReadContext
from maadd_worker.read.history import pending_advice, truncated_advice
from maadd_worker.read.type_paths import owning_type


def audit(context: ReadContext, args: AuditArgs) -> Outcome:
    """One entry per record, the one touched last first.

    Raises HISTORY_DISABLED, GIT_NOT_INITIALIZED, GIT_ERROR.
    """
    require_repository(context)
    activity = _Activity(args.doc_type)
    unnamed: dict[str, tuple[int, Commit]] = {}
    commits = read_commits(context, date_options(args.since, args.until))
    for place, commit in enumerate(commits):
        if commit.shared is not None and not commit.body.writes:
            unnamed[commit.sha] = (place, commit)
        else:
            activity.add(place, commit, _named_writes(commit))
    changes = changes_of(context, unnamed.keys())
    for sha, (place, commit) in unnamed.items():
        activity.add(place, commit, _writes_by_path(context, commit, changes.get(sha, ())))
    entries = activity.newest_first()
    shown = entries[args.offset : args.offset + args.limit]
    warnings = pending_advice(context)
    if args.offset + len(shown) < len(entries):
        warnings.append(truncated_advice("records", len(shown), len(entries)))
    return Outcome(shown, tuple(warnings), rows=len(shown))


class _Activity:
    """The commits of each record, counted; the newest of them (lowest place) is described."""

    def __init__(self, doc_type: str | None) -> None:
        self._doc_type = doc_type
        self._places: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self._views: dict[str, dict[str, Any]] = {}

    def add(self, place: int, commit: Commit, writes: Iterable[LogicalWrite]) -> None:
        for write in writes:
            if self._doc_type is not None and write.doc_type != self._doc_type:
                continue
            doc_id = write.doc_id
            self._counts[doc_id] = self._counts.get(doc_id, 0) + 1
            if place < self._places.get(doc_id, place + 1):
                self._places[doc_id] = place
                self._views[doc_id] = _view(commit, write)

    def newest_first(self) -> list[dict[str, Any]]:
        order = sorted(self._places, key=lambda doc_id: (self._places[doc_id], doc_id))
        return [self._views[doc_id] | {"actions": self._counts[doc_id]} for doc_id in order]


def _named_writes(commit: Commit) -> Iterable[LogicalWrite]:
    """The writes that a commit names, the last one of each record."""
    if commit.body.writes:
        return {write.doc_id: write for write in commit.body.writes}.values()
    subject = commit.subject
    return (LogicalWrite(subject.action, subject.doc_id, subject.doc_type, subject.detail),)


def _writes_by_path(
    context: ReadContext, commit: Commit, changes: Sequence[PathChange]
) -> Iterable[LogicalWrite]:
    """The writes of a commit for several records that names the first one only: one for every
    record whose file it touched."""
    records = {write.doc_id: write for write in _named_writes(commit)}
    for change in changes:
        found = _record_at(context, change.path)
        if found is not None and found[0] not in records:
            doc_id, doc_type = found
            subject = commit.subject
            records[doc_id] = LogicalWrite(subject.action, doc_id, doc_type, subject.detail)
    return records.values()


def _record_at(context: ReadContext, path: str) -> tuple[str, str] | None:
    """Id and type of the record whose file stands, or stood, at a path."""
    row = context.reader.find_by_path(path, include_deleted=True)
    if row is not None:
        return row.doc_id, row.doc_type
    entry = owning_type(context.model.registry, path)
    if entry is None or not path.endswith(".md"):
        return None
    return posixpath.basename(path).removeprefix(TOMBSTONE_PREFIX)[: -len(".md")], entry.name


def _view(commit: Commit, write: LogicalWrite) -> dict[str, Any]:
    view: dict[str, Any] = {
        "docId": write.doc_id,
        "docType": write.doc_type,
        "actions": 1,
        "lastAction": write.action,
        "lastSummary": commit.subject.summary,
        "lastAuthor": commit.author,
        "lastTimestamp": commit.timestamp,
    }
    identity = commit.identity_of(write)
    if identity is not None:
        view["identity"] = msgspec.to_builtins(identity)
    return view
