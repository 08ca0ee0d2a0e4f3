"""What the modes that commit have in common, as the controller sees it (spec 03 §7.1)."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.disk.journal import JournalEntry
from maadd_worker.history.outcome import CommitFailure, CommitRequest, GitFailure, HistoryOutcome


class Flush(msgspec.Struct, frozen=True):
    """The end of a boundary: the newest commit made (None: nothing to do), or `failure`."""

    sha: str | None = None
    failure: GitFailure | None = None


class Policy(Protocol):
    """When writes become commits. Properties may be asked from any thread, the rest is for
    the writer's."""

    @property
    def pending_writes(self) -> int:
        """Writes that are on disk and not yet in Git."""

    @property
    def pending_paths(self) -> set[str]:
        """The files that they touched."""

    @property
    def oldest_pending(self) -> str | None:
        """The journal entry of the oldest of them."""

    @property
    def next_attempt(self) -> float | None:
        """Monotonic time at which the next commit is due by itself."""

    def commit(self, requests: Sequence[CommitRequest]) -> list[HistoryOutcome]:
        """The history step of a group of writes, in their order."""

    def outcome_of(self, journal_ids: Collection[str]) -> HistoryOutcome:
        """Where the step of an earlier write stands; one that failed is tried again."""

    def settle(self) -> float | None:
        """Do what is due; seconds until something will be."""

    def flush(self, trigger: str, *, patient: bool) -> Flush:
        """Commit everything that is pending."""

    def recover(self, entries: Sequence[JournalEntry]) -> GitFailure | None:
        """Finish the writes that a dead process had indexed."""

    def flush_before(self, give_up: float) -> GitFailure | None:
        """Commit what can be committed before a monotonic time, at the close."""


def text_of_unexpected(step: str, error: Exception) -> str:
    """What may be told of an exception that a step of the history should not raise."""
    if isinstance(error, MaadError):
        return error.message
    if isinstance(error, OSError):
        return f"the {step} failed: {os.strerror(error.errno or 0)}"
    return f"the {step} failed unexpectedly ({type(error).__name__})"


def failed_outcome(request: CommitRequest, failure: GitFailure) -> HistoryOutcome:
    """The outcome of a write whose commit failed."""
    action = request.action if request.action in ("create", "delete") else "update"
    return HistoryOutcome(
        "failed", failure=CommitFailure(failure.code, failure.message, action, failure.details)
    )
