"""One history boundary for the many writes of a bulk call (spec 03 §4.4, §7.3, §9.1).

Each journal entry of a bulk call carries the commit request of its own record and the mark of
the call, so that the one commit can be put together from those writes that really happened.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from maadd_worker.disk.journal import JournalEntry
from maadd_worker.history.outcome import (
    CommitRequest,
    LogicalWrite,
    decode_request,
    encode_request,
)


class BulkMark(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the writes of one call have in common.

    `detail` is the commit's detail without the number of records (`bulk`, `bulk:soft`), and
    `outcome` says what became of them (`created`). The records of an `atomic` call are there
    together or not at all.
    """

    id: str
    detail: str
    outcome: str
    atomic: bool = False


class _Marked(msgspec.Struct, frozen=True):
    bulk: BulkMark | None = None


_marked = msgspec.json.Decoder(_Marked)


def combine(mark: BulkMark, parts: Sequence[CommitRequest]) -> CommitRequest:
    """The one request for the writes `parts`, at least one, each named by a trailer."""
    first = parts[0]
    contents: dict[str, bytes | None] = {}
    for part in parts:
        contents.update(part.contents)
    noun = "record" if len(parts) == 1 else "records"
    return CommitRequest(
        action=first.action,
        doc_id=first.doc_id,
        doc_type=first.doc_type,
        detail=f"{mark.detail}:{len(parts)}",
        summary=f"{len(parts)} {noun} {mark.outcome}",
        paths=tuple(dict.fromkeys(path for part in parts for path in part.paths)),
        identity=first.identity,
        journal_ids=tuple(entry for part in parts for entry in part.journal_ids),
        contents=contents,
        moves={path: owner for part in parts for path, owner in part.moves.items()},
        writes=tuple(
            LogicalWrite(part.action, part.doc_id, part.doc_type, part.detail, part.identity)
            for part in parts
        ),
    )


def encode_member(mark: BulkMark, part: CommitRequest) -> str:
    """What the journal entry of one record of a bulk call keeps."""
    stored = msgspec.json.decode(encode_request(part))
    return msgspec.json.encode({**stored, "bulk": mark}).decode()


def mark_of(entry: JournalEntry) -> BulkMark | None:
    """The mark of the bulk call that the entry belongs to, None for a single write."""
    if entry.commit is None or '"bulk":' not in entry.commit:
        return None
    try:
        return _marked.decode(entry.commit).bulk
    except msgspec.MsgspecError:
        return None


def join_members(entries: Sequence[JournalEntry]) -> list[JournalEntry]:
    """The entries with the common request of their bulk call, for those that are of one.

    Entries with the same request become one commit.
    """
    calls: dict[BulkMark, list[JournalEntry]] = {}
    for entry in entries:
        mark = mark_of(entry)
        if mark is not None:
            calls.setdefault(mark, []).append(entry)
    common: dict[str, str] = {}
    for mark, members in calls.items():
        parts = [decode_request(entry.commit or "", ()) for entry in members]
        request = encode_request(combine(mark, parts))
        common.update((entry.id, request) for entry in members)
    return [
        msgspec.structs.replace(entry, commit=common.get(entry.id, entry.commit))
        for entry in entries
    ]
