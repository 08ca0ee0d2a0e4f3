"""Writes of records: from the calls that wait to their replies, the history step between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from maadd.protocol.errors import MaadError, MaadErrors
from maadd.protocol.messages import Call, Reply, WorkerConfig
from maadd_worker.disk.journal import Journal
from maadd_worker.failpoints import reach
from maadd_worker.gate import Gate
from maadd_worker.history.controller import HistoryController
from maadd_worker.history.outcome import HistoryOutcome
from maadd_worker.replies import failure_reply
from maadd_worker.write.admission import Admission, now_ms
from maadd_worker.write.answer import (
    bulk_reply,
    expected_answer,
    replay_reply,
    stored_answer,
    write_reply,
)
from maadd_worker.write.bulk.tools import run_bulk
from maadd_worker.write.context import Plan, WriteContext
from maadd_worker.write.group import Execution, execute_group
from maadd_worker.write.idempotency import AnswerStore, StoredAnswer
from maadd_worker.write.planner import Member, next_group

Refused = Mapping[str, tuple[MaadError, ...]]
"""Types that take no writes, because their schema cannot be loaded, and why."""


class RecordWrites:
    """The writer thread's way with records.

    `surroundings` gives what a group runs with; `finish` takes note of each write that is done.
    A read-only project has no `journal`, and no write comes here.
    """

    def __init__(
        self,
        journal: Journal | None,
        history: HistoryController,
        config: WorkerConfig,
        surroundings: Callable[[], tuple[WriteContext, Refused]],
        finish: Callable[[Execution, HistoryOutcome], None],
    ) -> None:
        self._journal = journal
        self._history = history
        self._settings = config.settings
        self._mode = config.history.effective_mode
        self._surroundings = surroundings
        self._finish = finish

    def group(self, waiting: deque[Call], gate: Gate, deliver: Callable[[Reply], None]) -> None:
        """Take the next writes that can be done together from `waiting`, and do them."""
        admission = self._admission(gate, deliver)
        members = next_group(admission, waiting)
        if not members:
            return
        assert self._journal is not None

        def keep_answers(done: Sequence[Execution]) -> None:
            for member, one in zip(members, done, strict=True):
                if member.scope is not None and not one.errors:
                    admission.answers.store(
                        member.scope,
                        member.call.request_id,
                        now_ms(),
                        stored_answer(one),
                        [one.plan.doc_id],
                    )

        expected = [expected_answer(one.call, one.scope, one.plan) for one in members]
        plans = [member.plan for member in members]
        done = execute_group(
            admission.context, self._journal, plans, keep_answers, expected=expected
        )
        self._answer(members, done, deliver, admission.answers)

    def planned(
        self, call: Call, context: WriteContext, plan: Plan, deliver: Callable[[Reply], None]
    ) -> None:
        """Do a write that is planned and admitted already."""
        assert self._journal is not None
        done = execute_group(context, self._journal, [plan], lambda _done: None)
        self._answer([Member(call, plan, None)], done, deliver, self._answers(context))

    def bulk(self, call: Call, gate: Gate, deliver: Callable[[Reply], None]) -> None:
        """Do a write of many records, or a preview of one."""
        assert self._journal is not None
        admission = self._admission(gate, deliver)
        end = run_bulk(admission, self._journal, call)
        if end is None:
            return
        outcome = HistoryOutcome("none")
        if end.request is not None:
            [outcome] = self._history.commit([end.request])
        if end.scope is not None and outcome.sha is not None:
            admission.answers.note_commits([(end.scope, outcome.sha)])
        for one in end.done:
            self._finish(one, outcome)
        reach("reply.ready")
        deliver(bulk_reply(call, end, outcome, self._history.pending_writes, self._mode))
        reach("reply.sent")

    def _admission(self, gate: Gate, deliver: Callable[[Reply], None]) -> Admission:
        context, refused = self._surroundings()
        answers = self._answers(context)
        return Admission(context, answers, refused, gate.admit, deliver, self._replay)

    def _answers(self, context: WriteContext) -> AnswerStore:
        settings = self._settings
        return AnswerStore(context.writer, settings.idempotency_ttl_ms, settings.idempotency_max)

    def _answer(
        self,
        members: list[Member],
        done: list[Execution],
        deliver: Callable[[Reply], None],
        answers: AnswerStore,
    ) -> None:
        """The history step of what is in the index, then every reply."""
        requests = [
            msgspec.structs.replace(one.plan.commit, journal_ids=(one.journal_id,))
            for one in done
            if one.change is not None and one.journal_id is not None
        ]
        steps = iter(self._history.commit(requests) if requests else [])
        outcomes = [
            next(steps) if one.change is not None else HistoryOutcome("none") for one in done
        ]
        answers.note_commits(
            [
                (member.scope, outcome.sha)
                for member, outcome in zip(members, outcomes, strict=True)
                if member.scope is not None and outcome.sha is not None
            ]
        )
        pending = self._history.pending_writes
        for member, one, outcome in zip(members, done, outcomes, strict=True):
            if one.errors:
                deliver(failure_reply(member.call.request_id, MaadErrors(list(one.errors))))
                continue
            self._finish(one, outcome)
            reach("reply.ready")
            deliver(write_reply(member.call, one, outcome, pending, self._mode))
            reach("reply.sent")

    def _replay(self, call: Call, stored: StoredAnswer) -> Reply:
        outcome = self._history.outcome_of(stored.journal_ids)
        if outcome.outcome == "committed" and outcome.sha is None:
            outcome = msgspec.structs.replace(outcome, sha=stored.sha)
        return replay_reply(
            call,
            stored,
            outcome,
            self._history.pending_writes,
            self._mode,
        )
