"""The edges of records as a graph: filtered, ordered, read in batches (spec 02 §4.5)."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import msgspec

from maadd_worker.index.store import IndexReader

_COLUMNS = (
    "r.source_doc_id, r.target_doc_id, r.field, r.relation_type, r.source_line, "
    "r.source_block_id, r.origin_kind"
)
_AGAINST = {"outgoing": "incoming", "incoming": "outgoing", "both": "both"}


class Edge(msgspec.Struct, frozen=True):
    """An edge as it is stored; `key` is its identity and its place in the order."""

    source: str
    target: str
    field: str
    kind: str
    line: int | None
    block_id: str | None
    origin: str | None
    key: str

    def other(self, doc_id: str) -> str:
        """The end that is not `doc_id`; a self-reference leads to itself."""
        return self.target if self.source == doc_id else self.source


class EdgeFilter(msgspec.Struct, frozen=True):
    """A condition on rows `r` of `relationships`."""

    sql: str
    params: tuple[str, ...]


def edge_filter(labels: Collection[str] | None, kinds: Collection[str]) -> EdgeFilter:
    """The edges of these kinds, under these labels (None: under any)."""
    sql = " AND r.relation_type IN (SELECT value FROM json_each(?))"
    if labels is None:
        return EdgeFilter(sql, (_json(kinds),))
    sql += " AND r.field IN (SELECT value FROM json_each(?))"
    return EdgeFilter(sql, (_json(kinds), _json(labels)))


class EdgeGraph:
    """The edges of records in one direction, filtered and ordered, loaded in batches."""

    def __init__(self, reader: IndexReader, direction: str, passing: EdgeFilter) -> None:
        self._reader = reader
        self._direction = direction
        self._filter = passing
        self._edges: dict[str, list[Edge]] = {}

    def load(self, doc_ids: Collection[str]) -> None:
        """Read the edges of the records that were not read yet."""
        wanted = [doc_id for doc_id in dict.fromkeys(doc_ids) if doc_id not in self._edges]
        if not wanted:
            return
        found: dict[str, dict[str, Edge]] = {doc_id: {} for doc_id in wanted}
        for side in _sides(self._direction):
            for edge in self._read(side, wanted):
                doc_id = edge.source if side == "source_doc_id" else edge.target
                found[doc_id][edge.key] = edge
        for doc_id, edges in found.items():
            self._edges[doc_id] = sorted(edges.values(), key=_code_units)

    def edges(self, doc_id: str) -> list[Edge]:
        """The edges of a record that was loaded, by key."""
        return self._edges[doc_id]

    def turned(self) -> EdgeGraph:
        """The same graph walked against its direction."""
        return EdgeGraph(self._reader, _AGAINST[self._direction], self._filter)

    def _read(self, side: str, doc_ids: list[str]) -> list[Edge]:
        # CROSS JOIN keeps the few ids in front, whatever the planner believes of json_each.
        rows = self._reader.connection.execute(
            f"SELECT {_COLUMNS} FROM json_each(?) i CROSS JOIN relationships r "
            f"WHERE r.{side} = i.value{self._filter.sql}",
            (_json(doc_ids), *self._filter.params),
        )
        return [_edge(row) for row in rows]


def live_types(reader: IndexReader, doc_ids: Collection[str]) -> dict[str, str]:
    """The types of those ids that are live."""
    rows = reader.connection.execute(
        "SELECT d.doc_id, d.doc_type FROM json_each(?) i "
        "CROSS JOIN documents d ON d.doc_id = i.value AND d.deleted = 0",
        (_json(doc_ids),),
    )
    return dict(rows)


def _edge(row: tuple[Any, ...]) -> Edge:
    """A row of `_COLUMNS`. The key is the compact JSON of the members and the origin's name."""
    source, target, field, kind, line, block_id, origin = row
    members = [*row, None if origin is None else field]
    key = json.dumps(members, ensure_ascii=False, separators=(",", ":"))
    return Edge(source, target, field, kind, line, block_id, origin, key)


def _code_units(edge: Edge) -> bytes:
    return edge.key.encode("utf-16-be", "surrogatepass")


def _sides(direction: str) -> tuple[str, ...]:
    if direction == "both":
        return ("source_doc_id", "target_doc_id")
    return ("source_doc_id",) if direction == "outgoing" else ("target_doc_id",)


def _json(values: Collection[str]) -> str:
    return msgspec.json.encode(sorted(values)).decode()
