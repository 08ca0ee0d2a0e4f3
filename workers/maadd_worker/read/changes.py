"""`maad_changes_since`: a polling feed of creates, updates and deletes (spec 02 §4.10).

The feed rides on `change_seq`, so nothing is lost under equal stamps or a clock that steps
back.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec

from maadd.protocol.arguments import ChangesSinceArgs
from maadd.protocol.errors import MaadError
from maadd_worker.index.rebuilt import EPOCH_KEY
from maadd_worker.outcome import Advice, Outcome
from maadd_worker.read.context import ReadContext
from maadd_worker.read.limits import type_advice

_LIMIT_CAP = 1000
_MAX_SEQ = 2**63 - 1
_FEW_TYPES = 20
"""Types that are looked up one by one; more of them are most of the feed."""

_LIVE = """
SELECT d.change_seq, d.doc_id, d.doc_type, d.updated_at,
       iif(d.version <= 1, 'create', 'update')
FROM documents d WHERE d.deleted = 0 AND d.change_seq > ?{types}
"""
# A page of one type, however rare it is in the feed.
_LIVE_OF_TYPE = """
SELECT * FROM (
    SELECT d.change_seq, d.doc_id, d.doc_type, d.updated_at,
           iif(d.version <= 1, 'create', 'update')
    FROM documents d WHERE d.deleted = 0 AND d.change_seq > ? AND d.doc_type = ?
    ORDER BY d.change_seq LIMIT ?
)
"""
_TOMBSTONES = """
SELECT d.change_seq, d.doc_id, d.doc_type, d.updated_at, 'delete'
FROM documents d WHERE d.deleted = 1 AND d.change_seq > ?{types}
"""
# A record appears once, at its latest change: deletions that another change of the record followed
# are left out, unless it came back as another type, which readers of the one type do not see.
_REMOVED = """
SELECT d.change_seq, d.doc_id, d.doc_type, d.deleted_at, 'delete'
FROM deletions d WHERE d.change_seq > ?{types}
    AND NOT EXISTS (SELECT 1 FROM documents n
                    WHERE n.doc_id = d.doc_id AND n.doc_type = d.doc_type)
    AND NOT EXISTS (SELECT 1 FROM deletions n
                    WHERE n.doc_id = d.doc_id AND n.doc_type = d.doc_type
                        AND n.change_seq > d.change_seq)
