"""`maad_semantic_search`: records by what their bodies say (spec 02 §5)."""

from __future__ import annotations

from maadd.protocol.arguments import SemanticSearchArgs
from maadd.protocol.errors import MaadError
from maadd_worker.index.scope import build_scope
from maadd_worker.outcome import Advice, Outcome
from maadd_worker.read.context import ReadContext
from maadd_worker.read.limits import clamp, scope_advice, type_advice
from maadd_worker.semantic.search import Request, search

_K_CAP = 500

_BEHIND = Advice(
    "",
    "the texts of some records are still being read in; what is missing here may be there",
    "INDEX_BEHIND",
)


def semantic_search(context: ReadContext, args: SemanticSearchArgs) -> Outcome:
    """Ranked records; SEMANTIC_DISABLED, INVALID_MODE, and the errors of filters."""
    reads = context.semantic
    if reads is None:
        raise MaadError(
            "SEMANTIC_DISABLED",
            "this project has no semantic index; an operator turns it on with "
            "MAAD_SEMANTIC_ENABLE=1. maad_search finds extracted objects, maad_query records by "
            "their fields",
        )
    model = context.model
    asked = bool(args.query.strip())
    scope = build_scope(args.doc_type, args.filters if asked else None, model)
    limit = clamp(args.k, _K_CAP)
    request = Request(
        query=args.query,
        mode=args.mode,
        k=limit.applied,
        snippet=args.snippet,
        scope=scope,
        scoped=args.doc_type is not None or args.filters is not None,
        fingerprint=context.plans.fingerprint(args.doc_type),
    )
    answer = search(context.reader, reads, request, context.check_time)
    meta = {"mode": args.mode, **(limit.report(answer.data) or {})}
    if answer.degraded is not None:
        meta["degraded"] = answer.degraded
    advice = [*type_advice(model, args.doc_type), *scope_advice(scope)]
    if reads.is_behind():
        advice.append(_BEHIND)
    return Outcome(answer.data, tuple(advice), meta, rows=answer.data["total"])
