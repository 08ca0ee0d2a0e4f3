"""Committing what people edited, where the project asks for it.

With `external_edits: commit` the edits of one quiet moment become one commit that lists every
record; never in the middle of a person's merge or rebase.
"""

from __future__ import annotations

import os
import time

import msgspec

from maadd.protocol.messages import HistorySettings
from maadd_worker.history.controller import NEED_GIT, HistoryController
from maadd_worker.history.git_dir import locate
from maadd_worker.history.outcome import CommitRequest, GitFailure, LogicalWrite

_QUIET_S = 1.0
"""An edit seldom comes alone: a script writes many files, a person saves again."""

_UNDERWAY_S = 5.0
"""How often to look whether a merge or rebase has ended."""

UNDERWAY = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply")
"""What lies in a Git directory while a person is in the middle of something."""


class EditedFile(msgspec.Struct, frozen=True):
    """An edit that the index has: what it did to which record, and where."""

    action: str
    doc_id: str
    doc_type: str
    path: str


class ExternalEdits:
    """The edits that wait for a quiet moment. Used by the writer thread."""

    @classmethod
    def asked_for(
        cls, settings: HistorySettings, root: str, history: HistoryController
    ) -> ExternalEdits | None:
        """None where edits are not to be committed, or nothing is."""
        if settings.external_edits == "commit" and settings.effective_mode in NEED_GIT:
            return cls(root, history)
        return None

    def __init__(self, root: str, history: HistoryController) -> None:
        self._root = root
        self._history = history
        self._waiting: dict[str, EditedFile] = {}
        self._due = 0.0

    def add(self, edits: list[EditedFile]) -> None:
        """Edits to commit; the latest one of a path counts, and the moment starts over."""
        for edit in edits:
            self._waiting[edit.path] = edit
            self._due = time.monotonic() + _QUIET_S

    def settle(self) -> float | None:
        """Commit when it is quiet; seconds until the next call, None when nothing waits."""
        if not self._waiting:
            return None
        remaining = self._due - time.monotonic()
        if remaining > 0:
            return remaining
        if self._is_underway():
            self._due = time.monotonic() + _UNDERWAY_S
            return _UNDERWAY_S
        edits = list(self._waiting.values())
        self._waiting.clear()
        self._history.commit([_request(edits)])
        return None

    def _is_underway(self) -> bool:
        try:
            git_dir = locate(self._root)
        except GitFailure:
            return True
        if git_dir is None:
            return False
        return any(os.path.lexists(os.path.join(git_dir.path, name)) for name in UNDERWAY)


def _request(edits: list[EditedFile]) -> CommitRequest:
    first = edits[0]
    names = ", ".join(edit.doc_id for edit in edits)
    return CommitRequest(
        action=first.action,
        doc_id=first.doc_id,
        doc_type=first.doc_type,
        detail=f"external:{len(edits)}",
        summary=f"external edit of {names}",
        paths=tuple(edit.path for edit in edits),
        writes=tuple(
            LogicalWrite(edit.action, edit.doc_id, edit.doc_type, "external") for edit in edits
        ),
    )
