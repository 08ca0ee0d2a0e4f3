"""A bulk call as one logical write of many plans (spec 03 §4.4, §5.2).

Items are planned in order and carried out together: one durable journal transaction, one sync
of each folder, one index transaction, one commit. Only a call that names a record twice is
carried out in several parts, because the second change is made on top of the first. A failed
item never stops the others, unless the call is atomic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from maadd.protocol.errors import MaadError, MaadErrors, errors_of
from maadd.protocol.messages import Call
from maadd_worker.disk.journal import Journal, new_entry_id
from maadd_worker.history.outcome import CommitRequest
from maadd_worker.outcome import Advice
from maadd_worker.write.admission import Admission, now_ms
from maadd_worker.write.bulk_commit import BulkMark, combine
from maadd_worker.write.context import Plan, WriteContext
from maadd_worker.write.expected import LOST, Expectation, ExpectedAnswer
from maadd_worker.write.group import Execution, execute_group
from maadd_worker.write.idempotency import KeyScope, StoredAnswer

_encode = msgspec.json.encode


class NoPlan(msgspec.Struct, frozen=True):
    """An item that will not be written: for its `errors`, or because nothing is to do."""

    doc_id: str | None
    errors: tuple[MaadError, ...] = ()


class Item(msgspec.Struct, frozen=True):
    """One item of a call; `plan` gets the ids that earlier items are about to take.

    `after` is the record that has to be up to date before the item can be planned.
    """

    plan: Callable[[set[str]], Plan | NoPlan]
    after: str | None = None


class ItemEnd(msgspec.Struct, frozen=True):
    """What became of an item: `errors`, or `done`, or neither when nothing was to do."""

    index: int
    doc_id: str | None
    errors: tuple[MaadError, ...] = ()
    done: Execution | None = None


class Report(msgspec.Struct, frozen=True):
    """The answer of a bulk call without its durability; `rows` as in `Reply`."""

    data: dict[str, Any]
    warnings: tuple[Advice, ...] = ()
    rows: int | None = None


class BulkWork(msgspec.Struct, frozen=True):
    """A call whose arguments are checked. `report` runs inside the last index transaction;
    `expected` makes the same of items that are only planned, where that is another thing."""

    mark: BulkMark
    items: Sequence[Item]
    report: Callable[[Sequence[ItemEnd]], Report]
    expected: Callable[[Sequence[ItemEnd]], Report] | None = None


class BulkEnd(msgspec.Struct, frozen=True):
    """A call that was carried out; `request` is its history step, None when no byte changed, and
    `scope` its key, if it has one."""

    report: Report
    done: tuple[Execution, ...]
    request: CommitRequest | None
    scope: KeyScope | None


def new_mark(detail: str, outcome: str, *, atomic: bool = False) -> BulkMark:
    """The mark of a new bulk call."""
    return BulkMark(new_entry_id(), detail, outcome, atomic)


def planned(doc_id: str | None, make: Callable[[], Plan]) -> Plan | NoPlan:
    """The plan, or why there is none."""
    try:
        return make()
    except (MaadError, MaadErrors) as failure:
        return NoPlan(doc_id, tuple(errors_of(failure)))


def carry_out(
    admission: Admission, journal: Journal, work: BulkWork, call: Call, scope: KeyScope | None
) -> BulkEnd | None:
    """Plan and write the items; None when the call was withdrawn before anything was written.

    The answer is stored under `scope` in the transaction that indexes the records. An atomic
    call whose items cannot all be written raises MaadErrors, and nothing of it stays.
    """
    run = _Run(admission.context, journal, work.mark)

    def expectations() -> list[Expectation]:
        if scope is None:
            return []
        report = (work.expected or work.report)(run.expected_ends(work.items))
        return run.expectations(_expected(report, scope, call))

    for index, item in enumerate(work.items):
        if item.after is not None and item.after in run.claimed:
            if not admission.admit(call.request_id):
                return None
            run.write(_nothing, expectations())
        run.plan(index, item)
    if work.mark.atomic:
        run.refuse_incomplete()
    if not admission.admit(call.request_id):
        return None

    reports: list[Report] = []

    def before_commit(done: Sequence[Execution]) -> None:
        report = work.report(run.ends(done))
        reports.append(report)
        if scope is not None:
            answer = _stored(report, run.executions(done))
            doc_ids = [one.plan.doc_id for one in run.executions(done)]
            admission.answers.store(scope, call.request_id, now_ms(), answer, doc_ids)

    if not run.write(before_commit, expectations()):
        # The transaction was undone or never came to its end.
        reports.append(work.report(run.ends(())))
    if work.mark.atomic:
        run.refuse_incomplete()
    done = run.executions(())
    return BulkEnd(reports[-1], done, _request(work.mark, done), scope)


class _Run:
    """The items of a call on their way; `claimed` are the ids of those not yet written."""

    def __init__(self, context: WriteContext, journal: Journal, mark: BulkMark) -> None:
        self.claimed: set[str] = set()
        self._context = context
        self._journal = journal
        self._mark = mark
        self._ends: dict[int, ItemEnd] = {}
        self._waiting: list[tuple[int, Plan]] = []

    def plan(self, index: int, item: Item) -> None:
        plan = item.plan(self.claimed)
        if isinstance(plan, NoPlan):
            self._ends[index] = ItemEnd(index, plan.doc_id, plan.errors)
        else:
            self._waiting.append((index, plan))
            self.claimed.add(plan.doc_id)

    def expected_ends(self, items: Sequence[Item]) -> list[ItemEnd]:
        """Every item as if what waits were done, and what is not planned yet were lost."""
        planned = self.ends([Execution(plan) for _, plan in self._waiting])
        ends = {index: ItemEnd(index, item.after, (LOST,)) for index, item in enumerate(items)}
        return list((ends | {end.index: end for end in planned}).values())

    def expectations(self, answer: ExpectedAnswer) -> list[Expectation]:
        """What the journal keeps for what waits."""
        first = next((index for index, plan in self._waiting if plan.change is not None), None)
        return [
            Expectation(index, answer if index == first else None) for index, _ in self._waiting
        ]

    def write(
        self,
        before_commit: Callable[[Sequence[Execution]], None],
        expected: Sequence[Expectation],
    ) -> bool:
        """Carry out what waits; False when that ended otherwise than `before_commit` saw it."""
        committed = False

        def note(done: Sequence[Execution]) -> None:
            nonlocal committed
            before_commit(done)
            committed = True

        plans = [plan for _, plan in self._waiting]
        done = execute_group(self._context, self._journal, plans, note, self._mark, expected)
        committed = committed and (not plans or not all(one.errors for one in done))
        self._ends.update((end.index, end) for end in self._executed(done))
        self._waiting.clear()
        self.claimed.clear()
        return committed

    def ends(self, running: Sequence[Execution]) -> list[ItemEnd]:
        """Every item in order, with those that are being carried out."""
        ends = self._ends | {end.index: end for end in self._executed(running)}
        return [ends[index] for index in sorted(ends)]

    def executions(self, running: Sequence[Execution]) -> tuple[Execution, ...]:
        """What was written, in order of the items."""
        return tuple(
            end.done for end in self.ends(running) if end.done is not None and not end.errors
        )

    def refuse_incomplete(self) -> None:
        """Raise the errors of all items of an atomic call, if there are any."""
        errors: dict[tuple[object, str, str], MaadError] = {}
        for end in self.ends(()):
            for error in end.errors:
                details = error.details or {}
                if end.done is None:
                    details = {**details, "index": end.index, "docId": end.doc_id}
                    error = MaadError(error.code, error.message, details)
                # All records share the failure of one; a file that stayed has its own.
                alone = end.done is None or details.get("fileWritten") is True
                key = (end.index if alone else None, error.code, error.message)
                errors.setdefault(key, error)
        if errors:
            raise MaadErrors(list(errors.values()))

    def _executed(self, running: Sequence[Execution]) -> list[ItemEnd]:
        return [
            ItemEnd(index, plan.doc_id, one.errors, one)
            for (index, plan), one in zip(self._waiting, running, strict=False)
        ]


def _request(mark: BulkMark, done: Sequence[Execution]) -> CommitRequest | None:
    parts = [
        msgspec.structs.replace(one.plan.commit, journal_ids=(one.journal_id,))
        for one in done
        if one.change is not None and one.journal_id is not None
    ]
    return combine(mark, parts) if parts else None


def _expected(report: Report, scope: KeyScope, call: Call) -> ExpectedAnswer:
    return ExpectedAnswer(
        scope,
        call.request_id,
        msgspec.Raw(_encode(report.data)),
        [msgspec.to_builtins(warning) for warning in report.warnings],
    )


def _stored(report: Report, done: Sequence[Execution]) -> StoredAnswer:
    return StoredAnswer(
        data=msgspec.Raw(_encode(report.data)),
        warnings=[msgspec.to_builtins(warning) for warning in report.warnings],
        journal_ids=[one.journal_id for one in done if one.journal_id is not None],
    )


def _nothing(_: Sequence[Execution]) -> None:
    """A part of a call that is not its last has nothing to report."""
