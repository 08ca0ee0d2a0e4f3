"""`maad_verify`: a claim, checked before it is stated (spec 02 §4.8)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from maadd.protocol.arguments import FindOrphansArgs, VerifyArgs
from maadd_worker.index.pages import count_matches
from maadd_worker.index.scope import build_scope
from maadd_worker.markdown.text import iso_milliseconds, js_text
from maadd_worker.markdown.values import same_value
from maadd_worker.outcome import Outcome
from maadd_worker.read.context import ReadContext
from maadd_worker.read.integrity import SweepRequest, sweep
from maadd_worker.read.limits import scope_advice, type_advice
from maadd_worker.read.stored_record import load_stored, stale_advice


def verify(context: ReadContext, args: VerifyArgs) -> Outcome:
    """Check one field, one count, or the whole index.

    Raises FILTER_* and, reading a record, PATH_OUTSIDE_PROJECT, FILE_READ_ERROR, PARSE_ERROR,
    FRONTMATTER_GUARD.
    """
    if args.mode == "field":
        return _verify_field(context, args.doc_id or "", args.field or "", args.expected)
    if args.mode == "count":
        return _verify_count(context, args)
    return sweep(
        context,
        SweepRequest(args.doc_type, args.doc_id, args.filters, args.categories, args.verbose),
    )


def find_orphans(context: ReadContext, args: FindOrphansArgs) -> Outcome:
    """`maad_find_orphans`: the records with dangling refs, in detail (spec 02 §4.9)."""
    request = SweepRequest(args.doc_type, args.doc_id, args.filters, ("broken_refs",), verbose=True)
    return sweep(context, request)


def is_grounded(expected: Any, actual: Any) -> bool:
    """Whether a claimed value is the stored one.

    Values of one JSON type are compared as such; scalars of different types by their index
    text, where null is empty.
    """
    if same_value(expected, actual):
        return True
    if isinstance(actual, dt.datetime) and isinstance(expected, str):
        return iso_milliseconds(actual)[:10] == expected
    if _json_type(expected) == _json_type(actual) or _is_nested(expected) or _is_nested(actual):
        return False
    return _scalar_text(expected) == _scalar_text(actual)


def _verify_field(context: ReadContext, doc_id: str, field: str, expected: Any) -> Outcome:
    row = context.reader.find(doc_id)
    if row is None:
        source = {"docId": doc_id, "filePath": ""}
        return Outcome(_claim("field", expected, None, source, grounded=False))
    record = load_stored(context, row)
    actual = record.frontmatter.get(field)
    source = {"docId": doc_id, "filePath": row.file_path}
    data = _claim("field", expected, actual, source, grounded=is_grounded(expected, actual))
    return Outcome(data, stale_advice(row, record))


def _verify_count(context: ReadContext, args: VerifyArgs) -> Outcome:
    scope = build_scope(args.doc_type, args.filters, context.model)
    fingerprint = context.plans.fingerprint(args.doc_type)
    actual = count_matches(context.reader, scope, fingerprint)
    expected = args.expected_count
    data = _claim("count", expected, actual, "query", grounded=actual == expected)
    return Outcome(data, (*type_advice(context.model, args.doc_type), *scope_advice(scope)))


def _claim(
    claim: str, expected: Any, actual: Any, source: Any, *, grounded: bool
) -> dict[str, Any]:
    return {
        "grounded": grounded,
        "claim": claim,
        "expected": expected,
        "actual": actual,
        "source": source,
    }


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "null" if value is None else type(value).__name__


def _is_nested(value: Any) -> bool:
    return isinstance(value, list | Mapping)


def _scalar_text(value: Any) -> str:
    return "" if value is None else js_text(value)
