"""`maad_join`: records of a type with fields of the records they refer to (spec 02 §4.7)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from maadd.protocol.arguments import JoinArgs
from maadd_worker.index.pages import query_page
from maadd_worker.index.projection import FieldText, project_fields
from maadd_worker.index.scope import build_scope
from maadd_worker.index.sorting import resolve_sort
from maadd_worker.outcome import Outcome
from maadd_worker.read.context import ReadContext
from maadd_worker.read.limits import clamp, index_advice, scope_advice, type_advice

_LIMIT_CAP = 500

_LIVE_TYPES = """
SELECT d.doc_type, d.doc_id FROM json_each(?) i
CROSS JOIN documents d ON d.doc_id = i.value AND d.deleted = 0
"""

Fields = Mapping[str, FieldText]


def join(context: ReadContext, args: JoinArgs) -> Outcome:
    """A page of records, each with its own fields and those of its refs; FILTER_* errors.

    Values are index text, of list fields a list; a list of refs gives a list of targets.
    """
    model = context.model
    scope = build_scope(args.doc_type, args.filters, model)
    sort = resolve_sort(args.doc_type, args.sort_by, args.sort_order, model)
    limit = clamp(args.limit, _LIMIT_CAP)
    page = query_page(
        context.reader, scope, sort, context.plans, limit=limit.applied, offset=args.offset
    )
    refs = list(dict.fromkeys(args.refs))
    sources = project_fields(
        context.reader,
        [row.doc_id for row in page.rows],
        [*args.fields, *refs],
        model,
        args.doc_type,
    )
    targets = _targets(context, refs, args.ref_fields or {}, sources.values())
    rows = [
        {
            "docId": doc_id,
            "fields": {name: fields[name] for name in args.fields if name in fields},
            "refs": {ref: _follow(fields.get(ref), targets[ref]) for ref in refs},
        }
        for doc_id, fields in sources.items()
    ]
    warnings = [
        *type_advice(model, args.doc_type),
        *scope_advice(scope),
        *index_advice(model, args.doc_type, [*args.fields, *refs], ", so it has no values here"),
    ]
    data: dict[str, Any] = {"total": page.total, "results": rows}
    return Outcome(data, tuple(warnings), limit.report(data), len(rows))


def _targets(
    context: ReadContext,
    refs: list[str],
    asked: Mapping[str, Collection[str]],
    sources: Collection[Fields],
) -> dict[str, dict[str, Fields]]:
    """For each ref field the live targets with the fields asked of them."""
    ids_by_ref = {ref: dict.fromkeys(_ids(fields.get(ref)) for fields in sources) for ref in refs}
    wanted = {doc_id for groups in ids_by_ref.values() for group in groups for doc_id in group}
    by_type: dict[str, list[str]] = {}
    for doc_type, doc_id in context.reader.connection.execute(_LIVE_TYPES, (_json(wanted),)):
        by_type.setdefault(doc_type, []).append(doc_id)
    names = list(dict.fromkeys(name for ref in refs for name in asked.get(ref, ())))
    found: dict[str, Fields] = {}
    for doc_type, doc_ids in by_type.items():
        found |= project_fields(context.reader, doc_ids, names, context.model, doc_type)
    return {
        ref: {
            doc_id: {
                name: found[doc_id][name] for name in asked.get(ref, ()) if name in found[doc_id]
            }
            for group in groups
            for doc_id in group
            if doc_id in found
        }
        for ref, groups in ids_by_ref.items()
    }


def _follow(value: FieldText | None, targets: Mapping[str, Fields]) -> Any:
    """What stands at the end of a ref; None without a value."""
    if value is None:
        return None
    if isinstance(value, list):
        return [_target_view(doc_id, targets) for doc_id in value]
    return _target_view(value, targets)


def _target_view(doc_id: str, targets: Mapping[str, Fields]) -> dict[str, Any]:
    fields = targets.get(doc_id)
    if fields is None:
        return {"docId": doc_id, "fields": {}, "state": "missing"}
    return {"docId": doc_id, "fields": fields}


def _ids(value: FieldText | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (value,)


def _json(values: Collection[str]) -> str:
    return msgspec.json.encode(sorted(values)).decode()
