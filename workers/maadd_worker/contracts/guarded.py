"""`guarded-create-v1`: a create that writes exactly what its caller expects, or nothing
(spec 05 §6).

Here everything up to the publication: nothing is touched before it, and what comes out is a
plan for the very bytes whose digest was compared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec

from maadd.protocol.arguments import CreateGuardedArgs
from maadd.protocol.canonical_json import canonical_json, whole_characters
from maadd.protocol.doc_ids import describe_fault, doc_id_fault
from maadd.protocol.document_content import normalized_body
from maadd.protocol.errors import MaadError, MaadErrors
from maadd.protocol.messages import Call
from maadd.protocol.roles import Role
from maadd.protocol.strict_json import DuplicateMemberError, NotJsonError, parse_json
from maadd_worker.contracts.observation import Observation, observe
from maadd_worker.contracts.requests import strict_arguments
from maadd_worker.contracts.safe_read import Check
from maadd_worker.contracts.stored_document import StoredDocument, read_stored
from maadd_worker.contracts.surroundings import Surroundings
from maadd_worker.index.store import DocumentRow
from maadd_worker.markdown.document import parse_document
from maadd_worker.markdown.serializer import serialize_record
from maadd_worker.schema.model import Model
from maadd_worker.schema.schema import IDENTITY_KEYS
from maadd_worker.write.context import Plan, WriteContext, commit_identity
from maadd_worker.write.create import Draft, plan_draft, refuse_taken

CONTRACT = "guarded-create-v1"
MAX_REQUEST_BYTES = 262_144
_EXPONENT_FROM = 1e21

_OF_A_FILE = frozenset(("PARSE_ERROR", "YAML_PROFILE_VIOLATION"))
"""What reading answers about lines of a file, which the client never saw."""

_LOSSES = _OF_A_FILE | {"FRONTMATTER_GUARD"}
"""What the writer answers when it cannot reproduce a value."""


class Admitted(msgspec.Struct, frozen=True):
    """A create that passed every check. `model` is the one it was judged by, which the engine
    must take over when it is published."""

    plan: Plan
    context: WriteContext
    model: Model


class Verdict(msgspec.Struct, frozen=True):
    """What of a create was found in order, for a rehearsal."""

    schema: bool
    content: bool
    history: bool


def read_request(call: Call) -> CreateGuardedArgs:
    """The request as a private copy (step 0).

    Raises INVALID_FIELDS for whatever is wrong with it, RESPONSE_TOO_LARGE over 256 KiB.
    """
    raw = _raw_request(call)
    inexact = _inexact_integer(raw.get("fields"), "fields")
    if inexact is not None:
        raise MaadError(
            "INVALID_FIELDS",
            f"{inexact}: this integer has no exact double; send it as text",
            {"path": inexact, "cause": "inexact_integer"},
        )
    try:
        text = canonical_json(raw)
    except MaadError as failure:
        raise MaadError(
            "INVALID_FIELDS", f"the request: {failure.message}", failure.details
        ) from failure
    size = len(text.encode())
    if size > MAX_REQUEST_BYTES:
        raise MaadError(
            "RESPONSE_TOO_LARGE",
            f"the request has {size} bytes, at most {MAX_REQUEST_BYTES} are allowed",
            {
                "tool": call.tool,
                "observedBytes": size,
                "capBytes": MAX_REQUEST_BYTES,
                "writeOutcome": "not_published",
            },
        )
    args = strict_arguments(call.tool, _private_copy(raw))
    assert isinstance(args, CreateGuardedArgs)
    _check_doc_id(args.doc_id)
    return args


def check_history(around: Surroundings, args: CreateGuardedArgs) -> None:
    """READ_ONLY, HISTORY_MODE_MISMATCH."""
    if around.mode == "read":
        raise MaadError("READ_ONLY", "this project is served read-only; nothing can be written")
    if around.mode not in args.allowed_history_modes:
        raise MaadError(
            "HISTORY_MODE_MISMATCH",
            f"the project's history mode is {around.mode}, the request allows "
            f"{', '.join(args.allowed_history_modes)}",
        )


def admit(around: Surroundings, call: Call, args: CreateGuardedArgs, check: Check) -> Admitted:
    """The steps 1 to 9: two observations of the contract, and the bytes between them.

    Raises every code of spec 05 §6.1; nothing has been touched then.
    """

    def check_all() -> None:
        check()
        check_history(around, args)

    check_all()
    # The second observation compares the very bytes that a re-read of the first would.
    first = observe(around.root, args.doc_type, around.preparations, check, reread=False)
    check_schema(args, first)
    plan, context = prepare(around, call, args, first)
    check_all()
    second = observe(around.root, args.doc_type, around.preparations, check)
    if second.schema_digest != first.schema_digest:
        raise MaadError(
            "SCHEMA_CONTRACT_CHANGED", "the schema contract changed while the create was prepared"
        )
    check_all()
    return Admitted(plan, context, second.model)


def rehearse(around: Surroundings, call: Call, args: CreateGuardedArgs, check: Check) -> Verdict:
    """How far the create would get: the steps 0 to 7, which read only."""
    history = _passes(lambda: check_history(around, args))
    schema = content = False
    with contextlib.suppress(MaadError, MaadErrors):
        seen = observe(around.root, args.doc_type, around.preparations, check)
        check_schema(args, seen)
        schema = True
        prepare(around, call, args, seen)
        content = True
    return Verdict(schema, content, history)


def check_schema(args: CreateGuardedArgs, seen: Observation) -> None:
    """SCHEMA_CONTRACT_CHANGED when the contract is not the one that was approved."""
    if seen.schema_digest != args.expected_schema_digest:
        raise MaadError(
            "SCHEMA_CONTRACT_CHANGED",
            "the schema contract is not the expected one; review it and set up again",
        )


def prepare(
    around: Surroundings, call: Call, args: CreateGuardedArgs, seen: Observation
) -> tuple[Plan, WriteContext]:
    """The plan for the document, its bytes read back and compared (steps 4 to 7)."""
    context = msgspec.structs.replace(around.write_context(), model=seen.model)
    entry, schema = seen.model.entry(args.doc_type), seen.model.schema(args.doc_type)
    reserved = [key for key in IDENTITY_KEYS if key in args.fields]
    if reserved:
        raise MaadError("FRONTMATTER_GUARD", f"{reserved[0]} is the engine's own; leave it out")
    refuse_taken(context, entry, args.doc_id)
    identity = commit_identity(Role(call.role).text, call.identity)
    draft = Draft(entry, schema, dict(args.fields), args.body, args.doc_id, generated=False)
    try:
        plan = plan_draft(context, draft, identity, set())
    except MaadError as failure:
        raise _not_preserved_instead(failure, draft) from failure
    assert plan.change is not None
    assert plan.change.data is not None
    stored = read_stored(plan.change.data, args.doc_id, args.doc_type, schema.ref)
    _check_preserved(args, schema.ref, stored)
    if stored.content_digest != args.expected_content_digest:
        raise MaadError(
            "CONTENT_DIGEST_MISMATCH",
            "the document would not have the expected content digest; nothing was written",
        )
    return _with_contract(plan, around.mode, seen.schema_digest, stored.content_digest), context


def _raw_request(call: Call) -> dict[str, Any]:
    """The arguments without routing, as they were written."""
    raw: Any = call.args
    if call.source is not None:
        try:
            raw = parse_json(call.source, exact_integers=True, refuse_duplicates=True)
        except DuplicateMemberError as failure:
            raise MaadError(
                "INVALID_FIELDS",
                f"the member {failure.name[:128]!r} is given twice; keep one",
                {"path": failure.name[:128], "cause": "duplicate_member"},
            ) from None
        except NotJsonError as failure:
            raise MaadError("INVALID_FIELDS", f"the request is no JSON: {failure}") from None
    if type(raw) is not dict or any(type(name) is not str for name in raw):
        raise MaadError("INVALID_FIELDS", "the request must be an object")
    # The front takes the arguments that are for itself out of what it decodes.
    hidden = call.source is not None
    return {
        name: value
        for name, value in raw.items()
        if name != "project" and not (hidden and name.startswith("_"))
    }


def _private_copy(value: Any) -> Any:
    """The value with its members in their order, which decides the order in the file, and each
    number in the type whose spelling is that of the canonical text."""
    kind = type(value)
    if kind is dict:
        return {whole_characters(key): _private_copy(member) for key, member in value.items()}
    if kind is list:
        return [_private_copy(item) for item in value]
    if kind is str:
        return whole_characters(value)
    if kind is int or kind is float:
        number = float(value)
        return int(number) if number.is_integer() and abs(number) < _EXPONENT_FROM else number
    return value


def _inexact_integer(value: Any, path: str) -> str | None:
    """Where an integer stands that no double equals."""
    if type(value) is int:
        try:
            return None if int(float(value)) == value else path
        except OverflowError:
            return None  # Refused as infinite.
    members: Any = ()
    if type(value) is dict:
        members = ((f"{path}.{key}", member) for key, member in value.items())
    elif type(value) is list:
        members = ((f"{path}[{index}]", item) for index, item in enumerate(value))
    for place, member in members:
        if (found := _inexact_integer(member, place)) is not None:
            return found
    return None


def _check_doc_id(doc_id: str) -> None:
    fault, what = doc_id_fault(doc_id), f"docId {doc_id[:128]!a}"
    if fault is None:
        fault = doc_id_fault(doc_id.partition(".")[0])
        what = f"the part before the first dot of {what}"
    if fault is not None:
        raise MaadError(
            "INVALID_FIELDS",
            f"{what} {describe_fault(fault)}",
            {"field": "docId", "cause": fault},
        )


def _not_preserved_instead(failure: MaadError, draft: Draft) -> MaadError:
    """The writer's refusal of a value as what it means here."""
    if failure.code != "INVALID_FIELDS" and failure.code not in _LOSSES:
        return failure
    field = (failure.details or {}).get("field")
    if field is not None:
        return _not_preserved(field, failure.message)
    problem = failure.message
    if failure.code in _OF_A_FILE:
        problem = "it would not read back; it may be nested too deep"
    return _not_preserved(_culprit(draft), problem)


