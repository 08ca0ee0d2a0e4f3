"""Commit requests from what a dead process left in the journal (spec 03 §7.6)."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from maadd_worker.disk.journal import JournalEntry
from maadd_worker.history.outcome import CommitRequest, LogicalWrite, decode_request
from maadd_worker.markdown.frontmatter import content_hash


def requests_of(entries: Sequence[JournalEntry]) -> list[CommitRequest]:
    """One request per original write, in the order of the journal.

    Entries of one bulk call carry the same stored request and become one commit again. Equal
    requests for the same file were several calls, and stay several. Entries without a stored
    request share one recovery commit. Contents come from the disk.
    """
    groups: list[tuple[str | None, list[JournalEntry]]] = []
    open_groups: dict[str | None, list[JournalEntry]] = {}
    for entry in entries:
        stored = _readable(entry.commit)
        group = open_groups.get(stored)
        again = group is not None and any(other.path == entry.path for other in group)
        if group is None or (stored is not None and again):
            group = open_groups[stored] = []
            groups.append((stored, group))
        group.append(entry)
    return [
        decode_request(stored, tuple(entry.id for entry in group))
        if stored is not None
        else _without_request(group)
        for stored, group in groups
    ]


def paths_of(requests: Sequence[CommitRequest]) -> tuple[str, ...]:
    """Every file of some requests, once."""
    return tuple(dict.fromkeys(path for request in requests for path in request.paths))


def touched_by(entries: Sequence[JournalEntry]) -> tuple[str, ...]:
    """Every file that some entries are about, once."""
    named = [path for entry in entries for path in (entry.path, entry.old_path) if path]
    return tuple(dict.fromkeys((*paths_of(requests_of(entries)), *named)))


def is_standing(root: str, entry: JournalEntry) -> bool:
    """Whether the disk is as the write of an entry left it."""
    if entry.op == "delete":
        return not os.path.lexists(os.path.join(root, entry.old_path or entry.path))
    try:
        descriptor = os.open(os.path.join(root, entry.path), os.O_RDONLY | os.O_NOFOLLOW)
        with open(descriptor, "rb") as file:
            return content_hash(file.read()) == entry.new_hash
    except OSError:
        return False


def _readable(stored: str | None) -> str | None:
    if stored is None:
        return None
    try:
        decode_request(stored, ())
    except msgspec.MsgspecError:
        return None
    return stored


def _without_request(entries: Sequence[JournalEntry]) -> CommitRequest:
    first = entries[0]
    paths = [path for entry in entries for path in (entry.path, entry.old_path) if path]
    return CommitRequest(
        action=first.op,
        doc_id=first.doc_id,
        doc_type="unknown",
        detail=f"recovery:{len(entries)}",
        summary=f"Recovered {len(entries)} indexed write{'s' if len(entries) != 1 else ''}",
        paths=tuple(dict.fromkeys(paths)),
        journal_ids=tuple(entry.id for entry in entries),
        writes=tuple(LogicalWrite(entry.op, entry.doc_id, entry.doc_type) for entry in entries),
    )
