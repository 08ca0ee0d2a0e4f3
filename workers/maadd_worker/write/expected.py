"""The answer that a call with an idempotency key will have once its writes are in the index.

It waits in the journal beside the intents. When a process dies between the files and the index,
the next start finds the bytes on the disk and gives the key the answer that is true of them, so
that a repeated call does nothing twice (spec 03 §8).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.disk.journal import JournalEntry
from maadd_worker.index.writer import IndexWriter
from maadd_worker.write.bulk_commit import mark_of
from maadd_worker.write.idempotency import AnswerStore, KeyScope, StoredAnswer

LOST = MaadError(
    "WORKER_LOST",
    "the worker stopped before this record was written; nothing of it was",
    {"writeOutcome": "not_published"},
)


class ExpectedAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """As if every write of the call that is planned by now succeeded; versions are those of
    before."""

    scope: KeyScope
    request_id: str
    data: msgspec.Raw
    warnings: list[dict[str, Any]]


class Expectation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a journal entry knows of its call: the number of its item, if it is a bulk call, and
    the answer, which of a bulk call only the first entry of each part has."""

    item: int | None = None
    answer: ExpectedAnswer | None = None


class _Kept(msgspec.Struct, frozen=True):
    expected: Expectation | None = None


_kept = msgspec.json.Decoder(_Kept)


def with_expectation(stored: str, expectation: Expectation | None) -> str:
    """The text that a journal entry keeps of its commit request, and the expectation in it."""
    if expectation is None:
        return stored
    return msgspec.json.encode({**msgspec.json.decode(stored), "expected": expectation}).decode()


def recover_answers(
    entries: Sequence[JournalEntry],
    published: Set[str],
    writer: IndexWriter,
    answers: AnswerStore,
    now_ms: int,
) -> None:
    """Store the answers of calls whose process died before it had; `published` are the ids of
    the entries whose writes were done. Call outside a transaction, once the index is right."""
    calls: dict[str, list[tuple[JournalEntry, Expectation]]] = {}
    for entry in entries:
        expectation = _expectation_of(entry)
        if expectation is not None and entry.status != "indexed":
            mark = mark_of(entry)
            calls.setdefault(entry.id if mark is None else mark.id, []).append((entry, expectation))
    with writer.transaction():
        for members in calls.values():
            _recover_answer(members, published, writer, answers, now_ms)


def _recover_answer(
    members: Sequence[tuple[JournalEntry, Expectation]],
    published: Set[str],
    writer: IndexWriter,
    answers: AnswerStore,
    now_ms: int,
) -> None:
    answer = next((one.answer for _, one in reversed(members) if one.answer is not None), None)
    landed = [entry for entry, _ in members if entry.id in published]
    if answer is None or not landed or answers.holds(answer.scope, now_ms):
        return
    if any(entry.op != "delete" and writer.find(entry.doc_id, True) is None for entry in landed):
        return  # answered long ago, and forgotten with a record that was deleted for good
    data = msgspec.json.decode(answer.data)
    lost = [(entry, one) for entry, one in members if entry.id not in published]
    _correct(data, lost, writer)
    stored = StoredAnswer(
        msgspec.Raw(msgspec.json.encode(data)), answer.warnings, [entry.id for entry in landed]
    )
    doc_ids = [entry.doc_id for entry in landed]
    answers.store(answer.scope, answer.request_id, now_ms, stored, doc_ids)


def _correct(
    data: dict[str, Any],
    lost: Sequence[tuple[JournalEntry, Expectation]],
    writer: IndexWriter,
) -> None:
    """Make expected data true: the versions, and what of a bulk call was not written."""
    items = data.get("succeeded", data.get("purged"))
    if items is None:
        _set_row(data, writer)
        return
    numbers = {one.item for _, one in lost}
    doc_ids = {entry.doc_id for entry, _ in lost}
    kept: list[dict[str, Any]] = []
    for item in items:
        if item["index"] in numbers if "index" in item else item["docId"] in doc_ids:
            data["failed"] += _failures(item)
        else:
            _set_row(item, writer)
            kept.append(item)
    items[:] = kept


def _set_row(item: dict[str, Any], writer: IndexWriter) -> None:
    row = writer.find(item["docId"]) if "version" in item else None
    if row is not None:
        item["version"] = row.version
        if "filePath" in item:
            item["filePath"] = row.file_path


def _failures(item: dict[str, Any]) -> list[dict[str, Any]]:
    """The entries of `failed` for an item that was expected to succeed."""
    doc_id = item["docId"]
    if "appliedRepairs" in item:
        return [
            {
                "docId": doc_id,
                "strategy": one["strategy"],
                "code": LOST.code,
                "message": LOST.message,
            }
            for one in item["appliedRepairs"]
        ]
    view = {
        "docId": doc_id,
        "code": LOST.code,
        "error": f"{LOST.code}: {LOST.message}",
        "details": LOST.details,
    }
    return [{"index": item["index"], **view} if "index" in item else view]


def _expectation_of(entry: JournalEntry) -> Expectation | None:
    if entry.commit is None or '"expected":' not in entry.commit:
        return None
    try:
        return _kept.decode(entry.commit).expected
    except msgspec.MsgspecError:
        return None
