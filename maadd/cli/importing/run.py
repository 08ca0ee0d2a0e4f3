"""Carrying out a plan: model files, then the records in bulk calls, noted as they are stored."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from maadd.cli.importing.faults import is_of_item
from maadd.cli.oneshot import OneShot
from maadd.protocol.errors import MaadError, MaadErrors, errors_of
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.imports.existing import claims, is_tombstoned, look_for, lost_records
from maadd_worker.imports.ledger import Done, Ledger
from maadd_worker.imports.plan import ImportPlan
from maadd_worker.imports.prepare import Prepared, Record, original_text
from maadd_worker.imports.rehearse import rehearse
from maadd_worker.imports.source import Misfit, Source, misfit_of
from maadd_worker.schema.model import Model

_CHUNK_RECORDS = 1000
_CHUNK_CHARACTERS = 8_000_000
"""One call is one commit: most imports are one, and none holds the writer for minutes."""

_EDITED = "merge the two by hand"
_OCCUPIED = "give the item another id under `ids` in the plan"


class Import(msgspec.Struct, frozen=True):
    """An import that is ready to run: what, where to, and what was done of it before.

    `max_bytes` is the size that a record may have, 0 for any.
    """

    source: Source
    plan: ImportPlan
    prepared: Prepared
    model: Model
    ledger: Ledger
    max_bytes: int

    def key(self, record: Record) -> str:
        """The name of an item in the ledger: rows of a table may move, their ids do not."""
        return record.item.key if self.source.kind == "markdown" else record.doc_id

    def made(self, record: Record) -> str:
        """The digest of what the plan makes of an item."""
        if self.plan.links != "mentions":
            return record.digest(())
        targets = self.prepared.assigned.targets
        found = [targets.find_link(link, record.item) for link in record.item.links]
        return record.digest(["", *(target.doc_id for target in found if target is not None)])


class Result(msgspec.Struct):
    """What a run did. `found` were there already as they should be; `changed` differ at the
    source from what was imported, `gone` are no longer there; `remade` are as they were there,
    and would be made otherwise now; the records of `deleted` were deleted here."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    found: int = 0
    changed: list[str] = []
    remade: list[str] = []
    gone: list[str] = []
    deleted: list[str] = []
    left_out: list[Misfit] = []
    commit_failures: list[str] = []


class Work(msgspec.Struct, frozen=True):
    """What is to be done: records to create, and to update with the state they had."""

    create: tuple[Record, ...]
    update: tuple[tuple[Record, Done], ...]


def sort_out(one: Import, root: ProjectRoot, result: Result, *, update: bool) -> Work:
    """Compare the records with what was done before and with what lies in the project."""
    done = one.ledger.done()
    known = [record for record in one.prepared.records if one.key(record) in done]
    updates = _sort_known(one, root, result, known, update=update)
    create: list[Record] = []
    adopted: list[Done] = []
    for record in one.prepared.records:
        if one.key(record) in done:
            continue
        try:
            found = look_for(root, one.model, record, partial(_original, one, record))
        except MaadError as error:
            result.left_out.append(misfit_of(record.item.key, error))
            continue
        if found is None:
            create.append(record)
        elif found.state == "same":
            result.found += 1
            adopted.append(_done(one, record, found.content_hash))
        else:
            reason = f"{found.path} is there already and says something else"
            result.left_out.append(Misfit(record.item.key, reason, _OCCUPIED))
    free = _free(one, root, result, create)
    present = {one.key(record) for record in one.prepared.records}
    present.update(misfit.source for misfit in one.prepared.misfits)
    present.update(one.prepared.assigned.left_out)
    result.gone = sorted(key for key in done if key not in present)
    one.ledger.add(adopted)
    return Work(tuple(free), tuple(updates))


