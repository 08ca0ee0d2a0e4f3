"""Planning `maad_create` (spec 01 §13.1, 03 §4.1)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from maadd.protocol.arguments import CreateArgs
from maadd.protocol.errors import MaadError, MaadErrors
from maadd_worker.history.outcome import CommitIdentity, CommitRequest
from maadd_worker.index.store import DocumentRow
from maadd_worker.markdown.serializer import order_keys, rewrite_record, serialize_record
from maadd_worker.markdown.template import render_template
from maadd_worker.markdown.text import js_text
from maadd_worker.outcome import Advice
from maadd_worker.schema.ids import check_doc_id, next_sequence, sequence_prefix, slug_id
from maadd_worker.schema.registry import TypeEntry
from maadd_worker.schema.schema import Schema
from maadd_worker.schema.validation import validate
from maadd_worker.write.context import (
    FileChange,
    Plan,
    WriteContext,
    preflight,
    report_advice,
    report_errors,
    report_view,
)
from maadd_worker.write.fields import missing_refs, original_bytes, parse_fields


class Draft(msgspec.Struct, frozen=True):
    """A new record that has its id and nothing else checked; `original` is the file whose
    text it keeps."""

    entry: TypeEntry
    schema: Schema
    fields: dict[str, Any]
    body: str | None
    doc_id: str
    generated: bool
    original: str | None = None


def plan_create(
    context: WriteContext,
    args: CreateArgs,
    identity: CommitIdentity | None,
    claimed: set[str],
) -> Plan:
    """Check a create and make its plan; nothing is written.

    `claimed` are the ids that earlier writes of the same group are about to take.
    """
    return plan_draft(context, draft_create(context, args, claimed), identity, claimed)


def draft_create(context: WriteContext, args: CreateArgs, claimed: set[str]) -> Draft:
    """The part of a create that ends with an id.

    Raises INVALID_FIELDS, FRONTMATTER_GUARD, UNKNOWN_TYPE, SCHEMA_NOT_FOUND.
    """
    fields = parse_fields(args.fields)
    entry = context.model.entry(args.doc_type)
    schema = context.model.schema(args.doc_type)
    doc_id, generated = _choose_id(context, entry, args, fields, claimed)
    return Draft(entry, schema, fields, args.body, doc_id, generated)


def plan_draft(
    context: WriteContext, draft: Draft, identity: CommitIdentity | None, claimed: set[str]
) -> Plan:
    """The rest of `plan_create`.

    Raises INVALID_DOC_ID, DUPLICATE_DOC_ID, VALIDATION_FAILED, PATH_OUTSIDE_PROJECT and the
    parser's errors.
    """
    entry, schema, fields, doc_id = draft.entry, draft.schema, draft.fields, draft.doc_id
    check_doc_id(doc_id)
    path = context.model.record_path(entry, doc_id)
    _refuse_indexed(context, entry, doc_id, draft.generated)

    frontmatter: dict[str, Any] = {
        "doc_id": doc_id,
        "doc_type": entry.name,
        "schema": schema.ref,
        **fields,
    }
    report = validate(schema, context.model, frontmatter, "write")
    if not report.valid:
        raise MaadErrors(report_errors(report))
    _refuse_lost_folder(context, entry)
    _refuse_on_disk(context, entry, doc_id, draft.generated)
    data, parsed = preflight(context, doc_id, path, lambda: _bytes(draft, path, frontmatter))

    warnings = report_advice(report) + missing_refs(
        context.writer, schema, frontmatter, None, claimed
    )
    if not doc_id.startswith(f"{entry.id_prefix}-"):
        warnings += (
            Advice(
                "docId",
                f'"{doc_id}" lacks the prefix "{entry.id_prefix}-" of its type; refs to it fail '
                "validation",
                "ID_PREFIX_MISMATCH",
            ),
        )
    title = fields.get("name")
    title = fields.get("title") if title is None else title

    def answer(row: DocumentRow | None) -> dict[str, Any]:
        return {
            "docId": doc_id,
            "filePath": path,
            "version": row.version if row is not None else 1,
            "validation": report_view(report),
            "contentHash": parsed.file_hash,
        }

    return Plan(
        action="create",
        doc_id=doc_id,
        doc_type=entry.name,
        change=FileChange("create", path, data=data, new_hash=parsed.file_hash, parsed=parsed),
        commit=CommitRequest(
            action="create",
            doc_id=doc_id,
            doc_type=entry.name,
            detail="",
            summary=doc_id if title is None else js_text(title),
            paths=(path,),
            identity=identity,
            contents={path: data},
        ),
        answer=answer,
        report=report,
        warnings=warnings,
        changed_fields=tuple(fields),
    )


def _bytes(draft: Draft, path: str, frontmatter: dict[str, Any]) -> bytes:
    schema = draft.schema
    order = order_keys(frontmatter, schema.required, list(schema.fields))
    if draft.original is not None:
        return rewrite_record(original_bytes(draft.original), path, frontmatter, order, body=None)
    body = draft.body
    if body is None and schema.template:
        body = render_template(schema.template, frontmatter)
    return serialize_record(frontmatter, order, body, file=path)


def _choose_id(
    context: WriteContext,
    entry: TypeEntry,
    args: CreateArgs,
    fields: dict[str, Any],
    claimed: set[str],
) -> tuple[str, bool]:
    """The record's id, and whether it was generated (spec 01 §10.2)."""
    if args.doc_id is not None:
        return args.doc_id, False
    slugged = slug_id(entry, fields)
    if slugged is not None:
        return slugged, True
    prefix = sequence_prefix(entry, context.year)
    taken = [_highest(context, prefix), *claimed]
    doc_id = next_sequence(prefix, taken)
    # Files that the index does not know yet hold numbers too.
    while _on_disk(context, entry, doc_id) is not None:
        taken.append(doc_id)
        doc_id = next_sequence(prefix, taken)
    return doc_id, True


