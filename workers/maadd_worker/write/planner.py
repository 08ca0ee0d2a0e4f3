"""From waiting calls to groups of plans, in arrival order (spec 03 §2.1, §2.2).

A group holds writes that do not meet: other records, other idempotency keys. A call that
would meet an earlier one of its group starts the next group, and is planned again there.
"""

from __future__ import annotations

from collections import deque

import msgspec

from maadd.protocol.arguments import CreateArgs, DeleteArgs, UpdateArgs
from maadd.protocol.arguments.base import Arguments
from maadd.protocol.errors import MaadError, MaadErrors
from maadd.protocol.messages import Call, Reply
from maadd.protocol.roles import Role
from maadd.protocol.tools import TOOLS
from maadd.protocol.validation import check_arguments
from maadd_worker.replies import failure_reply
from maadd_worker.write.admission import Admission, scope_of
from maadd_worker.write.answer import dry_run_reply, unplanned_dry_run
from maadd_worker.write.context import Plan, commit_identity
from maadd_worker.write.create import plan_create
from maadd_worker.write.delete import plan_delete
from maadd_worker.write.idempotency import KeyScope
from maadd_worker.write.update import plan_update

RECORD_WRITES = frozenset({"maad_create", "maad_update", "maad_delete"})
"""The writes that can share a group."""


class Member(msgspec.Struct, frozen=True):
    """A planned write of a group."""

    call: Call
    plan: Plan
    scope: KeyScope | None


def next_group(admission: Admission, waiting: deque[Call]) -> list[Member]:
    """Pop calls for as long as they fit into one group: plan them, answer those that end
    without a write."""
    members: list[Member] = []
    claimed: set[str] = set()
    keys: set[KeyScope] = set()
    while waiting and waiting[0].tool in RECORD_WRITES:
        call = waiting[0]
        try:
            args = check_arguments(TOOLS[call.tool], call.args)
            scope = scope_of(call, args)
            if _target(args) in claimed or (scope is not None and _meets(scope, keys)):
                break
            if admission.answered(call, scope):
                waiting.popleft()
                continue
        except (MaadError, MaadErrors) as failure:
            waiting.popleft()
            admission.deliver(failure_reply(call.request_id, failure))
            continue
        if call.dry_run:
            waiting.popleft()
            admission.deliver(_rehearse(admission, call, args))
            continue
        try:
            plan = _plan(admission, call, args, claimed)
        except (MaadError, MaadErrors) as failure:
            waiting.popleft()
            admission.deliver(failure_reply(call.request_id, failure))
            continue
        if plan.doc_id in claimed:
            break
        waiting.popleft()
        if admission.admit(call.request_id):
            members.append(Member(call, plan, scope))
            claimed.add(plan.doc_id)
            if scope is not None:
                keys.add(scope)
    return members


def _rehearse(admission: Admission, call: Call, args: Arguments) -> Reply:
    """The answer of a server in dry-run mode (spec 03 §2.4): every check, no write."""
    if isinstance(args, DeleteArgs):
        return unplanned_dry_run(call)
    try:
        return dry_run_reply(call, _plan(admission, call, args, set()), None)
    except (MaadError, MaadErrors) as failure:
        return dry_run_reply(call, None, failure)


def _plan(admission: Admission, call: Call, args: Arguments, claimed: set[str]) -> Plan:
    identity = commit_identity(Role(call.role).text, call.identity)
    if isinstance(args, CreateArgs):
        admission.refuse_broken(args.doc_type)
        return plan_create(admission.context, args, identity, claimed)
    if isinstance(args, UpdateArgs):
        admission.refuse_broken_record(args.doc_id)
        return plan_update(admission.context, args, identity, claimed)
    assert isinstance(args, DeleteArgs)
    return plan_delete(admission.context, args, identity)


def _target(args: Arguments) -> str | None:
    """The id that a call names itself."""
    doc_id = getattr(args, "doc_id", None)
    return doc_id if isinstance(doc_id, str) else None


def _meets(scope: KeyScope, keys: set[KeyScope]) -> bool:
    return any(
        (one.principal, one.tool, one.key) == (scope.principal, scope.tool, scope.key)
        for one in keys
    )
