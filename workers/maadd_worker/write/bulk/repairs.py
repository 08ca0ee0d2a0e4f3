"""`maad_repair_where` (spec 03 §5.6): examine each record, then rewrite those that change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from maadd.protocol.arguments import RepairWhereArgs
from maadd.protocol.errors import MaadError, MaadErrors, errors_of
from maadd_worker.history.outcome import CommitIdentity, CommitRequest
from maadd_worker.index.store import DocumentRow
from maadd_worker.markdown.serializer import order_keys, rewrite_record
from maadd_worker.outcome import Advice, Outcome
from maadd_worker.schema.schema import Schema
from maadd_worker.schema.validation import validate
from maadd_worker.write.admission import Admission
from maadd_worker.write.bulk.cleanup import (
    Target,
    expect_preview,
    is_confirmed,
    matching,
    preview,
    record_limit,
    refuse_excess,
)
from maadd_worker.write.bulk.run import BulkWork, Item, ItemEnd, NoPlan, Report, new_mark
from maadd_worker.write.bulk.strategies import STRATEGIES
from maadd_worker.write.context import FileChange, Plan, WriteContext, preflight, report_errors
from maadd_worker.write.fields import changed_keys
from maadd_worker.write.stored import (
    StoredRecord,
    check_expectations,
    current_row,
    read_stored,
)

_TOOL = "maad_repair_where"


class _Applied(msgspec.Struct, frozen=True, rename="camel"):
    """A repair that changed a record."""

    strategy: str
    changed_fields: tuple[str, ...]


class _Failure(msgspec.Struct, frozen=True):
    """A repair that could not be done, with a code of §5.6."""

    strategy: str
    code: str
    message: str


class _Examined(msgspec.Struct, frozen=True):
    """What the repairs make of one record; without a plan nothing will be written."""

    applied: tuple[_Applied, ...] = ()
    failures: tuple[_Failure, ...] = ()
    plan: Plan | None = None
    advice: tuple[Advice, ...] = ()


def repair_where(
    admission: Admission, args: RepairWhereArgs, identity: CommitIdentity | None
) -> BulkWork | Outcome:
    """The work or the preview of `maad_repair_where`.

    Raises UNKNOWN_TYPE, FILTER_*, BULK_LIMIT_EXCEEDED and the load errors of a broken schema.
    """
    context = admission.context
    limit = record_limit(args.max_records, context.settings.cleanup_max_records_repair_where)
    admission.refuse_broken(args.doc_type)
    found = matching(context, args.doc_type, args.filters, limit)
    refuse_excess(_TOOL, found.total, limit)
    types = tuple(dict.fromkeys(args.repair_types))
    if not is_confirmed(args):
        return _preview(context, args.doc_type, found.targets, types, limit, found.advice)
    expect_preview(args, found.targets)
    examined: list[_Examined] = []

    def item(target: Target) -> Item:
        def plan(_claimed: set[str]) -> Plan | NoPlan:
            one = _examine(context, target, types, identity, take_over=True)
            examined.append(one)
            return NoPlan(target.doc_id) if one.plan is None else one.plan

        return Item(plan)

    def report(ends: Sequence[ItemEnd]) -> Report:
        return _report(ends, examined, found.advice)

    names = ",".join(types)
    return BulkWork(
        new_mark(f"repair:{names}", f"repaired ({names})"),
        [item(target) for target in found.targets],
        report,
    )


def _preview(
    context: WriteContext,
    doc_type: str,
    targets: Sequence[Target],
    types: Sequence[str],
    limit: int,
    advice: tuple[Advice, ...],
) -> Outcome:
    changes: list[dict[str, Any]] = []
    for target in targets:
        one = _examine(context, target, types, None, take_over=False)
        advice += one.advice
        if one.applied or one.failures:
            changes.append(
                {
                    "docId": target.doc_id,
                    "appliedRepairs": one.applied,
                    "failures": one.failures,
                }
            )
    affected = [{"docId": one.doc_id, "docType": one.doc_type} for one in targets]
    extras = {
        "docType": doc_type,
        "repairTypes": list(types),
        "maxRecords": limit,
        "changes": changes,
        "unchanged": len(targets) - len(changes),
    }
    return preview(_TOOL, targets, affected, extras, advice)


def _report(
    ends: Sequence[ItemEnd], examined: Sequence[_Examined], advice: tuple[Advice, ...]
) -> Report:
    succeeded: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    unchanged = 0
    for end, one in zip(ends, examined, strict=True):
        advice += one.advice
        failures = [*one.failures, *_write_failures(one, end)]
        failed += [{"docId": end.doc_id, **msgspec.to_builtins(failure)} for failure in failures]
        if end.done is not None and not end.errors:
            succeeded.append(
                {
                    "docId": end.doc_id,
                    "docType": end.done.plan.doc_type,
                    "appliedRepairs": one.applied,
                }
            )
        elif not failures:
            unchanged += 1
    data = {
        "succeeded": succeeded,
        "failed": failed,
        "totalRequested": len(ends),
        "unchanged": unchanged,
    }
    return Report(data, advice, len(ends))


def _write_failures(one: _Examined, end: ItemEnd) -> list[_Failure]:
    """One entry per repair for a record that could not be written or indexed."""
    if not end.errors:
        return []
    error = end.errors[0]
    known = ("WRITE_ERROR", "VERSION_CONFLICT")
    code = error.code if error.code in known else "INDEX_FAILED"
    return [_Failure(applied.strategy, code, error.message) for applied in one.applied]


def _examine(
    context: WriteContext,
    target: Target,
    types: Sequence[str],
    identity: CommitIdentity | None,
    *,
    take_over: bool,
) -> _Examined:
    """Run the repairs on a record's frontmatter; pure but for `take_over`, which indexes an
    edit made outside first, so that a record that may not match any more stays as it is."""
    try:
        stored = _load(context, target, take_over=take_over)
    except (MaadError, MaadErrors) as failure:
        error = errors_of(failure)[0]
        code = {
            "FRONTMATTER_GUARD": "REPAIR_REQUIRES_MIGRATION",
            "VERSION_CONFLICT": "VERSION_CONFLICT",
        }.get(error.code, "FILE_READ_ERROR")
        return _Examined(failures=tuple(_Failure(name, code, error.message) for name in types))
    working: dict[str, Any] = stored.frontmatter
    applied: list[_Applied] = []
    failures: list[_Failure] = []
    advice: list[Advice] = []
    for name in types:
        try:
            repaired = STRATEGIES[name](
                working, target.doc_type, context.model, lambda ref: _is_live(context, ref)
            )
        except MaadError as error:
            failures.append(_Failure(name, error.code, error.message))
            continue
        advice += [_kept_advice(target.doc_id, field) for field in repaired.kept]
        if repaired.changed:
            working = repaired.frontmatter
            applied.append(_Applied(name, repaired.changed))
    if not applied:
        return _Examined(failures=tuple(failures), advice=tuple(advice))
    try:
        plan = _plan(context, stored, working, applied, identity)
    except (MaadError, MaadErrors) as failure:
        message = "; ".join(error.message for error in errors_of(failure))
        known = ("SCHEMA_NOT_FOUND", "VALIDATION_FAILED")
        code = errors_of(failure)[0].code
        code = code if code in known else "WRITE_ERROR"
        failures += [_Failure(one.strategy, code, message) for one in applied]
        return _Examined(failures=tuple(failures), advice=tuple(advice))
    return _Examined(tuple(applied), tuple(failures), plan, tuple(advice))


def _load(context: WriteContext, target: Target, *, take_over: bool) -> StoredRecord:
    if not take_over:
        return read_stored(context, context.live_row(target.doc_id), None)
    row, content = current_row(context, target.doc_id)
    check_expectations(row, target.version, None)
    return read_stored(context, row, content)


def _plan(
    context: WriteContext,
    stored: StoredRecord,
    working: dict[str, Any],
    applied: Sequence[_Applied],
    identity: CommitIdentity | None,
) -> Plan:
    """Validate and serialize the repaired record. Raises SCHEMA_NOT_FOUND, VALIDATION_FAILED,
    and the serializer's errors."""
    row = stored.row
    schema: Schema = context.model.schema(row.doc_type)
    changed = changed_keys(stored.frontmatter, working)
    report = validate(schema, context.model, working, "write", changed)
    if not report.valid:
        raise MaadErrors(report_errors(report))
    order = order_keys(working, schema.required, list(schema.fields))
    data, parsed = preflight(
        context,
        row.doc_id,
        row.file_path,
        lambda: rewrite_record(stored.data, row.file_path, working, order, body=None),
    )
    names = ",".join(one.strategy for one in applied)

    def answer(_row: DocumentRow | None) -> dict[str, Any]:
        return {"docId": row.doc_id, "docType": row.doc_type}

    return Plan(
        action="update",
        doc_id=row.doc_id,
        doc_type=row.doc_type,
        change=FileChange(
            "replace",
            row.file_path,
            data=data,
            old_data=stored.data,
            old_hash=stored.file_hash,
            new_hash=parsed.file_hash,
            parsed=parsed,
        ),
        commit=CommitRequest(
            action="update",
            doc_id=row.doc_id,
            doc_type=row.doc_type,
            detail=f"repair:{names}",
            summary=f"{row.doc_id} repaired ({names})",
            paths=(row.file_path,),
            identity=identity,
            contents={row.file_path: data},
        ),
        answer=answer,
        report=report,
        changed_fields=tuple(changed),
        previous_version=row.version,
    )


def _is_live(context: WriteContext, doc_id: str) -> bool:
    return context.writer.find(doc_id) is not None


def _kept_advice(doc_id: str, field: str) -> Advice:
    return Advice(
        f"{doc_id}.{field}",
        "some items of this list of refs are no texts; they point to nothing and were kept",
        "REF_TARGET_MISSING",
    )
