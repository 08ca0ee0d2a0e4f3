"""The history policy of a project: what a write means for Git (spec 03 §7).

`audit` makes one commit per logical write, `batch` and `snapshot` one for many, `feed` none;
`read` refuses. A commit that cannot be made never fails its write: the request stays pending,
with its evidence in the journal, until it is made.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from maadd.protocol.errors import MaadError
from maadd.protocol.messages import HistorySettings, WorkerSettings
from maadd_worker.disk.journal import Journal, JournalEntry, begun_at_ms
from maadd_worker.failpoints import reach
from maadd_worker.history.audit_policy import AuditPolicy
from maadd_worker.history.batch_policy import BatchPolicy
from maadd_worker.history.committer import Committer
from maadd_worker.history.inspection import RepositoryInspection
from maadd_worker.history.maintenance import Maintenance
from maadd_worker.history.outcome import (
    CommitFailure,
    CommitRequest,
    FlushReport,
    GitFailure,
    HistoryOutcome,
)
from maadd_worker.history.policy import Policy
from maadd_worker.history.recovery import touched_by
from maadd_worker.history.report import Backlog, HistoryReport, LogFailure, iso_time
from maadd_worker.history.retry import LOCK_POLL_S
from maadd_worker.history.snapshot import SnapshotTags

CLOSE_TIMEOUT_S = 5.0
CHECKPOINT_IDLE_S = 1.0
MAINTENANCE_IDLE_S = 60.0
MAINTENANCE_POLL_S = 1.0

NEED_GIT = ("audit", "batch", "snapshot")


def _adopt_nothing(_changed: set[str]) -> set[str]:
    """Edits are left to their author."""
    return set()


class HistoryController:
    """One per engine. `health` and `pending_writes` may be asked from any thread, the rest is
    for the writer's."""

    def __init__(
        self,
        root: str,
        history: HistorySettings,
        settings: WorkerSettings,
        journal: Journal | None,
    ) -> None:
        self._root = root
        self._mode = history.effective_mode
        self._journal = journal
        self._report = HistoryReport(history)
        self._inspection = RepositoryInspection(root)
        self._committer = Committer(root, settings, journal, self._report)
        self._policy: Policy | None = None
        if self._mode == "audit":
            self._policy = AuditPolicy(self._committer, self._report)
        elif self._mode in NEED_GIT:
            assert journal is not None
            tags = SnapshotTags(root, settings) if self._mode == "snapshot" else None
            self._policy = BatchPolicy(
                self._committer, journal, self._report, history, settings, tags
            )
        self._lock_reclaimed = False
        self._journaled: list[JournalEntry] = []
        self._last_write = time.monotonic()
        self._maintenance: Maintenance | None = None
        self._wants_maintenance = False

    @classmethod
    def open(
        cls,
        root: str,
        history: HistorySettings,
        settings: WorkerSettings,
        journal: Journal | None,
    ) -> HistoryController:
        """The controller of the project at `root`; `journal` is None in mode `read`.

        Raises GIT_NOT_INITIALIZED when the mode needs a repository at the root itself and
        there is none. A lock that a dead process of ours left is removed.
        """
        mode = history.effective_mode
        if mode in NEED_GIT and not os.path.lexists(os.path.join(root, ".git")):
            raise MaadError(
                "GIT_NOT_INITIALIZED",
                f"history mode {mode} needs a Git repository at the project root; run `git init` "
                "there, or set history_mode: feed",
                {"historyMode": mode, "modeSource": history.mode_source},
            )
        controller = cls(root, history, settings, journal)
        if mode in NEED_GIT:
            journaled = journal.pending() if journal is not None else []
            controller._lock_reclaimed = controller._committer.look(touched_by(journaled))
            controller._journaled = journaled
        return controller

    def connect_log(self, log: LogFailure) -> None:
        """Where commits that fail are logged (spec 03 §2.6)."""
        self._report.connect_log(log)

    # Writes

    def commit(self, requests: Sequence[CommitRequest]) -> list[HistoryOutcome]:
        """The history step of a group of writes, in their order.

        Journal entries of what is over are completed by `settle`, in the modes that commit once
        the index file shows it.
        """
        if self._mode == "read":
            return [_refused(request) for request in requests]
        reach("history.begin")
        self._last_write = time.monotonic()
        if self._policy is None:
            self._committer.finish([one for request in requests for one in request.journal_ids])
            return [HistoryOutcome("none") for _ in requests]
        self._wants_maintenance = True
        return self._policy.commit(requests)

    @property
    def pending_writes(self) -> int:
        """Writes that are on disk and not yet in Git."""
        return self._policy.pending_writes if self._policy is not None else 0

    def outcome_of(self, journal_ids: Collection[str]) -> HistoryOutcome:
        """Where the history step of an earlier write stands now; one that failed is tried
        again. A write that changed no byte had none."""
        if self._policy is None or not journal_ids:
            return HistoryOutcome("none")
        return self._policy.outcome_of(journal_ids)

    # Between writes

    def settle(self, idle: bool) -> float | None:
        """Finish the group: index file, lock, journal; then whatever is due: a retry, or the
        boundary of a batch.

        `idle` says that no write waits; quiet work is done only then. Gives the seconds
        until the next call is wanted, None when nothing is left to do. Raises
        BACKEND_ERROR when the journal fails.
        """
        waits: list[float | None] = []
        if self._policy is not None:
            waits.append(self._policy.settle())
        waits.append(self._settle_commits())
        if idle and self._mode != "read":
            waits.append(self._quiet_work())
        return min((wait for wait in waits if wait is not None), default=None)

    def release(self) -> None:
        """Give the index lock up ahead of other work."""
        # A journal that cannot be written keeps its entries; the next `settle` tells of it.
        with contextlib.suppress(MaadError):
            self._settle_commits(force=True)

    def _settle_commits(self, *, force: bool = False) -> float | None:
        was_behind = self._committer.is_behind
        wait = self._committer.settle(force=force)
        if was_behind and not self._committer.is_behind:
            self._inspection.forget_state()
        return wait

    def _quiet_work(self) -> float | None:
        """Housekeeping that may take a while; seconds until there may be more of it."""
        quiet_s = time.monotonic() - self._last_write
        if quiet_s < CHECKPOINT_IDLE_S:
            return CHECKPOINT_IDLE_S - quiet_s
        if not self._committer.recheck_index():
            return LOCK_POLL_S
        if self._journal is not None:
            self._journal.checkpoint()
        if self._maintenance is None:
            if not self._wants_maintenance:
                return None
            if quiet_s < MAINTENANCE_IDLE_S:
                return MAINTENANCE_IDLE_S - quiet_s
            self._wants_maintenance = False
            self._maintenance = Maintenance(self._root)
        if self._maintenance.poll():
            return MAINTENANCE_POLL_S
        self._maintenance = None
        return None

    # Boundaries

    def flush(self, trigger: str = "explicit") -> FlushReport:
        """Commit what is pending (spec 03 §6.4).

        Raises GIT_ERROR or GIT_NOT_INITIALIZED when something stays pending.
        """
        sha: str | None = None
        if self._policy is not None:
            flush = self._policy.flush(trigger, patient=True)
            self._settle_commits(force=True)
            self._committer.recheck_index()
            if flush.failure is not None:
                raise self._flush_error(flush.failure, trigger)
            sha = flush.sha
        return FlushReport(
            self._mode,
            trigger,
            "committed" if sha else "noop",
            self.pending_writes,
            sha is not None,
            sha,
        )

    def _flush_error(self, failure: GitFailure, trigger: str) -> MaadError:
        code = "GIT_NOT_INITIALIZED" if failure.code == "GIT_NOT_INITIALIZED" else "GIT_ERROR"
        details = {
            "historyCode": failure.code,
            "effectiveMode": self._mode,
            "trigger": trigger,
            "pendingWrites": self.pending_writes,
        }
        return MaadError(code, failure.message, details | (failure.details or {}))

    def recover(self, entries: Sequence[JournalEntry]) -> list[str]:
        """Finish the history step of writes that a dead process had indexed; gives the notes
        for `recoveryActions`.

        In audit mode each original write becomes one commit, unless HEAD has its content
        already; in batch and snapshot they share one. The index file is brought up to date
        for all of them. Writes that were indexed count in any case, whatever later writes
        have made of their files.
        """
        if self._mode == "read":
            return []
        entries, self._journaled = _with_indexed(entries, self._journaled), []
        notes = ["index_lock_stale_removed"] if self._lock_reclaimed else []
        self._lock_reclaimed = False
        if not entries:
            return notes
        failure: GitFailure | None = None
        if self._policy is None:
            self._committer.finish([entry.id for entry in entries])
        else:
            failure = self._policy.recover(entries)
        self._settle_commits(force=True)
        outcome = f"failed:{failure.code}" if failure is not None else f"completed:{self._mode}"
        return [*notes, f"history_recovery_{outcome}"]

    # Health

    def inspect_worktree(
        self, paths: Sequence[str], adopt: Callable[[set[str]], set[str]] = _adopt_nothing
    ) -> bool:
        """After recovery: note in health how many files under the registered `paths` differ
        from HEAD without a write of ours behind it. They are never committed by themselves,
        except those that `adopt` takes. False while it is too early to tell."""
        if self._committer.is_behind:
            return False
        if self._policy is not None and paths:
            changed = self._inspection.changed_files(paths)
            if changed is not None:
                foreign = changed - self._policy.pending_paths
                self._inspection.forget_state()
                self._report.worktree_dirty(foreign - adopt(foreign))
        return True

    def changed_files(self, paths: Sequence[str]) -> set[str] | None:
        """The files under some folders that differ from HEAD, None when Git does not tell in
        time; right after `flush`, when no write of ours explains them."""
        return self._inspection.changed_files(paths) if paths else set()

    def health(self) -> dict[str, Any]:
        """The members of `maad_health` that concern Git. May run `git status`, at most every
        five seconds: not for the main thread."""
        changed = self._inspection.changed(may_look=not self._committer.is_behind)
        if changed is not None:
            self._report.still_dirty(changed)
        return {
            "gitAvailable": os.path.lexists(os.path.join(self._root, ".git")),
            "gitClean": None if changed is None else not changed,
            "repoSizeBytes": self._inspection.size_bytes(),
            **self._report.counters(),
            "history": self._report.block(self._backlog()),
            "advisories": self._report.git_path_advisories(),
        }

    def _backlog(self) -> Backlog:
        if self._policy is None:
            return Backlog()
        oldest, due = self._policy.oldest_pending, self._policy.next_attempt
        begun = begun_at_ms(oldest) if oldest is not None else None
        return Backlog(
            self._policy.pending_writes,
            iso_time(begun / 1000) if begun is not None else None,
            iso_time(time.time() + due - time.monotonic()) if due is not None else None,
        )

    def close(self) -> bool:
        """Finish what can be finished within five seconds and give the lock up.

        False when commits stay pending or the index file is behind; the journal keeps them
        for the next start. The journal itself stays open.
        """
        if self._maintenance is not None:
            self._maintenance.stop()
            self._maintenance = None
        failure: GitFailure | None = None
        if self._policy is not None:
            failure = self._policy.flush_before(time.monotonic() + CLOSE_TIMEOUT_S)
        if failure is not None and failure.timed_out:
            late = GitFailure("HISTORY_FLUSH_TIMEOUT", failure.message, failure.details)
            self._report.error(late, "shutdown")
        # A journal that cannot be written keeps its entries, like index file and commits.
        with contextlib.suppress(MaadError):
            self._settle_commits(force=True)
        self._committer.recheck_index()
        self._committer.close()
        return self.pending_writes == 0 and not self._committer.is_behind


def _with_indexed(
    published: Sequence[JournalEntry], journaled: Sequence[JournalEntry]
) -> list[JournalEntry]:
    """The published entries and those that were indexed before, in the journal's order."""
    known = {entry.id: entry for entry in published}
    ordered = [
        known.pop(entry.id, entry)
        for entry in journaled
        if entry.id in known or entry.status == "indexed"
    ]
    return [*ordered, *known.values()]


def _refused(request: CommitRequest) -> HistoryOutcome:
    failure = CommitFailure(
        "PROJECT_READ_ONLY", "the project is read-only (history mode read)", request.action
    )
    return HistoryOutcome("failed", failure=failure)
