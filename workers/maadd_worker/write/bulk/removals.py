"""`maad_bulk_delete`, `maad_delete_where`, `maad_purge_soft_deleted` (spec 03 §5.3-5.5)."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import Any

from maadd.protocol.arguments import (
    BulkDeleteArgs,
    DeleteArgs,
    DeleteWhereArgs,
    PurgeSoftDeletedArgs,
)
from maadd.protocol.errors import MaadError
from maadd_worker.history.outcome import CommitIdentity
from maadd_worker.markdown.text import iso_milliseconds
from maadd_worker.outcome import Outcome
from maadd_worker.write.bulk.cleanup import (
    Target,
    expect_preview,
    is_confirmed,
    matching,
    preview,
    record_limit,
    refuse_excess,
)
from maadd_worker.write.bulk.records import failure_view
from maadd_worker.write.bulk.run import BulkWork, Item, ItemEnd, NoPlan, Report, new_mark, planned
from maadd_worker.write.context import Plan, WriteContext
from maadd_worker.write.delete import plan_delete, plan_purge

_ISO_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?",
    re.IGNORECASE,
)

_EXPIRED = "deleted = 1 AND updated_at < ?"
_COUNT_EXPIRED = f"SELECT count(*) FROM documents WHERE {_EXPIRED}"
_OLDEST_EXPIRED = f"""
SELECT doc_id, doc_type, file_path, version, updated_at FROM documents
WHERE {_EXPIRED} ORDER BY updated_at, doc_id LIMIT ?
"""


def bulk_delete(
    context: WriteContext, args: BulkDeleteArgs, identity: CommitIdentity | None
) -> BulkWork | Outcome:
    """The work or the preview of `maad_bulk_delete`. Raises BULK_LIMIT_EXCEEDED."""
    tool = "maad_bulk_delete"
    limit = record_limit(args.max_records, context.settings.cleanup_max_records_bulk_delete)
    refuse_excess(tool, len(args.doc_ids), limit)
    targets: list[Target] = []
    missing: list[str] = []
    for doc_id in dict.fromkeys(args.doc_ids):
        row = context.writer.find(doc_id)
        if row is None:
            missing.append(doc_id)
        else:
            targets.append(Target(doc_id, row.doc_type, row.file_path, row.version, row.updated_at))
    if not is_confirmed(args):
        affected = [
            {"docId": one.doc_id, "docType": one.doc_type, "filePath": one.file_path}
            for one in targets
        ]
        return preview(
            tool, targets, affected, {"mode": args.mode, "missing": missing, "maxRecords": limit}
        )
    expect_preview(args, targets)
    versions = {}
    if args.expect_preview is not None:
        versions = {one.doc_id: one.version for one in targets}
    items = [
        _delete_item(context, doc_id, args.mode, versions.get(doc_id), identity)
        for doc_id in args.doc_ids
    ]
    return _deletion(args.mode, items)


def delete_where(
    context: WriteContext, args: DeleteWhereArgs, identity: CommitIdentity | None
) -> BulkWork | Outcome:
    """The work or the preview of `maad_delete_where`.

    Raises UNKNOWN_TYPE, FILTER_*, BULK_LIMIT_EXCEEDED, INVALID_FIELDS.
    """
    tool = "maad_delete_where"
    limit = record_limit(args.max_records, context.settings.cleanup_max_records_delete_where)
    if is_confirmed(args) and args.filters is None:
        raise MaadError(
            "INVALID_FIELDS",
            f"without filters every record of {args.doc_type!r} would be deleted; if that is "
            "meant, pass filters {}",
            {"field": "filters"},
        )
    found = matching(context, args.doc_type, args.filters, limit)
    refuse_excess(tool, found.total, limit)
    if not is_confirmed(args):
        affected = [{"docId": one.doc_id, "docType": one.doc_type} for one in found.targets]
        extras = {"mode": args.mode, "docType": args.doc_type, "maxRecords": limit}
        return preview(tool, found.targets, affected, extras, found.advice)
    expect_preview(args, found.targets)
    # A record that was edited since the index saw it may not match any more: it stays.
    items = [
        _delete_item(context, one.doc_id, args.mode, one.version, identity) for one in found.targets
    ]
    return _deletion(args.mode, items, found.advice)


def purge_soft_deleted(
    context: WriteContext, args: PurgeSoftDeletedArgs, identity: CommitIdentity | None
) -> BulkWork | Outcome:
    """The work or the preview of `maad_purge_soft_deleted`. Raises INVALID_FIELDS."""
    limit = record_limit(args.max_records, context.settings.cleanup_max_records_purge_soft_deleted)
    threshold = _threshold(args.older_than, context.settings.purge_default_retention_days)
    execute = context.writer.connection.execute
    scanned: Any = execute(_COUNT_EXPIRED, (threshold,)).get
    targets = [Target(*row) for row in execute(_OLDEST_EXPIRED, (threshold, limit))]
    if not is_confirmed(args):
        affected = [
            {
                "docId": one.doc_id,
                "docType": one.doc_type,
                "filePath": one.file_path,
                "updatedAt": one.updated_at,
            }
            for one in targets
        ]
        extras = {
            "scanned": scanned,
            "retentionThresholdIso": threshold,
            "maxRecords": limit,
        }
        return preview("maad_purge_soft_deleted", targets, affected, extras)
    expect_preview(args, targets)

    def report(ends: Sequence[ItemEnd]) -> Report:
        data = {
            "purged": [
                {"docId": plan.doc_id, "docType": plan.doc_type, "filePath": path}
                for plan, path in _removed(ends)
            ],
            "failed": _failures(ends),
            "scanned": scanned,
            "retentionThresholdIso": threshold,
        }
        return Report(data, rows=len(ends))

    return BulkWork(
        new_mark("purge", f"purged, soft-deleted before {threshold}"),
        [_purge_item(context, one.doc_id, identity) for one in targets],
        report,
    )


def _deletion(mode: str, items: Sequence[Item], advice: Sequence[Any] = ()) -> BulkWork:
    def report(ends: Sequence[ItemEnd]) -> Report:
        succeeded = []
        for plan, path in _removed(ends):
            view = {
                "docId": plan.doc_id,
                "docType": plan.doc_type,
                "filePath": path,
                "mode": mode,
            }
            if plan.change is not None and plan.change.new_path is not None:
                view["tombstonePath"] = plan.change.new_path
            succeeded.append(view)
        data = {"succeeded": succeeded, "failed": _failures(ends), "totalRequested": len(ends)}
        return Report(data, tuple(advice), len(ends))

    return BulkWork(new_mark(f"bulk:{mode}", f"deleted ({mode})"), items, report)


def _delete_item(
    context: WriteContext,
    doc_id: str,
    mode: Any,
    version: int | None,
    identity: CommitIdentity | None,
) -> Item:
    args = DeleteArgs(doc_id=doc_id, mode=mode, expected_version=version)

    def make(claimed: set[str]) -> Plan:
        if doc_id in claimed:
            raise MaadError("FILE_NOT_FOUND", f'"{doc_id}" is named more than once in this call')
        return plan_delete(context, args, identity)

    return Item(lambda claimed: planned(doc_id, lambda: make(claimed)))


def _purge_item(context: WriteContext, doc_id: str, identity: CommitIdentity | None) -> Item:
    def plan(_claimed: set[str]) -> Plan | NoPlan:
        return planned(doc_id, lambda: plan_purge(context, doc_id, identity))

    return Item(plan)


def _removed(ends: Sequence[ItemEnd]) -> list[tuple[Plan, str]]:
    """The plans that were carried out, each with the path that it took away."""
    return [
        (end.done.plan, end.done.plan.change.path)
        for end in ends
        if end.done is not None and not end.errors and end.done.plan.change is not None
    ]


def _failures(ends: Sequence[ItemEnd]) -> list[dict[str, Any]]:
    return [failure_view(end.doc_id, end.errors) for end in ends if end.errors]


def _threshold(older_than: str | None, retention_days: int) -> str:
    """The time that tombstones have to be older than. INVALID_FIELDS."""
    now = dt.datetime.now(dt.UTC)
    if older_than is None:
        try:
            return iso_milliseconds(now - dt.timedelta(days=retention_days))
        except OverflowError:
            return iso_milliseconds(dt.datetime.min.replace(tzinfo=dt.UTC))
    try:
        if _ISO_TIME.fullmatch(older_than) is None:
            raise ValueError(older_than)
        moment = dt.datetime.fromisoformat(older_than.upper())
        moment = moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment
        threshold = iso_milliseconds(moment)
    except (ValueError, OverflowError) as error:
        raise MaadError(
            "INVALID_FIELDS",
            "olderThan must be an ISO 8601 time such as 2031-02-03T04:05:06Z",
            {"field": "olderThan", "provided": older_than},
        ) from error
    if moment > now:
        raise MaadError(
            "INVALID_FIELDS",
            f"olderThan {threshold} is in the future; tombstones made until then would go too",
            {"field": "olderThan", "provided": older_than},
        )
    return threshold
