"""Mode `audit`: one commit for each logical write, made before its answer (spec 03 §7.3)."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from maadd_worker.disk.journal import JournalEntry
from maadd_worker.history.command import TIMEOUT_S
from maadd_worker.history.committer import Committer
from maadd_worker.history.deferred import combine, joined
from maadd_worker.history.outcome import CommitRequest, GitFailure, HistoryOutcome
from maadd_worker.history.pending import PendingCommits
from maadd_worker.history.policy import Flush, failed_outcome, text_of_unexpected
from maadd_worker.history.recovery import paths_of, requests_of
from maadd_worker.history.report import HistoryReport
from maadd_worker.history.retry import LOCK_POLL_S
from maadd_worker.history.store import Committed


class AuditPolicy:
    """See Policy. A commit that fails is retried by itself, each write in its own commit."""

    def __init__(self, committer: Committer, report: HistoryReport) -> None:
        self._committer = committer
        self._report = report
        self._pending = PendingCommits()

    @property
    def pending_writes(self) -> int:
        return self._pending.count

    @property
    def pending_paths(self) -> set[str]:
        return {path for request in self._pending.requests for path in request.paths}

    @property
    def oldest_pending(self) -> str | None:
        ids = (entry for request in self._pending.requests for entry in request.journal_ids)
        return next(ids, None)

    @property
    def next_attempt(self) -> float | None:
        return self._pending.retry.due if self._pending.requests else None

    def commit(self, requests: Sequence[CommitRequest]) -> list[HistoryOutcome]:
        results = self._attempt(requests, "write", first_time=True, patient=True)
        return [_outcome(*pair) for pair in zip(requests, results, strict=True)]

    def outcome_of(self, journal_ids: Collection[str]) -> HistoryOutcome:
        if self._waiting(journal_ids) is not None:
            self._attempt(self._pending.requests, "retry", first_time=False, patient=False)
        request = self._waiting(journal_ids)
        if request is None:
            return HistoryOutcome("committed")
        failure = self._pending.retry.failure
        assert failure is not None  # nothing is pending unless it failed
        return failed_outcome(request, failure)

    def _waiting(self, journal_ids: Collection[str]) -> CommitRequest | None:
        """The pending request that one of the journal entries belongs to."""
        for request in self._pending.requests:
            if not set(request.journal_ids).isdisjoint(journal_ids):
                return request
        return None

    def settle(self) -> float | None:
        requests = self._pending.requests
        if not requests:
            return None
        held = self._committer.lock_is_held()
        remaining = self._pending.retry.seconds_left(lock_is_held=held)
        if remaining > 0:
            return remaining
        self._attempt(requests, "retry", first_time=False, patient=False)
        return LOCK_POLL_S if self._pending.requests else None

    def flush(self, trigger: str, *, patient: bool) -> Flush:
        waiting = self._pending.requests
        if not waiting:
            return Flush()
        results = self._attempt(waiting, trigger, first_time=False, patient=patient)
        failure = next((done.failure for done in results if done.failure), None)
        sha = next((done.sha for done in reversed(results) if done.sha), None)
        return Flush(sha, failure)

    def recover(self, entries: Sequence[JournalEntry]) -> GitFailure | None:
        """Each original write becomes one commit, unless HEAD has its content already."""
        held = [entry for entry in entries if entry.boundary_sha is not None]
        again = self._committer.undone(held)
        requests = [
            *again,
            *requests_of([entry for entry in entries if entry.boundary_sha is None]),
        ]
        kept = {entry for request in again for entry in request.journal_ids}
        self._committer.finish([entry.id for entry in held if entry.id not in kept])
        try:
            self._committer.refresh_index(paths_of((*requests_of(held), *requests)))
        except GitFailure as failure:
            results = [Committed(failure=failure) for _ in requests]
            self._record(requests, results, "recovery", len(requests))
        else:
            results = self._attempt(requests, "recovery", first_time=True, patient=False)
        return next((done.failure for done in results if done.failure), None)

    def flush_before(self, give_up: float) -> GitFailure | None:
        for request in self._pending.requests:
            remaining = give_up - time.monotonic()
            if remaining <= 0:
                break
            [result] = self._attempt(
                (request,), "shutdown", first_time=False, patient=False, timeout_s=remaining
            )
            if result.failure is not None:
                return result.failure
        return None

    def _attempt(
        self,
        requests: Sequence[CommitRequest],
        trigger: str,
        *,
        first_time: bool,
        patient: bool,
        timeout_s: float = TIMEOUT_S,
    ) -> list[Committed]:
        """Try to make some commits. Writes that are tried for the first time let those go
        ahead which only a lock has stopped, so that commits keep the order of the writes."""
        earlier: tuple[CommitRequest, ...] = ()
        try:
            self._committer.prepare(patient=patient)
            earlier = self._pending.ahead if first_time else ()
            results = self._commit((*earlier, *requests), timeout_s)
        except GitFailure as failure:
            results = [Committed(failure=failure)] * (len(earlier) + len(requests))
        except Exception as error:
            # Whatever it is, the writes stay pending and the writer goes on (spec 03 §9.3).
            unknown = GitFailure("GIT_UNKNOWN_ERROR", text_of_unexpected("commit", error))
            results = [Committed(failure=unknown)] * (len(earlier) + len(requests))
        new = len(requests) if first_time else 0
        self._record((*earlier, *requests), results, trigger, new)
        return results[len(earlier) :]

    def _commit(self, requests: Sequence[CommitRequest], timeout_s: float) -> list[Committed]:
        """One commit for each request, except for those that only the disk can tell the
        content of, where a later one has changed it: these share the one of the later."""
        groups = joined(requests)
        made = self._committer.commit([combine(group) for group in groups], timeout_s=timeout_s)
        result_of = {
            id(request): result
            for group, result in zip(groups, made, strict=True)
            for request in group
        }
        return [result_of[id(request)] for request in requests]

    def _record(
        self,
        requests: Sequence[CommitRequest],
        results: Sequence[Committed],
        trigger: str,
        new: int,
    ) -> None:
        failed: list[CommitRequest] = []
        written: set[str] = set()
        last: GitFailure | None = None
        for number, (request, result) in enumerate(zip(requests, results, strict=True)):
            if result.failure is not None:
                last = result.failure
                failed.append(request)
                first_time = number >= len(requests) - new
                self._report.commit_failed(request, last, first_time=first_time)
                continue
            self._committer.note_commit(request.journal_ids, result.sha)
            self._committer.finish(request.journal_ids)
            written.update(request.paths)
            if result.sha is not None:
                self._report.committed()
        self._pending.replace(requests, failed, last, written, is_retry=new == 0)
        if last is not None:
            self._report.flush_failed(last, trigger)
        elif not self._pending.requests:
            self._report.error(None)


def _outcome(request: CommitRequest, result: Committed) -> HistoryOutcome:
    if result.failure is not None:
        return failed_outcome(request, result.failure)
    outcome = "committed" if result.sha else "none"
    return HistoryOutcome(outcome, result.sha, skipped=result.skipped)