def _culprit(draft: Draft) -> str:
    """The field that cannot be written and read again even alone, or `body`, or `fields` where
    each could."""
    for key, value in draft.fields.items():
        if not _is_readable({key: value}, ""):
            return key
    return "fields" if _is_readable({"doc_id": draft.doc_id}, draft.body or "") else "body"


def _is_readable(fields: Mapping[str, Any], body: str) -> bool:
    try:
        parse_document(serialize_record(fields, [], body), "")
    except (MaadError, MaadErrors):
        return False
    return True


def _check_preserved(args: CreateGuardedArgs, schema_ref: str, stored: StoredDocument) -> None:
    """INVALID_FIELDS unless the bytes say exactly what was submitted."""
    wanted: Mapping[str, Any] = {
        **args.fields,
        "doc_id": args.doc_id,
        "doc_type": args.doc_type,
        "schema": schema_ref,
    }
    for key in dict.fromkeys((*wanted, *stored.frontmatter)):
        if (
            key not in wanted
            or key not in stored.frontmatter
            or canonical_json(wanted[key]) != canonical_json(stored.frontmatter[key])
        ):
            raise _not_preserved(key, "it would not read back as it was submitted")
    if stored.body != normalized_body(args.body):
        raise _not_preserved("body", "it would not read back as it was submitted")


def _not_preserved(path: str, problem: str) -> MaadError:
    details = {"cause": "not_preserved", "path": path[:128]}
    return MaadError("INVALID_FIELDS", f"{path[:128]}: {problem}", details)


def _with_contract(plan: Plan, mode: str, schema_digest: str, content_digest: str) -> Plan:
    """The plan with the four members of its answer, and kept once it is published."""

    def answer(row: DocumentRow | None) -> dict[str, Any]:
        return {
            **plan.answer(row),
            "contract": CONTRACT,
            "schemaDigest": schema_digest,
            "contentDigest": content_digest,
            "effectiveHistoryMode": mode,
        }

    return msgspec.structs.replace(plan, answer=answer, changed_fields=(), keeps_file=True)


def _passes(check: Check) -> bool:
    try:
        check()
    except MaadError:
        return False
    return True