"""
_OF_TYPES = " AND d.doc_type IN (SELECT value FROM json_each(?))"

# A cursor of the reference stands before the first row with a greater (updatedAt, docId).
_FIRST_BEHIND = """
SELECT min(seq) FROM (
    SELECT min(change_seq) AS seq FROM documents WHERE (updated_at, doc_id) > (?, ?)
    UNION ALL
    SELECT min(change_seq) FROM deletions WHERE (deleted_at, doc_id) > (?, ?)
)
"""
_LAST = """
SELECT change_seq, doc_id, updated_at FROM documents
UNION ALL SELECT change_seq, doc_id, deleted_at FROM deletions
ORDER BY change_seq DESC LIMIT 1
"""


class _Cursor(msgspec.Struct, frozen=True, omit_defaults=True):
    """Behind which row a page begins; cursors of the reference have `u` and `d` only."""

    u: str
    d: str
    s: Annotated[int, msgspec.Meta(ge=0, le=_MAX_SEQ)] | None = None
    e: str | None = None


_decoder = msgspec.json.Decoder(_Cursor)


def changes_since(context: ReadContext, args: ChangesSinceArgs) -> Outcome:
    """Changes behind the cursor, oldest first; INVALID_FIELDS for a bad cursor or limit."""
    if args.limit < 1:
        raise MaadError("INVALID_FIELDS", "limit must be at least 1", {"field": "limit"})
    limit = min(args.limit, _LIMIT_CAP)
    epoch = context.reader.meta_get(EPOCH_KEY) or ""
    given = args.cursor or None
    warnings = tuple(_type_advice(context, args.doc_types))
    behind = 0
    if given is not None:
        cursor = _decode(given)
        if cursor.e is not None and cursor.e != epoch:
            warnings = (_EPOCH_CHANGED, *warnings)
            given = None
        else:
            behind = _position(context, cursor)
    found = _page(context, args, behind, limit + 1)
    shown = found[:limit]
    more = len(found) > limit
    resume = given if given is not None else _tail(context, epoch)
    if shown:
        seq, doc_id, _, updated_at, _ = shown[-1]
        resume = _encode(_Cursor(updated_at, doc_id, seq, epoch))
    data = {
        "changes": [
            {"docId": doc_id, "docType": doc_type, "updatedAt": updated_at, "operation": operation}
            for _, doc_id, doc_type, updated_at, operation in shown
        ],
        "nextCursor": resume if more else None,
        "hasMore": more,
        "resumeCursor": resume,
    }
    return Outcome(data, warnings, rows=len(shown))


def _type_advice(context: ReadContext, doc_types: Sequence[str]) -> Iterator[Advice]:
    """UNKNOWN_TYPE for the first few names that are no types."""
    known = context.model.registry.types
    unknown = [name for name in dict.fromkeys(doc_types) if name not in known]
    for name in unknown[:_FEW_TYPES]:
        for advice in type_advice(context.model, name):
            yield Advice("docTypes", advice.message, advice.code)
    if len(unknown) > _FEW_TYPES:
        text = f"{len(unknown) - _FEW_TYPES} more names in docTypes are no registered types"
        yield Advice("docTypes", text, "UNKNOWN_TYPE")


def _page(context: ReadContext, args: ChangesSinceArgs, behind: int, limit: int) -> list[Any]:
    """Rows of number, id, type, time and operation."""
    types = list(dict.fromkeys(args.doc_types))
    parts: list[str] = []
    params: list[Any] = []
    if 0 < len(types) <= _FEW_TYPES:
        parts += [_LIVE_OF_TYPE] * len(types)
        params += [value for name in types for value in (behind, name, limit)]
        whole = []
    else:
        whole = [_LIVE]
    if args.include_deletes:
        whole += [_TOMBSTONES, _REMOVED]
    narrow = _OF_TYPES if types else ""
    parts += [part.format(types=narrow) for part in whole]
    params += [behind, *([msgspec.json.encode(types).decode()] if types else [])] * len(whole)
    rows = context.reader.connection.execute(
        f"{' UNION ALL '.join(parts)} ORDER BY 1 LIMIT ?", (*params, limit)
    )
    return rows.fetchall()


def _position(context: ReadContext, cursor: _Cursor) -> int:
    """The number behind which the page begins."""
    if cursor.s is not None:
        return cursor.s
    pair = (cursor.u, cursor.d)
    first = context.reader.connection.execute(_FIRST_BEHIND, pair * 2).get
    return _MAX_SEQ if first is None else first - 1


def _tail(context: ReadContext, epoch: str) -> str | None:
    """The cursor behind everything there is, None for an index without any change."""
    last = context.reader.connection.execute(_LAST).fetchone()
    if last is None:
        return None
    seq, doc_id, updated_at = last
    return _encode(_Cursor(updated_at, doc_id, seq, epoch))


def _encode(cursor: _Cursor) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")


def _decode(text: str) -> _Cursor:
    try:
        padded = text + "=" * (-len(text) % 4)
        return _decoder.decode(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise MaadError(
            "INVALID_FIELDS",
            "the cursor is not one that maad_changes_since returned; start again without it",
            {"field": "cursor"},
        ) from error


_EPOCH_CHANGED = Advice(
    "cursor",
    "the index was rebuilt since the cursor was made; the feed starts from the beginning",
    "CURSOR_EPOCH_CHANGED",
)
