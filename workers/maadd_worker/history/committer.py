"""Makes the commits of a project, and brings index file and journal up behind them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from maadd.protocol.errors import MaadError
from maadd.protocol.messages import WorkerSettings
from maadd_worker.disk.journal import Journal, JournalEntry
from maadd_worker.history.branch_move import reclaim_refs
from maadd_worker.history.choice import choose_store
from maadd_worker.history.command import TIMEOUT_S, GitTimeout
from maadd_worker.history.git_dir import GitDir, config_stamp, locate
from maadd_worker.history.index_lock import reclaim_lock
from maadd_worker.history.inspection import changed_files
from maadd_worker.history.loose_objects import sweep_unfinished
from maadd_worker.history.message import format_message
from maadd_worker.history.outcome import CommitRequest, GitFailure
from maadd_worker.history.recovery import is_standing, paths_of, requests_of
from maadd_worker.history.refs import Head, read_head
from maadd_worker.history.report import HistoryReport
from maadd_worker.history.retry import LOCK_POLL_S, RETRY_S
from maadd_worker.history.store import Committed, Store, change_of


class Committer:
    """One per engine, used from the writer's thread; `is_behind` may be asked from any."""

    def __init__(
        self,
        root: str,
        settings: WorkerSettings,
        journal: Journal | None,
        report: HistoryReport,
    ) -> None:
        self._root = root
        self._settings = settings
        self._journal = journal
        self._report = report
        self._store: Store | None = None
        self._git_dir: GitDir | None = None
        self._config_stamp: tuple[int, ...] = ()
        self._finished: list[str] = []

    def look(self, paths: Sequence[str]) -> bool:
        """Open the repository ahead of the first commit; True when a lock was removed that a
        dead process of ours had left. `paths` are those of the journal: the index shows what
        HEAD has for them before an index lock is given up."""
        reclaimed = False
        git_dir: GitDir | None = None
        try:
            git_dir = locate(self._root)
            if git_dir is not None and self._journal is not None:
                reclaimed = reclaim_refs(git_dir)
                if not self._journal.is_empty():
                    sweep_unfinished(os.path.join(git_dir.common, "objects"))
            reclaimed |= self._current_store().take_over_lock(paths)
        except GitFailure as failure:
            # Reads and writes go on; each commit will be tried and tell the same.
            self._report.error(failure, "open")
            if git_dir is not None and self._journal is not None:
                reclaimed |= reclaim_lock(git_dir, self._journal)
        return reclaimed

    def prepare(self, *, patient: bool) -> None:
        """See Store.prepare. Raises GitFailure."""
        self._current_store().prepare(patient=patient)

    def commit(
        self, requests: Sequence[CommitRequest], *, timeout_s: float = TIMEOUT_S
    ) -> list[Committed]:
        """One commit per request, in order; after `prepare`. Raises GitFailure when none could
        be made."""
        changes = [change_of(request, self._settings) for request in requests]
        results = (self._store or self._current_store()).commit(changes, timeout_s=timeout_s)
        for result in results:
            self._report.skipped(result.skipped)
        return results

    def head(self) -> Head | None:
        """The commit that is checked out, None when there is none. Raises GitFailure."""
        git_dir = locate(self._root)
        return read_head(git_dir) if git_dir is not None else None

    def may_be_of(self, head: Head, request: CommitRequest) -> bool:
        """Whether a commit has the message of this very request."""
        message = format_message(request, with_identity=self._settings.commit_identity)
        return head.message == message.strip()

    def undone(self, entries: Sequence[JournalEntry]) -> list[CommitRequest]:
        """The requests of some committed entries that a commit of somebody else has undone
        unawares: HEAD lacks them, and the files are still as the writes left them."""
        standing = {entry.id for entry in entries if is_standing(self._root, entry)}
        requests = [one for one in requests_of(entries) if standing.issuperset(one.journal_ids)]
        if not requests:
            return []
        try:
            changed = changed_files(self._root, paths_of(requests))
        except (GitFailure, GitTimeout):
            return []  # health tells of files that differ from HEAD, once Git tells
        return [one for one in requests if not changed.isdisjoint(one.paths)]

    def note_commit(self, journal_ids: Sequence[str], sha: str | None) -> None:
        """Have the journal know that some entries need no commit any more: it is `sha`, or Git
        held the content already. They are completed later, and until then their records may be
        written again."""
        if self._journal is not None and journal_ids:
            # Without the note a start compares the disk with HEAD, which mostly tells the same.
            with contextlib.suppress(MaadError):
                self._journal.set_boundary(journal_ids, sha or "", None)

    def finish(self, journal_ids: Sequence[str]) -> None:
        """The history step of some entries is over, once the index file shows it."""
        self._finished += journal_ids

    def refresh_index(self, paths: Sequence[str]) -> None:
        """See Store.refresh_index. Raises GitFailure."""
        self._current_store().refresh_index(paths)

    @property
    def is_behind(self) -> bool:
        """Whether index file or journal do not know of every commit yet."""
        return bool(self._finished)

    def lock_is_held(self) -> bool:
        """Whether somebody else's index lock stands in the way right now."""
        return self._store is not None and self._store.lock_is_held()

    def settle(self, *, force: bool = False) -> float | None:
        """Bring index file and journal up to date and give the lock up; seconds until it wants
        to be called again. Raises BACKEND_ERROR when the journal fails."""
        wait: float | None = None
        if self._store is not None:
            try:
                wait = self._store.settle(force=force)
            except GitFailure as failure:
                self._report.error(failure, "index")
                return LOCK_POLL_S if failure.reason == "index-lock" else RETRY_S
        if wait is None and self._finished:
            if not self._forget_entries(self._finished):
                return RETRY_S
            self._finished = []
        return wait

    def _forget_entries(self, ids: Sequence[str]) -> bool:
        """Drop journal entries whose commits are there; False on a full disk, where they stay
        until there is room: whoever looks at them sees that they are done."""
        try:
            if self._journal is not None:
                self._journal.complete(ids)
        except MaadError as failure:
            if failure.code != "WRITE_ERROR":
                raise
            return False
        return True

    def recheck_index(self) -> bool:
        """See Store.recheck_index; False also when it cannot be done now."""
        try:
            return self._store is None or self._store.recheck_index()
        except GitFailure as failure:
            if failure.reason != "index-lock":
                self._report.error(failure, "index")
            return False

    def close(self) -> None:
        """Give up lock and handles; `settle(force=True)` comes first."""
        if self._store is None:
            return
        try:
            self._store.close()
        except GitFailure as failure:
            self._report.error(failure, "shutdown")
        self._store = None

    def _current_store(self) -> Store:
        """The store for the repository as it is configured now. Raises GitFailure."""
        if self._store is not None and self._git_dir is not None:
            if config_stamp(self._git_dir) == self._config_stamp:
                return self._store
            self._store.settle(force=True)
            self._store.close()
            self._store = None
        git_dir = locate(self._root)
        if git_dir is None:
            raise GitFailure(
                "GIT_NOT_INITIALIZED", "there is no Git repository at the project root any more"
            )
        stamp = config_stamp(git_dir)
        store, note = choose_store(git_dir, self._journal)
        self._store, self._git_dir, self._config_stamp = store, git_dir, stamp
        self._report.store_name, self._report.store_note = store.name, note
        return store
