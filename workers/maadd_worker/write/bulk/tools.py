"""The six bulk tools, from call to carried-out work (spec 03 §4.4, §4.5, §5.2-5.6)."""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from maadd.protocol.arguments import (
    BulkCreateArgs,
    BulkDeleteArgs,
    BulkUpdateArgs,
    CleanupArguments,
    DeleteWhereArgs,
    PurgeSoftDeletedArgs,
    RepairWhereArgs,
)
from maadd.protocol.errors import MaadError, MaadErrors
from maadd.protocol.messages import Call, Reply
from maadd.protocol.roles import Role
from maadd.protocol.tools import TOOLS
from maadd.protocol.validation import check_arguments
from maadd_worker.disk.journal import Journal
from maadd_worker.index.connection import backend_error
from maadd_worker.outcome import Outcome, with_warnings
from maadd_worker.replies import failure_reply
from maadd_worker.write.admission import Admission, scope_of
from maadd_worker.write.answer import unplanned_dry_run
from maadd_worker.write.bulk.cleanup import is_confirmed
from maadd_worker.write.bulk.records import bulk_create, bulk_update, rehearse
from maadd_worker.write.bulk.removals import bulk_delete, delete_where, purge_soft_deleted
from maadd_worker.write.bulk.repairs import repair_where
from maadd_worker.write.bulk.run import BulkEnd, BulkWork, carry_out
from maadd_worker.write.context import commit_identity

BULK_WRITES = frozenset(
    {
        "maad_bulk_create",
        "maad_bulk_update",
        "maad_bulk_delete",
        "maad_delete_where",
        "maad_purge_soft_deleted",
        "maad_repair_where",
    }
)


def run_bulk(admission: Admission, journal: Journal, call: Call) -> BulkEnd | None:
    """Carry out one bulk call; None when it ended without a write and is answered already."""
    try:
        return _run(admission, journal, call)
    except (MaadError, MaadErrors) as failure:
        admission.deliver(failure_reply(call.request_id, failure))
    except apsw.Error as failure:
        admission.deliver(failure_reply(call.request_id, backend_error(failure, "used")))
    return None


def _run(admission: Admission, journal: Journal, call: Call) -> BulkEnd | None:
    args: Any = check_arguments(TOOLS[call.tool], call.args)
    cleanup = isinstance(args, CleanupArguments)
    # A preview answers for nothing: it neither stores its answer nor replays one.
    previews = cleanup and not is_confirmed(args)
    scope = None if previews else scope_of(call, args)
    if admission.answered(call, scope):
        return None
    if call.dry_run and cleanup and not previews:
        admission.deliver(unplanned_dry_run(call))
        return None
    work = _work(admission, call, args)
    if isinstance(work, Outcome):
        admission.deliver(_preview_reply(call, work))
        return None
    if call.dry_run:
        body = msgspec.json.encode(rehearse(work))
        admission.deliver(Reply(call.request_id, ok=True, body=body))
        return None
    return carry_out(admission, journal, work, call, scope)


def _work(admission: Admission, call: Call, args: Any) -> BulkWork | Outcome:
    context = admission.context
    identity = commit_identity(Role(call.role).text, call.identity)
    match args:
        case BulkCreateArgs():
            return bulk_create(admission, args, identity)
        case BulkUpdateArgs():
            return bulk_update(admission, args, identity)
        case BulkDeleteArgs():
            return bulk_delete(context, args, identity)
        case DeleteWhereArgs():
            return delete_where(context, args, identity)
        case PurgeSoftDeletedArgs():
            return purge_soft_deleted(context, args, identity)
        case RepairWhereArgs():
            return repair_where(admission, args, identity)
    raise AssertionError(f"{call.tool} is no bulk tool")


def _preview_reply(call: Call, outcome: Outcome) -> Reply:
    return Reply(
        call.request_id,
        ok=True,
        body=msgspec.json.encode(outcome.data),
        meta=with_warnings(outcome.meta, outcome.warnings),
        rows=outcome.rows,
    )
