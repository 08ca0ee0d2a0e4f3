"""One-hop edges of a record, in one copy for every tool that shows them (spec 02 §4.4)."""

from __future__ import annotations

from typing import Any

import msgspec

from maadd_worker.index.store import IndexReader

EDGE_LIMIT = 500
"""Edges shown per side."""

_ORDER = "r.field, r.relation_type, r.source_line, r.source_block_id, r.id"
_OUTGOING = f"""
SELECT r.target_doc_id, coalesce(d.doc_type, 'unknown'), r.field, r.relation_type
FROM relationships r LEFT JOIN documents d ON d.doc_id = r.target_doc_id
WHERE r.source_doc_id = ? AND coalesce(d.deleted, 0) = 0
ORDER BY r.target_doc_id, {_ORDER} LIMIT ?
"""
# Edges exist for live sources only.
_INCOMING = f"""
SELECT r.source_doc_id, r.source_type, r.field, r.relation_type
FROM relationships r WHERE r.target_doc_id = ?
ORDER BY r.source_doc_id, {_ORDER} LIMIT ?
"""


class Neighbours(msgspec.Struct, frozen=True):
    """Both sides of a record; `truncated` when a side has more than the limit."""

    outgoing: list[dict[str, str]]
    incoming: list[dict[str, str]]
    truncated: bool

    def view(self) -> dict[str, Any]:
        """The members as they are answered."""
        sides: dict[str, Any] = {"outgoing": self.outgoing, "incoming": self.incoming}
        if self.truncated:
            sides["truncated"] = True
        return sides


def neighbours(reader: IndexReader, doc_id: str, direction: str = "both") -> Neighbours:
    """The edges of a live record; the side that is not asked for is empty.

    Targets that never existed have the type `unknown`; tombstones are left out.
    """
    outgoing = _side(reader, _OUTGOING, doc_id) if direction != "incoming" else []
    incoming = _side(reader, _INCOMING, doc_id) if direction != "outgoing" else []
    return Neighbours(
        outgoing[:EDGE_LIMIT],
        incoming[:EDGE_LIMIT],
        max(len(outgoing), len(incoming)) > EDGE_LIMIT,
    )


def _side(reader: IndexReader, sql: str, doc_id: str) -> list[dict[str, str]]:
    return [
        {"docId": other, "docType": doc_type, "field": field, "relationType": relation}
        for other, doc_type, field, relation in reader.connection.execute(
            sql, (doc_id, EDGE_LIMIT + 1)
        )
    ]