def _sort_known(
    one: Import, root: ProjectRoot, result: Result, records: Sequence[Record], *, update: bool
) -> list[tuple[Record, Done]]:
    """What was imported before: the records to make anew, the rest is noted."""
    done = one.ledger.done()
    updates: list[tuple[Record, Done]] = []
    there: list[Record] = []
    for record in records:
        fault = _moved(one, record, done[one.key(record)])
        if fault is None:
            there.append(record)
        else:
            result.left_out.append(fault)
    lost = lost_records(root, one.model, there)
    for record in there:
        before = done[one.key(record)]
        remade = bool(before.made) and before.made != one.made(record)
        if record.doc_id in lost:
            result.deleted.append(record.item.key)
        elif before.digest == record.item.digest and not remade:
            result.unchanged += 1
        elif update:
            fault = _refusal(one, record)
            if fault is None:
                updates.append((record, before))
            else:
                result.left_out.append(fault)
        elif before.digest != record.item.digest:
            result.changed.append(record.item.key)
        else:
            result.remade.append(record.item.key)
    return updates


def _moved(one: Import, record: Record, before: Done) -> Misfit | None:
    """Why an imported item cannot be what the plan says: a record keeps its type and id."""
    if before.doc_type and before.doc_type != record.doc_type:
        reason = (
            f"it was imported as a {before.doc_type}, and the plan makes it a {record.doc_type}"
        )
        return Misfit(record.item.key, reason, f"leave it to {before.doc_type} in the plan")
    wanted = one.plan.ids.get(record.item.key, before.doc_id)
    if wanted != before.doc_id:
        reason = f"it was imported as {before.doc_id}, and the plan gives it the id {wanted}"
        return Misfit(record.item.key, reason, "take it out of ids: a record keeps its id")
    return None


def _free(one: Import, root: ProjectRoot, result: Result, create: Sequence[Record]) -> list[Record]:
    """Those of the new records that the engine will take: their ids are free, and they can be
    written. The others are left out."""
    known = claims(root, [record.doc_id for record in create])
    free = []
    for record in create:
        claim = known.get(record.doc_id)
        advice = _OCCUPIED
        if (claim is not None and claim.deleted) or is_tombstoned(root, one.model, record):
            reason = f"a deleted record holds the id {record.doc_id}"
        elif claim is not None and root.exists(claim.path):
            reason = f"{claim.path} has the id {record.doc_id} already"
        elif claim is not None:
            reason = f"the index holds {record.doc_id}, whose file is gone"
            advice = "run `maad reindex`, then the import again"
        else:
            fault = _refusal(one, record)
            if fault is None:
                free.append(record)
            else:
                result.left_out.append(fault)
            continue
        result.left_out.append(Misfit(record.item.key, reason, advice))
    return free


def _refusal(one: Import, record: Record) -> Misfit | None:
    try:
        original = _original(one, record)
    except MaadError as error:
        return misfit_of(record.item.key, error)
    return rehearse(record, original, one.model, one.max_bytes)


def refuse_read_only(project: OneShot) -> None:
    """PROJECT_READ_ONLY before the types of a plan are written to a project without writes."""
    if project.call("maad_health", {})["readOnly"]:
        raise MaadError(
            "PROJECT_READ_ONLY",
            "the project takes no writes (history mode read); give it another history mode, then "
            "run the import again",
        )


def carry_out(
    one: Import, work: Work, project: OneShot, result: Result, progress: Callable[[int], None]
) -> None:
    """Write the records; each chunk is one commit and is noted before the next one begins.

    `progress` is told how many records are dealt with. Raises MaadErrors when a whole call
    fails, and the MaadError of a record that did not fail by itself, such as a full disk: what
    was stored before it stays stored and noted.
    """
    through = 0
    for records in _chunks(one, work.create):
        made = [(record, call) for record in records if (call := _creation(one, record, result))]
        for data, part in _calls(project, "maad_bulk_create", "records", made):
            result.created += _take(one, data, part, result)
        through += len(records)
        progress(through)
    before = {record.doc_id: done for record, done in work.update}
    for records in _chunks(one, [record for record, _ in work.update]):
        made = [
            (record, call)
            for record in records
            if (call := _renewal(one, record, before[record.doc_id], result))
        ]
        for data, part in _calls(project, "maad_bulk_update", "updates", made):
            result.updated += _take(one, data, part, result)
        through += len(records)
        progress(through)


