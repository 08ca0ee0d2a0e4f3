"""`maad_query`: records of a type by indexed fields (spec 02 §4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from maadd.protocol.arguments import QueryArgs
from maadd.protocol.errors import MaadError, MaadErrors, errors_of
from maadd_worker.index.pages import PageRow, query_page
from maadd_worker.index.projection import FieldText, project_fields
from maadd_worker.index.scope import build_scope
from maadd_worker.index.sorting import resolve_sort
from maadd_worker.markdown.body import current_body
from maadd_worker.outcome import Outcome
from maadd_worker.read.composite import composite
from maadd_worker.read.context import ReadContext
from maadd_worker.read.limits import clamp, index_advice, scope_advice, type_advice
from maadd_worker.read.stored_record import load_stored

_LIMIT_CAP = 500
_HYDRATION_CAP = 100
_ROWS_OF = ("total", "results")
_ENVELOPE_BYTES = 1024
"""Kept free for what surrounds `data` in the answer."""

_encode = msgspec.json.encode


class Row(msgspec.Struct, rename="camel", omit_defaults=True):
    """One record of a page; hydration fills in the last three."""

    doc_id: str
    doc_type: str
    file_path: str | UnsetType = UNSET
    fields: dict[str, FieldText] | UnsetType = UNSET
    body: msgspec.Raw | UnsetType = UNSET
    composite: msgspec.Raw | UnsetType = UNSET
    hydration_error: str | UnsetType = msgspec.field(default=UNSET, name="_hydrationError")


def query(context: ReadContext, args: QueryArgs) -> Outcome:
    """A page of the matching records.

    Raises FILTER_*, UNSUPPORTED_SORT_FIELD, INVALID_FIELDS for a bad cursor.
    """
    model = context.model
    scope = build_scope(args.doc_type, args.filters, model)
    sort = resolve_sort(args.doc_type, args.sort_by, args.sort_order, model)
    limit = clamp(args.limit, _LIMIT_CAP)
    page = query_page(
        context.reader,
        scope,
        sort,
        context.plans,
        limit=limit.applied,
        offset=args.offset,
        cursor=args.cursor or None,
    )
    rows = _rows(context, args, page.rows)
    data: dict[str, Any] = {"total": page.total, "results": rows, "nextCursor": page.next_cursor}
    meta = limit.report(data)
    if args.depth != "hot":
        meta = {**(meta or {}), "depth": _hydrate(context, args, rows, _encode(data))}
    warnings = [
        *type_advice(model, args.doc_type),
        *scope_advice(scope),
        *index_advice(model, args.doc_type, args.fields, ", so it is missing from the rows"),
    ]
    if args.response_mode == "columns":
        data = _compact(data, args, rows)
    return Outcome(data, tuple(warnings), meta, len(rows))


def _compact(data: dict[str, Any], args: QueryArgs, rows: list[Row]) -> dict[str, Any]:
    """The page as a table (spec 02 §9): names once, then the values of every row in that order,
    null where it has none. Asked fields stand between the record's own columns and its content;
    `_hydrationError` is a column when a row has it."""
    own = ["doc_id", "doc_type"] + ["file_path"] * args.include_file_path
    names = list(dict.fromkeys(args.fields))
    content = {"cold": ["body"], "full": ["composite"]}.get(args.depth, [])
    if any(row.hydration_error is not UNSET for row in rows):
        content = [*content, "hydration_error"]
    wire = {field.name: field.encode_name for field in msgspec.structs.fields(Row)}
    table = {
        "columns": [*(wire[name] for name in own), *names, *(wire[name] for name in content)],
        "rows": [
            [
                *(getattr(row, name) for name in own),
                *((row.fields or {}).get(name) for name in names),
                *(_or_null(getattr(row, name)) for name in content),
            ]
            for row in rows
        ],
    }
    return {"total": data["total"], **table, **{k: data[k] for k in data if k not in _ROWS_OF}}


def _or_null(value: Any) -> Any:
    return None if value is UNSET else value


def _rows(context: ReadContext, args: QueryArgs, found: Sequence[PageRow]) -> list[Row]:
    with_path = args.include_file_path
    if not args.fields:
        return [
            Row(row.doc_id, row.doc_type, row.file_path if with_path else UNSET) for row in found
        ]
    doc_ids = [row.doc_id for row in found]
    fields = project_fields(context.reader, doc_ids, args.fields, context.model, args.doc_type)
    return [
        Row(
            row.doc_id,
            row.doc_type,
            row.file_path if with_path else UNSET,
            fields[row.doc_id],
        )
        for row in found
    ]


def _hydrate(context: ReadContext, args: QueryArgs, rows: list[Row], hot: bytes) -> dict[str, Any]:
    """Give the first rows their body or composite; the `depth` member of `_meta`.

    Stops before the row that would take the answer over its budget. A record that cannot be
    read costs its own row only.
    """
    cap = min(args.depth_max_results, _HYDRATION_CAP)
    report: dict[str, Any] = {"depth": args.depth, "hydrated": 0}
    if len(rows) > cap:
        report["capped"] = True
    left = context.settings.response_max_bytes - _ENVELOPE_BYTES - _escaped_size(hot)
    for row in rows[:cap]:
        context.check_time()
        try:
            content = _content(context, row.doc_id, args.depth)
        except (MaadError, MaadErrors) as failure:
            row.hydration_error = errors_of(failure)[0].code
        else:
            left -= _escaped_size(content)
            if left < 0:
                report |= {"capped": True, "stoppedBy": "bytes"}
                break
            if args.depth == "cold":
                row.body = msgspec.Raw(content)
            else:
                row.composite = msgspec.Raw(content)
        report["hydrated"] += 1
    return report


def _content(context: ReadContext, doc_id: str, depth: str) -> bytes:
    """The JSON of a row's body, or of its composite."""
    row = context.live_row(doc_id)
    record = load_stored(context, row)
    if depth == "cold":
        return _encode(current_body(record.split))
    return _encode(composite(context, row, record))


def _escaped_size(content: bytes) -> int:
    """What JSON takes inside the string of a tool result."""
    return len(content) + content.count(b'"') + content.count(b"\\")
