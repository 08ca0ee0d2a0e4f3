"""The strict tools as calls: from the message to the reply, or to a plan (spec 05 §1, §2)."""

from __future__ import annotations

from typing import Any

import msgspec

from maadd.protocol.arguments import CreateContractArgs, Delivery, DocumentReceiptArgs
from maadd.protocol.canonical_json import canonical_json
from maadd.protocol.document_content import PROJECTION as CONTENT_PROJECTION
from maadd.protocol.errors import MaadError, MaadErrors
from maadd.protocol.messages import Call, Reply, ResultBudget
from maadd.protocol.strict_json import parse_json
from maadd.protocol.tools import TOOLS
from maadd_worker.contracts.delivery import Observed, deliver, delivery_text, measured
from maadd_worker.contracts.guarded import Admitted, admit, read_request, rehearse
from maadd_worker.contracts.observation import observe
from maadd_worker.contracts.receipt import take_receipt
from maadd_worker.contracts.requests import strict_arguments
from maadd_worker.contracts.safe_read import Check
from maadd_worker.contracts.schema_contract import PROJECTION as SCHEMA_PROJECTION
from maadd_worker.contracts.surroundings import Surroundings
from maadd_worker.outcome import Outcome
from maadd_worker.replies import failure_reply, reply_of

STRICT_TOOLS = frozenset(name for name, spec in TOOLS.items() if spec.strict)
GUARDED_CREATE = "maad_create_guarded"

_CONTRACT = "create-contract-v1"
_UNBOUNDED = ResultBudget(cap_bytes=1_048_576)


def answer_strict(around: Surroundings, call: Call, check: Check) -> Reply | Admitted:
    """The reply of a strict call, or the create that may be published now if the front permits.

    Every failure becomes a reply.
    """
    if call.tool == GUARDED_CREATE:
        return _guarded(around, call, check)
    return reply_of(call, lambda: _read(around, call, check))


def shortened(reply: Reply, budget: ResultBudget | None) -> Reply:
    """The acknowledgement of a create, its warnings only counted where they would not fit."""
    if budget is None or not reply.ok:
        return reply
    if measured(reply.body, budget, reply.meta) <= budget.cap_bytes:
        return reply
    data = msgspec.json.decode(reply.body)
    warnings = data["validation"]["warnings"]
    data["validation"]["warnings"] = []
    data["validation"]["warningCount"] = len(warnings)
    meta = {name: value for name, value in (reply.meta or {}).items() if name != "warnings"}
    return msgspec.structs.replace(reply, body=msgspec.json.encode(data), meta=meta or None)


def _guarded(around: Surroundings, call: Call, check: Check) -> Reply | Admitted:
    try:
        args = read_request(call)
        if not call.dry_run:
            return admit(around, call, args, check)
        verdict = rehearse(around, call, args, check)
    except (MaadError, MaadErrors) as failure:
        if call.dry_run:
            return Reply(call.request_id, ok=True, body=_rehearsed(None))
        return failure_reply(call.request_id, failure)
    return Reply(call.request_id, ok=True, body=_rehearsed(msgspec.to_builtins(verdict)))


def _rehearsed(verdict: dict[str, bool] | None) -> bytes:
    would_admit = verdict or {"schema": False, "content": False, "history": False}
    return msgspec.json.encode({"dryRun": True, "wouldAdmit": would_admit})


def _read(around: Surroundings, call: Call, check: Check) -> Outcome:
    check()
    args: Any = strict_arguments(call.tool, call.args)
    if call.tool == "maad_create_contract":
        observed = _contract(around, call, args, check)
    else:
        observed = _receipt(around, call, args, check)
    check()
    delivery: Delivery | None = args.delivery
    if delivery is None:
        text = delivery_text(call.tool, observed.data)
    else:
        text = deliver(around.snapshots, observed, delivery, call.budget or _UNBOUNDED)
    return Outcome(msgspec.Raw(text.encode()), meta=observed.meta)


def _contract(around: Surroundings, call: Call, args: CreateContractArgs, check: Check) -> Observed:
    seen = observe(around.root, args.doc_type, around.preparations, check)
    data = {
        "contract": _CONTRACT,
        "docType": args.doc_type,
        "schemaDigest": seen.schema_digest,
        "schemaProjection": SCHEMA_PROJECTION,
        "contentProjection": CONTENT_PROJECTION,
        "schemaContract": parse_json(seen.contract_text),
        "effectiveHistoryMode": around.mode,
    }
    return Observed(call.tool, call.session_id, around.epoch, _parameters(around, call), data)


def _receipt(around: Surroundings, call: Call, args: DocumentReceiptArgs, check: Check) -> Observed:
    receipt = take_receipt(around, args, check)
    meta = None
    if receipt.changed_keys is not None:
        meta = {"workingTree": {"changedKeys": list(receipt.changed_keys)}}
    return Observed(
        call.tool,
        call.session_id,
        around.epoch,
        _parameters(around, call),
        receipt.data,
        moving=("observedAt",),
        meta=meta,
    )


def _parameters(around: Surroundings, call: Call) -> str:
    """What must be the same for every page of an answer."""
    asked = {name: value for name, value in call.args.items() if name != "delivery"}
    return canonical_json({**asked, "project": around.project})
