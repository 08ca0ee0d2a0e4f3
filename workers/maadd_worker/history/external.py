"""Committing what people edited, where the project asks for it.

With `external_edits: commit` the edits of one quiet moment become one commit that lists every
record; never in the middle of a person's merge or rebase, nor while HEAD is on no branch, where
the next checkout would leave them behind.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from maadd.protocol.messages import HistorySettings
from maadd_worker.history.controller import NEED_GIT, HistoryController
from maadd_worker.history.git_dir import locate
from maadd_worker.history.outcome import (
    EXTERNAL,
    CommitRequest,
    GitFailure,
    LogicalWrite,
    external_summary,
)
from maadd_worker.history.refs import is_detached

_QUIET_S = 1.0
"""An edit seldom comes alone: a script writes many files, a person saves again."""

_UNDERWAY_S = 5.0
"""How often to look whether a merge or rebase has ended, or HEAD is on a branch again."""

UNDERWAY = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply")
"""What lies in a Git directory while a person is in the middle of something."""


_JOINED = {("create", "update"): "create", ("delete", "create"): "update"}
"""What two edits of a record are together, where that is not the later one."""


class EditedRecord(msgspec.Struct, frozen=True):
    """An edit that the index has: what it did to which record, and all paths it touched, that
    of a file which is not there any more among them. `moves`: see CommitRequest."""

    action: str
    doc_id: str
    doc_type: str
    paths: tuple[str, ...]
    moves: Mapping[str, str]


class ExternalEdits:
    """The edits that wait for a quiet moment. Used by the writer thread; `advisories` by any."""

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
        self._waiting: dict[str, EditedRecord] = {}
        self._due = 0.0
        self._hindrance: str | None = None

    def add(self, edits: Iterable[EditedRecord]) -> None:
        """Edits to commit; those of one record become one, and the moment starts over."""
        for edit in edits:
            earlier = self._waiting.pop(edit.doc_id, None)
            self._waiting[edit.doc_id] = edit if earlier is None else _joined(earlier, edit)
            self._due = time.monotonic() + _QUIET_S

    def next_wait(self) -> float | None:
        """Seconds until `settle` has something to do; None when nothing waits."""
        return max(0.0, self._due - time.monotonic()) if self._waiting else None

    def settle(self, *, at_once: bool = False) -> None:
        """Commit when it is quiet, or `at_once`. The index lock is held afterwards: the history
        settles next."""
        if not self._waiting or (self._due > time.monotonic() and not at_once):
            return
        self._hindrance = self._what_hinders()
        if self._hindrance is not None:
            self._due = time.monotonic() + _UNDERWAY_S
            return
        edits = list(self._waiting.values())
        self._waiting.clear()
        self._history.commit([_request(edits)])

    def advisories(self) -> list[dict[str, Any]]:
        """What health says of edits that cannot be committed now."""
        hindrance, count = self._hindrance, len(self._waiting)
        if hindrance is None or not count:
            return []
        noun = "record" if count == 1 else "records"
        message = f"edits of {count} {noun} are not committed: {hindrance}"
        return [{"code": "HISTORY_EDITS_WAIT", "message": message, "records": count}]

    def _what_hinders(self) -> str | None:
        try:
            git_dir = locate(self._root)
            if git_dir is None:
                return None
            if any(os.path.lexists(os.path.join(git_dir.path, name)) for name in UNDERWAY):
                return "a merge, rebase, revert or cherry-pick is under way; finish or abort it"
            if is_detached(git_dir):
                return "HEAD is on no branch; `git switch` to one, or make one with `git switch -c`"
        except GitFailure as failure:
            return failure.message
        return None


def _joined(earlier: EditedRecord, later: EditedRecord) -> EditedRecord:
    action = _JOINED.get((earlier.action, later.action), later.action)
    paths = tuple(dict.fromkeys((*earlier.paths, *later.paths)))
    moves = {**earlier.moves, **later.moves}
    return msgspec.structs.replace(later, action=action, paths=paths, moves=moves)


def _request(edits: list[EditedRecord]) -> CommitRequest:
    first = edits[0]
    writes = tuple(
        LogicalWrite(edit.action, edit.doc_id, edit.doc_type, EXTERNAL, paths=edit.paths)
        for edit in edits
    )
    return CommitRequest(
        action=first.action,
        doc_id=first.doc_id,
        doc_type=first.doc_type,
        detail=f"{EXTERNAL}:{len(edits)}",
        summary=external_summary(writes),
        paths=tuple(dict.fromkeys(path for edit in edits for path in edit.paths)),
        writes=writes,
        moves={path: owner for edit in edits for path, owner in edit.moves.items()},
    )
