"""What health says about history (spec 03 §6.3, §7.5)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Set
from datetime import UTC, datetime
from typing import Any

import msgspec

from maadd.protocol.messages import HistorySettings
from maadd_worker.history.outcome import CommitRequest, GitFailure

_KEPT_LINES = 64

LogFailure = Callable[..., None]
"""Takes the name of a log line and its members."""


class LastFailure(msgspec.Struct, frozen=True):
    """The last commit that failed."""

    at: str
    code: str
    action: str
    doc_id: str


class Backlog(msgspec.Struct, frozen=True):
    """What is not in Git yet: how many writes, since when, and when it will be by itself."""

    writes: int = 0
    oldest_at: str | None = None
    next_flush_at: str | None = None


class HistoryReport:
    """Counters and last events of one engine's history. Each value is replaced as a whole,
    so that any thread may read while the writer's writes."""

    __slots__ = (
        "_dirty_files",
        "_error",
        "_failures",
        "_flush_failures",
        "_flushes",
        "_history",
        "_last_failure",
        "_last_success",
        "_log",
        "_skipped",
        "_unlogged",
        "store_name",
        "store_note",
    )

    def __init__(self, history: HistorySettings) -> None:
        self._history = history
        self._failures = 0
        self._last_failure: LastFailure | None = None
        self._last_success: str | None = None
        self._error: dict[str, str] | None = None
        self._skipped: dict[str, str] = {}
        self._dirty_files: frozenset[str] = frozenset()
        self._flushes = 0
        self._flush_failures = 0
        self._log: LogFailure | None = None
        self._unlogged: deque[dict[str, Any]] = deque(maxlen=_KEPT_LINES)
        self.store_name: str | None = None
        self.store_note: str | None = None

    def connect_log(self, log: LogFailure) -> None:
        """Where failed commits are logged; those since the start are logged now."""
        self._log = log
        while self._unlogged:
            log("commit_failed", **self._unlogged.popleft())

    def committed(self) -> None:
        """A commit was made (with its tag, where it gets one)."""
        self._flushes += 1
        self._last_success = iso_time()

    def commit_failed(
        self, request: CommitRequest, failure: GitFailure, *, first_time: bool
    ) -> None:
        """A commit could not be made; retries that fail alike are neither counted nor logged."""
        now = iso_time()
        self._last_failure = LastFailure(now, failure.code, request.action, request.doc_id)
        if not first_time:
            return
        self._failures += 1
        line = {
            "code": failure.code,
            "message": failure.message,
            "action": request.action,
            "doc_id": request.doc_id,
            "doc_type": request.doc_type,
            "file_count": len(request.paths),
        }
        if self._log is None:
            self._unlogged.append(line)
        else:
            self._log("commit_failed", **line)

    def flush_failed(self, failure: GitFailure, trigger: str) -> None:
        """An attempt to commit what is pending did not succeed."""
        self._flush_failures += 1
        self.error(failure, trigger)

    def error(self, failure: GitFailure | None, trigger: str = "") -> None:
        """The last flush error, or None after everything went well."""
        if failure is None:
            self._error = None
            return
        self._error = {
            "at": iso_time(),
            "code": failure.code,
            "message": failure.message,
            "trigger": trigger,
        }

    def skipped(self, paths: tuple[tuple[str, str], ...]) -> None:
        if paths:
            self._skipped = dict(paths)

    def worktree_dirty(self, files: Set[str]) -> None:
        """These files differ from HEAD and no write of ours explains it."""
        self._dirty_files = frozenset(files)

    def still_dirty(self, changed: Set[str]) -> None:
        """Only these files differ from HEAD now."""
        if dirty := self._dirty_files:
            self._dirty_files = dirty & changed

    def counters(self) -> dict[str, Any]:
        """The flat members of health about failed commits."""
        last = self._last_failure
        return {
            "commitFailuresTotal": self._failures,
            "lastCommitFailureAt": last.at if last else None,
            "lastCommitFailureCode": last.code if last else None,
            "lastCommitFailureAction": last.action if last else None,
            "lastCommitFailureDocId": last.doc_id if last else None,
        }

    def block(self, backlog: Backlog) -> dict[str, Any]:
        """The `history` member of health."""
        return {
            "effectiveMode": self._history.effective_mode,
            "configuredMode": self._history.configured_mode,
            "modeSource": self._history.mode_source,
            "pendingWrites": backlog.writes,
            "oldestPendingAt": backlog.oldest_at,
            "nextFlushAt": backlog.next_flush_at,
            "lastSuccessfulFlush": self._last_success,
            "lastFlushError": self._error,
            "flushesTotal": self._flushes,
            "flushFailuresTotal": self._flush_failures,
            "gitPath": self.store_name,
            "advisories": self._advisories(),
        }

    def git_path_advisories(self) -> list[dict[str, Any]]:
        """The chosen Git path, where it is not the usual one."""
        if self.store_note is None:
            return []
        return [{"code": "GIT_PROGRAM_USED", "message": self.store_note}]

    def _advisories(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        if self._history.mode_source == "inferred":
            found.append(
                {
                    "code": "HISTORY_MODE_INFERRED",
                    "message": f"history_mode is not set; {self._history.effective_mode} was "
                    "chosen because of the "
                    + (
                        "repository"
                        if self._history.effective_mode == "audit"
                        else "missing repository"
                    )
                    + " at the project root",
                }
            )
        if self._dirty_files:
            found.append(
                {
                    "code": "HISTORY_WORKTREE_DIRTY",
                    "message": "record files differ from the last commit and no write of the "
                    "server explains it; commit them by hand",
                    "files": len(self._dirty_files),
                }
            )
        if self._skipped:
            path, reason = next(iter(self._skipped.items()))
            found.append(
                {
                    "code": "HISTORY_PATH_SKIPPED",
                    "message": f"{path} was written but not committed: {reason}",
                    "paths": sorted(self._skipped),
                }
            )
        return found


def iso_time(seconds: float | None = None) -> str:
    """A time (now, when not given) as ISO 8601 in UTC with milliseconds."""
    moment = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