def _highest(context: WriteContext, prefix: str) -> str:
    """The highest id of a sequence in the index, number 0 when it has not begun."""
    known = context.highest.get(prefix)
    if known is None:
        following = next_sequence(prefix, context.writer.ids_with_prefix(prefix))
        known = f"{prefix}{int(following.removeprefix(prefix)) - 1}"
        context.highest[prefix] = known
    return known


def _refuse_indexed(context: WriteContext, entry: TypeEntry, doc_id: str, generated: bool) -> None:
    row = context.writer.find(doc_id, include_deleted=True)
    if row is not None:
        raise _duplicate(context, entry, doc_id, generated, tombstone=row.deleted)


def _refuse_on_disk(context: WriteContext, entry: TypeEntry, doc_id: str, generated: bool) -> None:
    path = _on_disk(context, entry, doc_id)
    if path is not None:
        raise _duplicate(context, entry, doc_id, generated, tombstone=False, path=path)
    if _tombstone_on_disk(context, entry, doc_id):
        raise _duplicate(context, entry, doc_id, generated, tombstone=True)


def _refuse_lost_folder(context: WriteContext, entry: TypeEntry) -> None:
    """WRITE_ERROR while the folder of a type is missing although the index holds its records: a
    new folder would make the files of the old one look deleted."""
    if context.root.exists(entry.path):
        return
    rows = context.writer.documents_of(entry.name)
    if rows:
        raise MaadError(
            "WRITE_ERROR",
            f"the folder {entry.path} is missing, while the index holds {rows} records of type "
            f'"{entry.name}"; put it back, or run maad_reindex with prune if they are meant to go',
            {"file": entry.path, "errno": "ENOENT"},
        )


def refuse_taken(context: WriteContext, entry: TypeEntry, doc_id: str) -> None:
    """DUPLICATE_DOC_ID when a record, a tombstone or a file has the id that the caller chose."""
    _refuse_indexed(context, entry, doc_id, generated=False)
    _refuse_on_disk(context, entry, doc_id, generated=False)


def _on_disk(context: WriteContext, entry: TypeEntry, doc_id: str) -> str | None:
    """The file at a place of the id, whatever it holds."""
    places = context.model.record_paths(entry, doc_id)
    return next((path for path in places if context.root.exists(path)), None)


def _tombstone_on_disk(context: WriteContext, entry: TypeEntry, doc_id: str) -> bool:
    for path in context.model.record_paths(entry, doc_id):
        directory, _, name = path.rpartition("/")
        if context.root.exists(f"{directory}/_deleted_{name}"):
            return True
    return False


def refuse_claimed(context: WriteContext, draft: Draft, claimed: set[str]) -> None:
    """DUPLICATE_DOC_ID when an earlier record of the same call takes the id."""
    if draft.doc_id in claimed:
        raise _duplicate(
            context, draft.entry, draft.doc_id, draft.generated, tombstone=False, claimed=claimed
        )


def _duplicate(
    context: WriteContext,
    entry: TypeEntry,
    doc_id: str,
    generated: bool,
    *,
    tombstone: bool,
    claimed: Collection[str] = (),
    path: str | None = None,
) -> MaadError:
    """`path` is a file in the way that is not in the index as the record with the id."""
    on_disk = not claimed and (
        _on_disk(context, entry, doc_id) is not None or _tombstone_on_disk(context, entry, doc_id)
    )
    details: dict[str, Any] = {"docId": doc_id, "tombstone": tombstone, "onDisk": on_disk}
    number = 2
    while _is_taken(context, entry, f"{doc_id}-{number}", claimed):
        number += 1
    if generated:
        details["suggestedDocId"] = f"{doc_id}-{number}"
    what = "a soft-deleted record holds" if tombstone else "a record already has"
    if path is not None:
        what = f"the file {path}, which is not indexed as such a record, stands in the place of"
    return MaadError(
        "DUPLICATE_DOC_ID",
        f'{what} the id "{doc_id}"; pass another docId'
        + (f', for example "{doc_id}-{number}"' if generated else ""),
        details,
    )


def _is_taken(
    context: WriteContext, entry: TypeEntry, doc_id: str, claimed: Collection[str]
) -> bool:
    return (
        doc_id in claimed
        or context.writer.find(doc_id, include_deleted=True) is not None
        or _on_disk(context, entry, doc_id) is not None
    )
