"""Planning `maad_update` (spec 01 §13.2, 03 §4.2)."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from maadd.protocol.arguments import UpdateArgs
from maadd.protocol.errors import MaadError, MaadErrors
from maadd_worker.history.outcome import CommitIdentity, CommitRequest
from maadd_worker.index.store import DocumentRow
from maadd_worker.markdown.body import update_body
from maadd_worker.markdown.document import ParsedDocument
from maadd_worker.markdown.serializer import order_keys, rewrite_record
from maadd_worker.markdown.text import js_text
from maadd_worker.outcome import Advice
from maadd_worker.schema.schema import Schema
from maadd_worker.schema.validation import ValidationReport, validate
from maadd_worker.write.context import (
    FileChange,
    Plan,
    WriteContext,
    preflight,
    report_advice,
    report_errors,
    report_view,
)
from maadd_worker.write.fields import (
    IDENTITY_KEYS,
    changed_keys,
    check_caller_keys,
    fields_object,
    missing_refs,
    original_bytes,
)
from maadd_worker.write.stored import (
    StoredRecord,
    check_expectations,
    current_row,
    load_stored,
    schema_drift,
)


def plan_update(
    context: WriteContext,
    args: UpdateArgs,
    identity: CommitIdentity | None,
    claimed: set[str],
    original: str | None = None,
) -> Plan:
    """Check an update and make its plan; nothing is written.

    `original` is the text of a file that the record is to become, with the fields of the call
    and no others.

    Raises, in this order: INVALID_FIELDS, FILE_NOT_FOUND, VERSION_CONFLICT, SCHEMA_NOT_FOUND,
    PATH_OUTSIDE_PROJECT, FILE_READ_ERROR, PARSE_ERROR, FRONTMATTER_GUARD, VALIDATION_FAILED.
    """
    if args.body is not None and args.append_body is not None:
        raise MaadError(
            "INVALID_FIELDS",
            "body replaces the text and appendBody adds to it; send one of them",
            {"field": "appendBody"},
        )
    given = fields_object(args.fields) if args.fields is not UNSET else {}
    if original is not None:
        _refuse_parts(args)
    row, content = current_row(context, args.doc_id)
    check_expectations(row, args.expected_version, args.expected_hash)
    schema = context.model.schema(row.doc_type)
    stored = load_stored(context, row, content)
    fields = check_caller_keys(given)
    unset = tuple(args.unset_fields or ())
    if original is None:
        merged = _merge(stored, schema, fields, unset)
    else:
        merged = {key: stored.frontmatter.get(key) for key in IDENTITY_KEYS} | fields
        merged["schema"] = schema.ref
    changed = changed_keys(stored.frontmatter, merged)
    _guard_required(schema, stored.frontmatter, merged)
    report = validate(schema, context.model, merged, "write", changed)
    if not report.valid:
        raise MaadErrors(report_errors(report))
    warnings = report_advice(report) + schema_drift(stored, schema)
    warnings += missing_refs(context.writer, schema, merged, set(changed), claimed)

    touches_body = args.body is not None or args.append_body is not None
    data: bytes = stored.data
    parsed: ParsedDocument | None = None
    if changed or touches_body or original is not None:
        order = order_keys(merged, schema.required, list(schema.fields))
        before = stored.data if original is None else original_bytes(original)
        body = update_body(stored.split, args.body, args.append_body) if touches_body else None
        data, parsed = preflight(
            context,
            row.doc_id,
            row.file_path,
            lambda: rewrite_record(before, row.file_path, merged, order, body=body),
        )
    return _plan(
        row, stored, args, merged, tuple(changed), data, parsed, report, warnings, identity
    )


def _merge(
    stored: StoredRecord, schema: Schema, fields: dict[str, Any], unset: tuple[str, ...]
) -> dict[str, Any]:
    guarded = [name for name in unset if name in IDENTITY_KEYS or name in schema.required]
    if guarded:
        raise MaadError(
            "FRONTMATTER_GUARD",
            f"{', '.join(guarded)}: required or engine-owned, cannot be removed",
        )
    both = [name for name in unset if name in fields]
    if both:
        raise MaadError(
            "INVALID_FIELDS",
            f"{', '.join(both)}: in fields and in unsetFields; choose one",
            {"field": "unsetFields"},
        )
    merged = {**stored.frontmatter, **fields}
    for name in unset:
        merged.pop(name, None)
    return merged


def _refuse_parts(args: UpdateArgs) -> None:
    """A whole text leaves no room for changes of parts."""
    given = {"body": args.body, "appendBody": args.append_body, "unsetFields": args.unset_fields}
    for name, value in given.items():
        if value:
            raise MaadError(
                "INVALID_FIELDS",
                f"original replaces the whole record; send it without {name}",
                {"field": name},
            )


def _guard_required(schema: Schema, before: dict[str, Any], after: dict[str, Any]) -> None:
    for name in schema.required:
        had = before.get(name) not in (None, "")
        if had and (name not in after or after[name] == ""):
            raise MaadError(
                "FRONTMATTER_GUARD", f"{name} is required and has a value; it cannot be emptied"
            )


def _plan(
    row: DocumentRow,
    stored: StoredRecord,
    args: UpdateArgs,
    merged: dict[str, Any],
    changed: tuple[str, ...],
    data: bytes,
    parsed: ParsedDocument | None,
    report: ValidationReport,
    warnings: tuple[Advice, ...],
    identity: CommitIdentity | None,
) -> Plan:
    digest = stored.file_hash if parsed is None else parsed.file_hash
    change = None
    if data != stored.data:
        change = FileChange(
            "replace",
            row.file_path,
            data=data,
            old_data=stored.data,
            old_hash=stored.file_hash,
            new_hash=digest,
            parsed=parsed,
        )
    if changed:
        detail = "fields:" + ",".join(changed)
        summary = ", ".join(f"{name}: {js_text(merged.get(name))}" for name in changed)
    else:
        detail = "body:append" if args.append_body is not None else "body:replace"
        summary = "Body updated"

    def answer(new_row: DocumentRow | None) -> dict[str, Any]:
        return {
            "docId": row.doc_id,
            "docType": row.doc_type,
            "version": new_row.version if new_row is not None else row.version,
            "changedFields": list(changed),
            "validation": report_view(report),
            "contentHash": digest,
        }

    return Plan(
        action="update",
        doc_id=row.doc_id,
        doc_type=row.doc_type,
        change=change,
        commit=CommitRequest(
            action="update",
            doc_id=row.doc_id,
            doc_type=row.doc_type,
            detail=detail,
            summary=summary,
            paths=(row.file_path,),
            identity=identity,
            contents={row.file_path: data},
        ),
        answer=answer,
        report=report,
        warnings=warnings,
        changed_fields=changed,
        previous_version=row.version,
    )
