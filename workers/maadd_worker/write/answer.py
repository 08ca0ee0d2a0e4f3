"""Answers of writes: durability, history, warnings, and the audit members (spec 03 §2.3)."""

from __future__ import annotations

from typing import Any

import msgspec

from maadd.protocol.errors import MaadError, MaadErrors, errors_of
from maadd.protocol.messages import Call, Event, Reply
from maadd_worker.history.outcome import CommitFailure, HistoryOutcome
from maadd_worker.outcome import Advice, with_warnings
from maadd_worker.write.bulk.run import BulkEnd
from maadd_worker.write.context import Plan
from maadd_worker.write.expected import Expectation, ExpectedAnswer
from maadd_worker.write.group import Execution
from maadd_worker.write.idempotency import KeyScope, StoredAnswer

_encode = msgspec.json.encode


def write_reply(
    call: Call, done: Execution, history: HistoryOutcome, pending_writes: int, mode: str
) -> Reply:
    """The answer of a write that is on the disk and in the index."""
    plan = done.plan
    data = plan_data(done)
    meta = durability(data, history, pending_writes, mode)
    return Reply(
        call.request_id,
        ok=True,
        body=_encode(data),
        meta=with_warnings(meta, plan.warnings + _skipped(history)),
        audit=_audit(done, history),
    )


def bulk_reply(
    call: Call, end: BulkEnd, history: HistoryOutcome, pending_writes: int, mode: str
) -> Reply:
    """The answer of a bulk call that was carried out, whatever became of its items."""
    data = dict(end.report.data)
    meta = durability(data, history, pending_writes, mode)
    return Reply(
        call.request_id,
        ok=True,
        body=_encode(data),
        meta=with_warnings(meta, end.report.warnings + _skipped(history)),
        rows=end.report.rows,
        audit=_bulk_audit(end, history) if end.done else None,
    )


def plan_data(done: Execution) -> dict[str, Any]:
    """The `data` of a write without its durability."""
    return done.plan.answer(done.change.row if done.change is not None else None)


def stored_answer(done: Execution) -> StoredAnswer:
    """What an idempotency key will replay."""
    return StoredAnswer(
        data=msgspec.Raw(_encode(plan_data(done))),
        warnings=[msgspec.to_builtins(warning) for warning in done.plan.warnings],
        journal_ids=[done.journal_id] if done.journal_id is not None else [],
    )


def expected_answer(call: Call, scope: KeyScope | None, plan: Plan) -> Expectation | None:
    """What the key of a single write will replay if its process dies before it is indexed; None
    without a key."""
    if scope is None:
        return None
    return Expectation(
        answer=ExpectedAnswer(
            scope,
            call.request_id,
            msgspec.Raw(_encode(plan.answer(None))),
            [msgspec.to_builtins(warning) for warning in plan.warnings],
        )
    )


def replay_reply(
    call: Call, stored: StoredAnswer, history: HistoryOutcome, pending_writes: int, mode: str
) -> Reply:
    """The answer of a repeated call: the stored data with its present durability."""
    data = msgspec.json.decode(stored.data)
    meta = durability(data, history, pending_writes, mode)
    meta |= {
        "replayed": True,
        "original_request_id": stored.request_id,
        "original_completed_at": stored.completed_at,
    }
    if stored.warnings:
        meta["warnings"] = stored.warnings
    return Reply(call.request_id, ok=True, body=_encode(data), meta=meta)


def durability(
    data: dict[str, Any], history: HistoryOutcome, pending_writes: int, mode: str
) -> dict[str, Any]:
    """Add `writeDurable` and `commitFailure` to `data`; the matching members of `_meta`."""
    data["writeDurable"] = history.failure is None
    meta: dict[str, Any] = {"write_durable": history.failure is None}
    if history.failure is not None:
        failure = _failure_view(history.failure)
        data["commitFailure"] = failure
        meta["commit_failure"] = failure
    block: dict[str, Any] = {"mode": mode, "outcome": history.outcome}
    if history.sha is not None:
        block["sha"] = history.sha
    block["pendingWrites"] = pending_writes
    meta["history"] = block
    return meta


def _skipped(history: HistoryOutcome) -> tuple[Advice, ...]:
    """What has to be said of files that no commit will hold."""
    if not history.skipped:
        return ()
    (path, reason), *others = history.skipped
    if others:
        path = f"{path} (and {len(others)} more)"
    return (Advice("", f"{path} was written but not committed: {reason}", "HISTORY_PATH_SKIPPED"),)


def dry_run_reply(call: Call, plan: Plan | None, failure: MaadError | MaadErrors | None) -> Reply:
    """What a write would have done (spec 03 §2.4); `plan` is None when it would have failed."""
    data: dict[str, Any] = {"dryRun": True, "valid": failure is None, "errors": [], "warnings": []}
    if failure is not None:
        data["errors"] = [msgspec.to_builtins(error.wire()) for error in errors_of(failure)]
    if plan is not None:
        data["warnings"] = [msgspec.to_builtins(warning) for warning in plan.warnings]
        data["docId"] = plan.doc_id
        if plan.change is not None:
            data["filePath"] = plan.change.path
    return Reply(call.request_id, ok=True, body=_encode(data))


def unplanned_dry_run(call: Call) -> Reply:
    """The answer in dry-run mode of a tool that has no `data` there."""
    return Reply(call.request_id, ok=True, body=b"")


def event_of(done: Execution) -> Event | None:
    """The change notification of a write; None for one that changed no byte."""
    plan, change = done.plan, done.change
    if change is None:
        return None
    return Event(
        change.seq, plan.action, plan.doc_id, plan.doc_type, change.updated_at, origin="tool"
    )


def _audit(done: Execution, history: HistoryOutcome) -> dict[str, Any]:
    plan = done.plan
    after: int | None = plan.previous_version
    if done.change is not None:
        after = done.change.row.version if done.change.row is not None else None
    return {
        "doc_id": plan.doc_id,
        "doc_type": plan.doc_type,
        "version_before": plan.previous_version,
        "version_after": None if plan.action == "delete" else after,
        "changed_fields": list(plan.changed_fields),
        "git_commit": history.sha,
    }


def _bulk_audit(end: BulkEnd, history: HistoryOutcome) -> dict[str, Any]:
    plans = [one.plan for one in end.done]
    types = {plan.doc_type for plan in plans}
    return {
        "doc_id": None,
        "doc_ids": list(dict.fromkeys(plan.doc_id for plan in plans)),
        "doc_type": types.pop() if len(types) == 1 else None,
        "version_before": None,
        "version_after": None,
        "changed_fields": list(
            dict.fromkeys(name for plan in plans for name in plan.changed_fields)
        ),
        "git_commit": history.sha,
    }


def _failure_view(failure: CommitFailure) -> dict[str, Any]:
    view: dict[str, Any] = {
        "code": failure.code,
        "message": failure.message,
        "action": failure.action,
    }
    if failure.details is not None:
        view["details"] = failure.details
    return view