def _chunks(one: Import, records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Records for one call each: bounded in number, and in the size of what they came from."""
    chunk: list[Record] = []
    size = 0
    for record in records:
        chunk.append(record)
        size += record.item.size
        if len(chunk) == _CHUNK_RECORDS or size >= _CHUNK_CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


_Call = tuple[Record, dict[str, Any]]


def _calls(
    project: OneShot, tool: str, member: str, made: Sequence[_Call]
) -> Iterator[tuple[dict[str, Any], Sequence[_Call]]]:
    """The answers of a bulk tool; smaller calls where the project takes only so many items."""
    if not made:
        return
    limit = len(made)
    try:
        yield project.call(tool, {member: [call for _, call in made]}), made
        return
    except MaadErrors as failure:
        [*errors] = errors_of(failure)
        limits = [error.details for error in errors if error.code == "BULK_LIMIT_EXCEEDED"]
        if not limits or limits[0] is None or limits[0]["limit"] >= limit:
            raise
        limit = limits[0]["limit"]
    for start in range(0, len(made), limit):
        part = made[start : start + limit]
        yield project.call(tool, {member: [call for _, call in part]}), part


def _creation(one: Import, record: Record, result: Result) -> dict[str, Any] | None:
    call = {"docType": record.doc_type, "docId": record.doc_id, "fields": record.fields}
    return _with_text(one, record, call, result)


def _renewal(one: Import, record: Record, before: Done, result: Result) -> dict[str, Any] | None:
    call: dict[str, Any] = {
        "docId": before.doc_id,
        "fields": record.fields,
        "expectedHash": before.content_hash,
    }
    if one.source.kind != "markdown":
        if one.plan.types[record.doc_type].body is not None:
            # An empty cell is an empty body, unlike a table without such a column.
            record = msgspec.structs.replace(record, body=record.body or "")
        else:
            schema = one.model.schema(record.doc_type)
            absent = [name for name in schema.fields if name not in record.fields]
            call["unsetFields"] = [name for name in absent if name not in schema.required]
    return _with_text(one, record, call, result)


def _with_text(
    one: Import, record: Record, call: dict[str, Any], result: Result
) -> dict[str, Any] | None:
    """The call with the text of the item; None when that can no longer be read."""
    try:
        original = _original(one, record)
    except MaadError as error:
        result.left_out.append(misfit_of(record.item.key, error))
        return None
    if original is not None:
        call["original"] = original
    elif one.source.kind == "markdown":
        call["body"] = ""
    return call


def _original(one: Import, record: Record) -> str | None:
    return original_text(record, one.source, one.plan, one.prepared.assigned.targets)


def _take(one: Import, data: Mapping[str, Any], part: Sequence[_Call], result: Result) -> int:
    """Note what a call has stored, and why it has not stored the rest."""
    stored = [
        _done(one, part[entry["index"]][0], entry["contentHash"]) for entry in data["succeeded"]
    ]
    one.ledger.add(stored)
    for entry in data["failed"]:
        record = part[entry["index"]][0]
        if not is_of_item(entry):
            result.created += len(stored)
            raise MaadError(entry["code"], entry["error"].partition(": ")[2], entry.get("details"))
        if entry["code"] == "FILE_NOT_FOUND":
            result.deleted.append(record.item.key)
            continue
        reason, _, next_step = entry["error"].partition(": ")[2].partition("; ")
        if entry["code"] == "VERSION_CONFLICT":
            reason, next_step = f"{record.doc_id} was edited here since it was imported", _EDITED
        elif entry["code"] == "DUPLICATE_DOC_ID":
            next_step = _OCCUPIED
        advice = next_step or "correct it at the source, or name it under leave_out in the plan"
        result.left_out.append(Misfit(record.item.key, reason, advice, record.item.line))
    for mismatch in data["verification"]["mismatches"]:
        reason = f"{mismatch['field']} of {mismatch['docId']} does not read back as written"
        result.left_out.append(Misfit(mismatch["docId"], reason, "compare the two by hand"))
    with contextlib.suppress(KeyError):
        result.commit_failures.append(data["commitFailure"]["message"])
    return len(stored)


def _done(one: Import, record: Record, content_hash: str) -> Done:
    return Done(
        one.key(record),
        record.item.digest,
        record.doc_id,
        content_hash,
        record.doc_type,
        one.made(record),
    )
