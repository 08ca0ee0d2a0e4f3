"""`maad_relationship_paths`: a bounded walk along edges, with evidence (spec 02 §4.5).

The order of every step is part of the contract: a breadth-first queue of simple paths, edges
of a record in the order of their keys, limits that count accepted extensions.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from maadd.protocol.arguments import RelationshipPathsArgs
from maadd.protocol.errors import MaadError
from maadd_worker.index.store import DocumentRow
from maadd_worker.outcome import Outcome
from maadd_worker.read.context import ReadContext
from maadd_worker.read.edge_graph import Edge, EdgeGraph, edge_filter, live_types

_LIMITS = {"maxDepth": 4, "maxNodes": 100, "maxEdges": 200, "maxPaths": 50}
_REACH_BOUND = 5000
"""Records looked at to find out whether a target can be reached at all."""


class _Path(msgspec.Struct, frozen=True):
    nodes: tuple[str, ...]
    edge_ids: tuple[str, ...]


def relationship_paths(context: ReadContext, args: RelationshipPathsArgs) -> Outcome:
    """Paths from a live record; FILE_NOT_FOUND, INVALID_FIELDS for limits out of range."""
    start = context.live_row(args.start_doc_id)
    limits = _checked_limits(args)
    labels = None if args.field_labels is None else sorted(set(args.field_labels))
    kinds = sorted(set(args.extraction_kinds))
    graph = EdgeGraph(context.reader, args.direction, edge_filter(labels, kinds))
    walk = _Walk(context, graph, limits, start, args.target_doc_id)
    walk.run()
    limits_reached = [name for name in _LIMITS if name in walk.limits_reached]
    data: dict[str, Any] = {
        "contractVersion": 1,
        "start": {"docId": start.doc_id, "docType": start.doc_type, "state": "present"},
        "target": None,
        "direction": args.direction,
        "filters": {"fieldLabels": labels, "extractionKinds": kinds},
        "limits": limits,
        "nodes": sorted(walk.nodes.values(), key=lambda node: (node["distance"], node["docId"])),
        "edges": walk.edges,
        "paths": walk.paths,
        "truncation": {"truncated": bool(limits_reached), "limitsReached": limits_reached},
    }
    if args.target_doc_id is not None:
        reached = bool(walk.paths)
        doc_type = live_types(context.reader, [args.target_doc_id]).get(args.target_doc_id)
        data["target"] = {
            "docId": args.target_doc_id,
            "docType": doc_type,
            "state": "missing" if doc_type is None else "present",
            "reached": reached,
        }
        reachable = _reachable(graph, walk, limits["maxDepth"], args.target_doc_id)
        if reachable is not None:
            data["targetReachable"] = reachable
    return Outcome(data, rows=len(walk.paths))


def _checked_limits(args: RelationshipPathsArgs) -> dict[str, int]:
    given = {
        "maxDepth": args.max_depth,
        "maxNodes": args.max_nodes,
        "maxEdges": args.max_edges,
        "maxPaths": args.max_paths,
    }
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LIMITS[name]:
            raise MaadError(
                "INVALID_FIELDS",
                f"{name} must be an integer from 1 to {_LIMITS[name]}",
                {"field": name, "provided": value, "minimum": 1, "maximum": _LIMITS[name]},
            )
    return given


class _Walk:
    """The walk and what it has found so far."""

    def __init__(
        self,
        context: ReadContext,
        graph: EdgeGraph,
        limits: dict[str, int],
        start: DocumentRow,
        target: str | None,
    ) -> None:
        self._context = context
        self._graph = graph
        self._limits = limits
        self._target = target
        self._candidates = 0
        self._edge_ids: dict[str, str] = {}
        self.start = start.doc_id
        self.nodes: dict[str, dict[str, Any]] = {
            start.doc_id: _node(start.doc_id, start.doc_type, 0)
        }
        self.edges: list[dict[str, Any]] = []
        self.paths: list[dict[str, Any]] = []
        self.limits_reached: set[str] = set()

    def run(self) -> None:
        queue = deque[_Path]()
        if self._target == self.start:
            self._record(_Path((self.start,), ()))
        else:
            queue.append(_Path((self.start,), ()))
        types: dict[str, str] = {}
        depth = -1
        while queue:
            path = queue.popleft()
            if len(path.edge_ids) > depth:
                # All paths of this length are in the queue now: one statement reads for all.
                depth = len(path.edge_ids)
                ends = {path.nodes[-1], *(waiting.nodes[-1] for waiting in queue)}
                self._graph.load(sorted(ends))
                around = {
                    edge.other(doc_id) for doc_id in ends for edge in self._graph.edges(doc_id)
                }
                types |= live_types(self._context.reader, around - types.keys())
                self._context.check_time()
            self._extend(path, types, queue)

    def _extend(self, path: _Path, types: dict[str, str], queue: deque[_Path]) -> None:
        end, depth = path.nodes[-1], len(path.edge_ids)
        edges = self._graph.edges(end)
        if depth == self._limits["maxDepth"]:
            if any(edge.other(end) not in path.nodes for edge in edges):
                self.limits_reached.add("maxDepth")
            return
        for edge in edges:
            neighbour = edge.other(end)
            if neighbour in path.nodes:
                continue
            limit = self._limit_against(edge, neighbour)
            if limit is not None:
                self.limits_reached.add(limit)
                continue
            doc_type = types.get(neighbour)
            edge_id = self._register(edge, present=edge.target == end or doc_type is not None)
            self.nodes.setdefault(neighbour, _node(neighbour, doc_type, depth + 1))
            self._candidates += 1
            extended = _Path((*path.nodes, neighbour), (*path.edge_ids, edge_id))
            if self._target is None or neighbour == self._target:
                self._record(extended)
            if doc_type is not None and neighbour != self._target:
                queue.append(extended)

    def _limit_against(self, edge: Edge, neighbour: str) -> str | None:
        """The first limit that forbids the extension."""
        if self._candidates >= self._limits["maxPaths"]:
            return "maxPaths"
        if neighbour not in self.nodes and len(self.nodes) >= self._limits["maxNodes"]:
            return "maxNodes"
        if edge.key not in self._edge_ids and len(self.edges) >= self._limits["maxEdges"]:
            return "maxEdges"
        return None

    def _register(self, edge: Edge, *, present: bool) -> str:
        edge_id = self._edge_ids.get(edge.key)
        if edge_id is None:
            edge_id = self._edge_ids[edge.key] = f"edge-{len(self.edges) + 1:04d}"
            self.edges.append(_edge_view(edge, edge_id, present=present))
        return edge_id

    def _record(self, path: _Path) -> None:
        self.paths.append(
            {
                "pathId": f"path-{len(self.paths) + 1:04d}",
                "targetDocId": path.nodes[-1],
                "nodeIds": path.nodes,
                "edgeIds": path.edge_ids,
            }
        )


def _reachable(graph: EdgeGraph, walk: _Walk, max_depth: int, target: str) -> bool | None:
    """Whether the target lies within the depth at all, which a walk that ran into other limits
    cannot tell; None when that would take too long to find out."""
    if walk.paths:
        return True
    if not walk.limits_reached - {"maxDepth"}:
        return False
    back = graph.turned()
    seen = level = {target}
    for _ in range(max_depth):
        back.load(sorted(level))
        level = {edge.other(doc_id) for doc_id in level for edge in back.edges(doc_id)} - seen
        if walk.start in level:
            return True
        seen = seen | level
        if len(seen) > _REACH_BOUND:
            return None
    return False


def _node(doc_id: str, doc_type: str | None, distance: int) -> dict[str, Any]:
    state = "missing" if doc_type is None else "present"
    return {"docId": doc_id, "docType": doc_type, "distance": distance, "state": state}


def _edge_view(edge: Edge, edge_id: str, *, present: bool) -> dict[str, Any]:
    origin = None if edge.origin is None else {"kind": edge.origin, "name": edge.field}
    return {
        "edgeId": edge_id,
        "sourceDocId": edge.source,
        "targetDocId": edge.target,
        "fieldLabel": edge.field,
        "extractionKind": edge.kind,
        "evidence": {
            "sourceLine": edge.line,
            "sourceBlockId": edge.block_id,
            "origin": origin,
        },
        "targetState": "present" if present else "missing",
    }
