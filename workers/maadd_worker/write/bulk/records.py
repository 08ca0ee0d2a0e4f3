"""`maad_bulk_create` and `maad_bulk_update` (spec 03 §4.4, §4.5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from maadd.protocol.arguments import (
    BulkCreateArgs,
    BulkCreateRecord,
    BulkUpdateArgs,
    BulkUpdateItem,
    CreateArgs,
    UpdateArgs,
)
from maadd.protocol.errors import MaadError, MaadErrors, errors_of
from maadd_worker.history.outcome import CommitIdentity
from maadd_worker.markdown.body import current_body
from maadd_worker.markdown.frontmatter import split_file
from maadd_worker.outcome import Advice
from maadd_worker.write.admission import Admission
from maadd_worker.write.bulk.readback import Submitted, verify
from maadd_worker.write.bulk.run import (
    BulkWork,
    Item,
    ItemEnd,
    NoPlan,
    Report,
    new_mark,
    planned,
)
from maadd_worker.write.context import Plan, WriteContext
from maadd_worker.write.create import draft_create, plan_draft, refuse_claimed
from maadd_worker.write.fields import original_bytes, parse_fields
from maadd_worker.write.update import plan_update

_Submission = Callable[[ItemEnd, str], Submitted]
"""What the caller sent for a successful item of the given type."""


def bulk_create(
    admission: Admission, args: BulkCreateArgs, identity: CommitIdentity | None
) -> BulkWork:
    """The work of `maad_bulk_create`; ids given out earlier in the call count as taken."""

    def submission(end: ItemEnd, doc_type: str) -> Submitted:
        record = args.records[end.index]
        body = record.body if record.original is None else _body_of(record.original)
        return Submitted(end.doc_id or "", doc_type, parse_fields(record.fields), body)

    return BulkWork(
        new_mark("bulk", "created", atomic=args.atomic),
        [_create_item(admission, record, identity) for record in args.records],
        lambda ends: _report(admission.context, ends, submission),
        lambda ends: _report(admission.context, ends, None),
    )


def bulk_update(
    admission: Admission, args: BulkUpdateArgs, identity: CommitIdentity | None
) -> BulkWork:
    """The work of `maad_bulk_update`; a record named twice is changed twice, in order."""

    def submission(end: ItemEnd, doc_type: str) -> Submitted:
        item = args.updates[end.index]
        fields: dict[str, Any] = dict.fromkeys(item.unset_fields)
        if item.fields is not UNSET:
            fields |= parse_fields(item.fields)
        body = item.body if item.original is None else _body_of(item.original)
        return Submitted(item.doc_id, doc_type, fields, body, item.append_body)

    return BulkWork(
        new_mark("bulk", "updated"),
        [_update_item(admission, item, identity) for item in args.updates],
        lambda ends: _report(admission.context, ends, submission),
        lambda ends: _report(admission.context, ends, None),
    )


def rehearse(work: BulkWork) -> dict[str, Any]:
    """What the call would do, for a server in dry-run mode (spec 03 §2.4)."""
    claimed: set[str] = set()
    errors: list[dict[str, Any]] = []
    warnings: list[Advice] = []
    records: list[dict[str, Any]] = []
    for index, item in enumerate(work.items):
        plan = item.plan(claimed)
        if isinstance(plan, NoPlan):
            errors.append({"index": index, **failure_view(plan.doc_id, plan.errors)})
            continue
        claimed.add(plan.doc_id)
        warnings += _advice_about(plan)
        view = {"index": index, "docId": plan.doc_id, "docType": plan.doc_type}
        if plan.change is not None:
            view["filePath"] = plan.change.path
        records.append(view)
    return {
        "dryRun": True,
        "valid": not errors,
        "errors": errors,
        "warnings": [msgspec.to_builtins(advice) for advice in warnings],
        "records": records,
    }


def failure_view(doc_id: str | None, errors: Sequence[MaadError]) -> dict[str, Any]:
    """One entry of `failed`; the errors one by one when there are several."""
    first = errors[0]
    messages = "; ".join(error.message for error in errors)
    view: dict[str, Any] = {
        "docId": doc_id,
        "code": first.code,
        "error": f"{first.code}: {messages}",
    }
    if first.details:
        view["details"] = first.details
    if len(errors) > 1:
        view["errors"] = [msgspec.to_builtins(error.wire()) for error in errors]
    return view


def _create_item(
    admission: Admission, record: BulkCreateRecord, identity: CommitIdentity | None
) -> Item:
    context = admission.context
    args = CreateArgs(
        doc_type=record.doc_type, fields=record.fields, body=record.body, doc_id=record.doc_id
    )

    def plan(claimed: set[str]) -> Plan | NoPlan:
        doc_id = record.doc_id
        try:
            admission.refuse_broken(record.doc_type)
            draft = draft_create(context, args, claimed)
            if record.original is not None:
                draft = msgspec.structs.replace(draft, original=_without_body(record))
            doc_id = draft.doc_id
            refuse_claimed(context, draft, claimed)
            return plan_draft(context, draft, identity, claimed)
        except (MaadError, MaadErrors) as failure:
            return NoPlan(doc_id, tuple(errors_of(failure)))

    return Item(plan)


def _update_item(
    admission: Admission, item: BulkUpdateItem, identity: CommitIdentity | None
) -> Item:
    args = UpdateArgs(
        doc_id=item.doc_id,
        fields=item.fields,
        unset_fields=item.unset_fields,
        body=item.body,
        append_body=item.append_body,
        expected_version=item.expected_version,
        expected_hash=item.expected_hash,
    )

    def make(claimed: set[str]) -> Plan:
        admission.refuse_broken_record(item.doc_id)
        return plan_update(admission.context, args, identity, claimed, item.original)

    return Item(lambda claimed: planned(item.doc_id, lambda: make(claimed)), after=item.doc_id)


def _without_body(record: BulkCreateRecord) -> str | None:
    if record.body is not None:
        raise MaadError(
            "INVALID_FIELDS",
            "original holds a body already; send it without body",
            {"field": "body"},
        )
    return record.original


def _body_of(original: str) -> str:
    return current_body(split_file(original_bytes(original), ""))


def _report(
    context: WriteContext, ends: Sequence[ItemEnd], submission: _Submission | None
) -> Report:
    """The report; without `submission` nothing is read back."""
    succeeded: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    submitted: list[Submitted] = []
    warnings: list[Advice] = []
    for end in ends:
        if end.done is None or end.errors:
            failed.append({"index": end.index, **failure_view(end.doc_id, end.errors)})
            continue
        plan = end.done.plan
        succeeded.append(_success_view(context, end, plan))
        if submission is not None:
            submitted.append(submission(end, plan.doc_type))
        warnings += _advice_about(plan)
    data = {
        "succeeded": succeeded,
        "failed": failed,
        "totalRequested": len(ends),
        "verification": verify(context, submitted),
        "warnings": [msgspec.to_builtins(advice) for advice in warnings],
    }
    return Report(data, tuple(warnings), len(ends))


def _success_view(context: WriteContext, end: ItemEnd, plan: Plan) -> dict[str, Any]:
    row = context.writer.find(plan.doc_id)
    done = end.done
    if done is not None and done.change is not None:
        row = done.change.row
    known: Mapping[str, Any] = plan.answer(row)
    view: dict[str, Any] = {
        "index": end.index,
        "docId": plan.doc_id,
        "docType": plan.doc_type,
        "filePath": "" if row is None else row.file_path,
        "version": known["version"],
        "contentHash": known["contentHash"],
    }
    if plan.warnings:
        view["warnings"] = [msgspec.to_builtins(advice) for advice in plan.warnings]
    return view


def _advice_about(plan: Plan) -> list[Advice]:
    """The plan's warnings, each field with the record it belongs to."""
    return [
        msgspec.structs.replace(advice, field=f"{plan.doc_id}.{advice.field}")
        for advice in plan.warnings
    ]
