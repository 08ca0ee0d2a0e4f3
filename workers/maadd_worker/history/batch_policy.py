"""Modes `batch` and `snapshot`: writes share a commit, made at a boundary (spec 03 §7.3).

The boundary is a number of writes, a delay since the oldest, a call, the close or a start;
in `snapshot` its commit gets an annotated tag.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Sequence

import msgspec

from maadd.protocol.errors import MaadError
from maadd.protocol.messages import HistorySettings, WorkerSettings
from maadd_worker.disk.journal import Journal, JournalEntry
from maadd_worker.failpoints import reach
from maadd_worker.history.command import TIMEOUT_S
from maadd_worker.history.committer import Committer
from maadd_worker.history.deferred import DeferredWrites, combine
from maadd_worker.history.message import WRITE_KEY
from maadd_worker.history.outcome import CommitRequest, GitFailure, HistoryOutcome
from maadd_worker.history.policy import Flush, failed_outcome, text_of_unexpected
from maadd_worker.history.recovery import paths_of, requests_of
from maadd_worker.history.report import HistoryReport
from maadd_worker.history.retry import RETRY_S, Retry
from maadd_worker.history.snapshot import SnapshotTags

_SHORTEST_S = 0.05


class _Boundary(msgspec.Struct, frozen=True):
    """A commit that holds deferred writes and still lacks its tag, or its note in the journal."""

    request: CommitRequest
    sha: str
    tag: str | None


class BatchPolicy:
    """See Policy. `tags` is None in mode `batch`."""

    def __init__(
        self,
        committer: Committer,
        journal: Journal,
        report: HistoryReport,
        history: HistorySettings,
        settings: WorkerSettings,
        tags: SnapshotTags | None,
    ) -> None:
        self._committer = committer
        self._journal = journal
        self._report = report
        self._tags = tags
        self._max_writes = history.max_writes
        self._delay_s = _delay_s(history, settings)
        self._deferred = DeferredWrites()
        self._boundaries: tuple[_Boundary, ...] = ()
        self._recovering = False
        self._retry = Retry(self._delay_s or RETRY_S)

    @property
    def pending_writes(self) -> int:
        held = sum(boundary.request.write_count for boundary in self._boundaries)
        return held + self._deferred.count

    @property
    def pending_paths(self) -> set[str]:
        return {path for request in self._deferred.requests for path in request.paths}

    @property
    def oldest_pending(self) -> str | None:
        requests = [boundary.request for boundary in self._boundaries]
        ids = (
            entry
            for request in (*requests, *self._deferred.requests[:1])
            for entry in request.journal_ids
        )
        return next(ids, None)

    @property
    def next_attempt(self) -> float | None:
        if not self.pending_writes:
            return None
        if self._retry.failure is not None:
            return self._retry.due
        return None if self._delay_s is None else self._deferred.since + self._delay_s

    # Writes

    def commit(self, requests: Sequence[CommitRequest]) -> list[HistoryOutcome]:
        """Defer the writes. One that reaches the threshold is answered with what became of the
        flush, the others are pending."""
        try:
            self._journal.mark([entry for one in requests for entry in one.journal_ids], "indexed")
        except MaadError as failure:
            # The entries are there, and a start finds out by itself that they are indexed.
            self._report.error(GitFailure("HISTORY_FLUSH_FAILED", failure.message), "write")
        return [self._defer(request) for request in requests]

    def _defer(self, request: CommitRequest) -> HistoryOutcome:
        self._deferred.append(request)
        if self._max_writes is None or self.pending_writes < self._max_writes:
            return HistoryOutcome("pending")
        last = self._retry.failure
        if last is not None and last.timed_out and time.monotonic() < self._retry.due:
            return HistoryOutcome("pending")  # each write would wait as long again
        return _outcome(request, self.flush("threshold", patient=True))

    def outcome_of(self, journal_ids: Collection[str]) -> HistoryOutcome:
        request = self._waiting(journal_ids)
        if request is None:
            return HistoryOutcome("committed")
        if self._retry.failure is None:
            return HistoryOutcome("pending")
        return _outcome(request, self.flush("retry", patient=False))

    def _waiting(self, journal_ids: Collection[str]) -> CommitRequest | None:
        """The pending write that one of the journal entries belongs to."""
        held = [boundary.request for boundary in self._boundaries]
        for request in (*held, *self._deferred.requests):
            if not set(request.journal_ids).isdisjoint(journal_ids):
                return request
        return None

    # Boundaries

    def settle(self) -> float | None:
        remaining = self._seconds_left()
        if remaining is None or remaining > 0:
            return remaining
        self.flush("timer", patient=False)
        return self._seconds_left()

    def _seconds_left(self) -> float | None:
        """Seconds until the next commit is due by itself."""
        due = self.next_attempt
        if due is None:
            return None
        if self._retry.failure is not None:
            return self._retry.seconds_left(lock_is_held=self._committer.lock_is_held())
        return max(0.0, due - time.monotonic())

    def flush(self, trigger: str, *, patient: bool) -> Flush:
        return self._flush(trigger, patient=patient, give_up=time.monotonic() + TIMEOUT_S)

    def flush_before(self, give_up: float) -> GitFailure | None:
        return self._flush("shutdown", patient=False, give_up=give_up).failure

    def recover(self, entries: Sequence[JournalEntry]) -> GitFailure | None:
        """What has a commit already gets its tag, the rest is flushed together."""
        held: dict[tuple[str, str | None], list[JournalEntry]] = {}
        fresh: list[JournalEntry] = []
        for entry in entries:
            if entry.boundary_sha is None:
                fresh.append(entry)
            else:
                tag = entry.snapshot_tag if self._tags is not None else None
                held.setdefault((entry.boundary_sha, tag), []).append(entry)
        self._boundaries = tuple(
            _Boundary(combine(requests_of(group)), sha, tag) for (sha, tag), group in held.items()
        )
        requests = requests_of(fresh)
        self._recovering = bool(fresh)
        try:
            self._committer.refresh_index(paths_of(requests_of(entries)))
            committed = self._committed(requests)
        except GitFailure as failure:
            self._defer_all(requests)
            self._failed(failure, "recovery")
            return failure
        self._defer_all(requests[:committed])
        failed = self.flush("recovery", patient=False).failure if committed else None
        self._defer_all(requests[committed:])
        failed = failed or self.flush("recovery", patient=False).failure
        if failed is None:
            noted = [entry for entry in entries if entry.boundary_sha is not None]
            self._defer_all(self._committer.undone(noted))
            failed = self.flush("recovery", patient=False).failure
        return failed

    def _committed(self, requests: Sequence[CommitRequest]) -> int:
        """How many of the first requests HEAD seems to be the commit of: the process died when
        the branch had moved, and the threshold may have left out writes that were indexed with
        them. They are committed apart from the rest, which does nothing if that is true."""
        head = self._committer.head() if requests else None
        if head is None:
            return 0
        wanted = max(1, head.message.count(f"\n{WRITE_KEY}: "))
        writes = 0
        for number, request in enumerate(requests, 1):
            writes += max(1, len(request.writes))
            if writes >= wanted:
                first = combine(requests[:number])
                return number if self._committer.may_be_of(head, first) else 0
        return 0

    def _defer_all(self, requests: Sequence[CommitRequest]) -> None:
        for request in requests:
            self._deferred.append(request)

    def _flush(self, trigger: str, *, patient: bool, give_up: float) -> Flush:
        if not self.pending_writes:
            return Flush()
        try:
            reach("history.flush")
            sha = self._finish_boundaries(give_up)
            if self._deferred.requests:
                sha = self._make_boundary(patient, give_up) or sha
        except GitFailure as failure:
            return self._failed(failure, trigger)
        except Exception as error:
            # Whatever it is, the writes stay pending and the writer goes on (spec 03 §7.3).
            return self._failed(
                GitFailure("HISTORY_FLUSH_FAILED", text_of_unexpected("flush", error)), trigger
            )
        self._retry.clear()
        self._report.error(None)
        if sha is not None:
            self._report.committed()
        return Flush(sha)

    def _failed(self, failure: GitFailure, trigger: str) -> Flush:
        last = self._retry.failure
        told = last is not None and (last.code, last.reason) == (failure.code, failure.reason)
        held = [boundary.request for boundary in self._boundaries]
        requests = [*held, *self._deferred.requests]
        request = requests[0] if told else combine(requests)
        self._report.commit_failed(request, failure, first_time=not told)
        self._report.flush_failed(failure, trigger)
        self._retry.failed(failure, again=last is not None)
        return Flush(failure=failure)

    def _make_boundary(self, patient: bool, give_up: float) -> str | None:
        """Commit the deferred writes; None when Git holds their content already."""
        self._committer.prepare(patient=patient)
        request = self._deferred.combined()
        [done] = self._committer.commit([request], timeout_s=_left(give_up))
        if done.failure is not None:
            raise done.failure
        sha = done.sha
        if sha is None and self._recovering and self._tags is not None:
            head = self._committer.head()
            if head is not None and self._committer.may_be_of(head, request):
                sha = head.sha
        self._recovering = False
        self._deferred.clear()
        if sha is None:
            self._committer.finish(request.journal_ids)
            return None
        tag = self._tags.next_name() if self._tags is not None else None
        self._boundaries = (_Boundary(msgspec.structs.replace(request, contents={}), sha, tag),)
        self._journal.set_boundary(request.journal_ids, sha, tag)
        return self._finish_boundaries(give_up)

    def _finish_boundaries(self, give_up: float) -> str | None:
        """Make the tags that are missing; the newest commit, None when there was none."""
        sha: str | None = None
        while self._boundaries:
            boundary = self._boundaries[0]
            if boundary.tag is not None and self._tags is not None:
                # The index lock is not kept from others while a tag is made, and maybe signed.
                with contextlib.suppress(MaadError):  # the journal's turn comes again
                    self._committer.settle(force=True)
                writes = boundary.request.write_count
                self._tags.attach(boundary.tag, boundary.sha, writes, timeout_s=_left(give_up))
            self._committer.finish(boundary.request.journal_ids)
            self._boundaries = self._boundaries[1:]
            sha = boundary.sha
        return sha


def _outcome(request: CommitRequest, flush: Flush) -> HistoryOutcome:
    if flush.failure is not None:
        return failed_outcome(request, flush.failure)
    return HistoryOutcome("committed", flush.sha) if flush.sha else HistoryOutcome("none")


def _delay_s(history: HistorySettings, settings: WorkerSettings) -> float | None:
    """Seconds from the oldest pending write to its commit; None for no such limit."""
    delay_ms = history.max_delay_ms
    if delay_ms is None and history.max_writes is None:
        delay_ms = settings.history_fallback_delay_ms
    return delay_ms / 1000 if delay_ms else None


def _left(give_up: float) -> float:
    return max(give_up - time.monotonic(), _SHORTEST_S)
