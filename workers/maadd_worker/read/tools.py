"""The reading tools by name, in one form: `tool(context, args) -> Outcome`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from maadd_worker.index.counters import read_generation, read_type_state
from maadd_worker.index.reader import IndexReader
from maadd_worker.outcome import Advice, Outcome
from maadd_worker.read.aggregate import aggregate
from maadd_worker.read.audit import audit
from maadd_worker.read.changes import changes_since
from maadd_worker.read.context import ReadContext
from maadd_worker.read.describe import describe, schema
from maadd_worker.read.get import get
from maadd_worker.read.health import health
from maadd_worker.read.history import history
from maadd_worker.read.instructions import instructions
from maadd_worker.read.join import join
from maadd_worker.read.query import query
from maadd_worker.read.related import related
from maadd_worker.read.relationship_paths import relationship_paths
from maadd_worker.read.scan import scan
from maadd_worker.read.search import search
from maadd_worker.read.semantic_search import semantic_search
from maadd_worker.read.summary import summary
from maadd_worker.read.validate import validate_stored
from maadd_worker.read.verify import find_orphans, verify
from maadd_worker.schema.model import Model

ReadTool = Callable[[ReadContext, Any], Outcome]

READ_TOOLS: Mapping[str, ReadTool] = MappingProxyType(
    {
        "maad_scan": scan,
        "maad_summary": summary,
        "maad_describe": describe,
        "maad_schema": schema,
        "maad_get": get,
        "maad_query": query,
        "maad_search": search,
        "maad_semantic_search": semantic_search,
        "maad_related": related,
        "maad_relationship_paths": relationship_paths,
        "maad_aggregate": aggregate,
        "maad_join": join,
        "maad_verify": verify,
        "maad_find_orphans": find_orphans,
        "maad_changes_since": changes_since,
        "maad_history": history,
        "maad_audit": audit,
        "maad_instructions": instructions,
        "maad_validate": validate_stored,
        "maad_health": health,
    }
)
"""Each takes the arguments of its own tool."""

SHORT_READS = frozenset(
    {
        "maad_summary",
        "maad_schema",
        "maad_get",
        "maad_query",
        "maad_join",
        "maad_related",
        "maad_changes_since",
    }
)
"""Tools that an index or one file bounds; of their calls, `is_short` tells the quick ones."""

RECALLED_READS = frozenset({"maad_aggregate", "maad_search"})
"""Tools that are quick where the index has not changed since the same was asked."""

_BOUND_TO_INDEX = READ_TOOLS.keys() - {
    "maad_scan",
    "maad_history",
    "maad_audit",
    "maad_instructions",
    "maad_health",
}

_ASKS_FIELDS = frozenset(
    {
        "maad_query",
        "maad_search",
        "maad_related",
        "maad_relationship_paths",
        "maad_aggregate",
        "maad_join",
        "maad_verify",
        "maad_find_orphans",
    }
)
"""Tools that answer by what the schema has the index hold."""

_BEHIND = Advice(
    "",
    "the index is still being brought up to date; what is missing here may be there",
    "INDEX_BEHIND",
)


def is_short(tool: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a call is quick enough to run between two messages of the worker.

    Depth `full` may ask Git, and a query with a depth reads up to a hundred files.
    """
    depth = arguments.get("depth", "hot")
    return tool in SHORT_READS and depth != "full" and (tool != "maad_query" or depth == "hot")


def _asked(tool: str, arguments: Mapping[str, Any]) -> tuple[str, str, bytes]:
    return ("asked", tool, msgspec.json.encode(arguments))


def is_quick(reader: IndexReader, model: Model, tool: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a call is short, or its answer known since the same was asked of the same index."""
    if tool not in RECALLED_READS:
        return is_short(tool, arguments)
    known = reader.recall(_asked(tool, arguments), read_generation(reader.connection))
    return known is model


def read(context: ReadContext, tool: str, args: Any, given: Mapping[str, Any]) -> Outcome:
    """Answer one read, and tell when the index it rests on is behind (spec 02 §1.2); `given` are
    the arguments as they came."""
    outcome = READ_TOOLS[tool](context, args)
    if tool in RECALLED_READS:
        context.reader.remember(_asked(tool, given), context.generation(), context.model)
    advice = _behind(context, tool, args)
    if advice is None:
        return outcome
    return msgspec.structs.replace(outcome, warnings=(*outcome.warnings, advice))


def _behind(context: ReadContext, tool: str, args: Any) -> Advice | None:
    if context.index_behind:
        return _BEHIND if tool in _BOUND_TO_INDEX else None
    if tool not in _ASKS_FIELDS:
        return None
    outdated = _outdated(context, getattr(args, "doc_type", None))
    if not outdated:
        return None
    return Advice(
        "",
        f"{outdated} records are indexed as an earlier schema says, and what is asked of their "
        "fields may be missing; maad_reindex brings them up to date",
        "INDEX_BEHIND",
    )


def _outdated(context: ReadContext, doc_type: str | None) -> int:
    """Live records of a type (None: of all) that were indexed under another schema."""
    reader, plans = context.reader, context.plans
    if doc_type is not None:
        if doc_type not in context.model.registry.types:
            return 0
        state = read_type_state(reader.connection, doc_type, plans.fingerprint(doc_type))
        return state.documents - state.current
    generation = context.generation()
    known = reader.recall("outdated", generation)
    if isinstance(known, tuple) and known[0] is plans:
        return int(known[1])
    count = sum(_outdated(context, name) for name in context.model.registry.types)
    reader.remember("outdated", generation, (plans, count))
    return count
