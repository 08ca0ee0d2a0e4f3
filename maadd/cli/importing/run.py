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
from maadd_worker.imports.existing import (
    claims,
    is_tombstoned,
    look_for,
    lost_records,
    places,
)
from maadd_worker.imports.ledger import Done, Ledger
from maadd_worker.imports.plan import ImportPlan
from maadd_worker.imports.prepare import Prepared, Record, original_text
from maadd_worker.imports.rehearse import rehearse, written
from maadd_worker.imports.source import Misfit, Source, misfit_of
from maadd_worker.markdown.frontmatter import content_hash
from maadd_worker.schema.model import Model

_CHUNK_RECORDS = 1000
_CHUNK_CHARACTERS = 8_000_000
"""One call is one commit: most imports are one, and none holds the writer for minutes."""

_Call = tuple[Record, dict[str, Any]]

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
    due = {
        record.doc_id
        for record in there
        if record.doc_id not in lost and _is_due(one, record, done[one.key(record)])
    }
    paths = places(root, one.model, [record for record in there if record.doc_id in due])
    made: list[Done] = []
    for record in there:
        before = done[one.key(record)]
        if record.doc_id in lost:
            result.deleted.append(record.item.key)
        elif record.doc_id not in due:
            result.unchanged += 1
        elif there_already := _made_already(one, root, record, before, paths.get(record.doc_id)):
            result.unchanged += 1
            made.append(there_already)
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
    one.ledger.add(made)
    return updates


def _is_due(one: Import, record: Record, before: Done) -> bool:
    """Whether the item, or what the plan makes of it, is another than when it was imported."""
    remade = bool(before.made) and before.made != one.made(record)
    return remade or before.digest != record.item.digest


def _made_already(
    one: Import, root: ProjectRoot, record: Record, before: Done, path: str | None
) -> Done | None:
    """The record as it lies at `path`, when that is what the import would make of it now: by a
    run that was cut short, or by hand."""
    if path is None:
        return None
    try:
        data = root.read(path).data
        if content_hash(data) == before.content_hash:
            return None
        if _outcome(one, record, _renewal(one, record, before), data) != data:
            return None
    except (MaadError, MaadErrors):
        # What cannot be read or written is told where it is needed.
        return None
    return _done(one, record, content_hash(data))


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


def finish_interrupted(one: Import, project: OneShot) -> None:
    """End what a run was at when it was cut short: the engine, once open, has indexed and stored
    in the history what is on the disk of it."""
    project.call("maad_health", {})
    one.ledger.settle()


def carry_out(
    one: Import,
    work: Work,
    project: OneShot,
    root: ProjectRoot,
    result: Result,
    progress: Callable[[int], None],
) -> None:
    """Write the records; each chunk is one commit and is noted before the next one begins.

    `progress` is told how many records are dealt with. Raises MaadErrors when a whole call
    fails, and the MaadError of a record that did not fail by itself, such as a full disk: what
    was stored before it stays stored and noted.
    """
    through = 0
    for records in _chunks(one, work.create):
        made = _made(records, partial(_creation, one), result)
        intended = _intend(one, root, made, {})
        for data, part in _calls(project, "maad_bulk_create", "records", made):
            result.created += _take(one, data, part, intended, result)
        one.ledger.settle()
        through += len(records)
        progress(through)
    before = {record.doc_id: done for record, done in work.update}
    for records in _chunks(one, [record for record, _ in work.update]):
        made = _made(records, lambda one_: _renewal(one, one_, before[one_.doc_id]), result)
        intended = _intend(one, root, made, places(root, one.model, records))
        for data, part in _calls(project, "maad_bulk_update", "updates", made):
            result.updated += _take(one, data, part, intended, result)
        one.ledger.settle()
        through += len(records)
        progress(through)


def _made(
    records: Sequence[Record], call: Callable[[Record], dict[str, Any]], result: Result
) -> list[_Call]:
    """The records with their calls; those whose text can no longer be read are left out."""
    made: list[_Call] = []
    for record in records:
        try:
            made.append((record, call(record)))
        except MaadError as error:
            result.left_out.append(misfit_of(record.item.key, error))
    return made


def _intend(
    one: Import, root: ProjectRoot, made: Sequence[_Call], paths: Mapping[str, str]
) -> dict[str, Done]:
    """Note a portion as it will be; its entries by id. `paths` are those of records that are
    written over."""
    intended: dict[str, Done] = {}
    for record, call in made:
        path = paths.get(record.doc_id)
        try:
            stored = None if path is None else root.read(path).data
            data = _outcome(one, record, call, stored)
        except (MaadError, MaadErrors):
            # The engine will refuse the record too, and say why.
            continue
        intended[record.doc_id] = _done(one, record, content_hash(data))
    if made:
        one.ledger.intend(intended.values())
    return intended


def _outcome(one: Import, record: Record, call: Mapping[str, Any], stored: bytes | None) -> bytes:
    """What the file of a record will hold after its call."""
    return written(
        record,
        call.get("original"),
        one.model,
        body=call.get("body"),
        stored=stored,
        unset=call.get("unsetFields", ()),
    )


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


def _creation(one: Import, record: Record) -> dict[str, Any]:
    call = {"docType": record.doc_type, "docId": record.doc_id, "fields": record.fields}
    return _with_text(one, record, call)


def _renewal(one: Import, record: Record, before: Done) -> dict[str, Any]:
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
    return _with_text(one, record, call)


def _with_text(one: Import, record: Record, call: dict[str, Any]) -> dict[str, Any]:
    """The call with the text of the item; raises MaadError when that can no longer be read."""
    original = _original(one, record)
    if original is not None:
        call["original"] = original
    elif one.source.kind == "markdown":
        call["body"] = ""
    return call


def _original(one: Import, record: Record) -> str | None:
    return original_text(record, one.source, one.plan, one.prepared.assigned.targets)


def _take(
    one: Import,
    data: Mapping[str, Any],
    part: Sequence[_Call],
    intended: Mapping[str, Done],
    result: Result,
) -> int:
    """Note what a call has stored, and why it has not stored the rest."""
    stored = [
        _done(one, part[entry["index"]][0], entry["contentHash"]) for entry in data["succeeded"]
    ]
    for entry in data["failed"]:
        entered = intended.get(part[entry["index"]][0].doc_id)
        found = (entry.get("details") or {}).get("actualHash")
        if entered is not None and found == entered.content_hash:
            # A server has gone on with the call of a run that was cut short.
            stored.append(entered)
    one.ledger.add(stored)
    settled = {done.doc_id for done in stored}
    for entry in data["failed"]:
        if part[entry["index"]][0].doc_id in settled:
            continue
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
