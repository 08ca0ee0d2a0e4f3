"""What a whole-project pass tells while it runs and at its end (spec 01 §14.2, 03 §6.1)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.index.documents import DocumentRow


class PassChange(msgspec.Struct, frozen=True):
    """A record that the pass found changed, told after its transaction is committed."""

    action: Literal["create", "update", "delete"]
    row: DocumentRow


class PassProgress(msgspec.Struct, frozen=True):
    """Where the pass is; `files` is the number of files of the type in hand, `total` that of
    all files, None where nobody knows it yet."""

    doc_type: str
    files: int
    scanned: int
    indexed: int
    errors: int
    total: int | None = None

    @property
    def text(self) -> str:
        """One line for people."""
        return (
            f"{self.doc_type}: {self.scanned} files looked at in all, {self.indexed} indexed, "
            f"{self.errors} failed"
        )


class ChangedId(msgspec.Struct, frozen=True):
    """A file whose record got another id in place: the id before, whose row is gone, and now."""

    path: str
    before: str
    now: str


_SHOWN_ERRORS = 100
"""Errors in an answer, which has a budget; the rest is counted."""


class ReindexReport(msgspec.Struct, frozen=True):
    """What a pass did.

    `partial` counts records indexed with capped annotations. `prunable` counts rows that were
    kept because their folder is empty or gone although their files are missing, with the first
    ids in `prunable_ids`. `complete` tells that every folder could be read.
    """

    scanned: int
    indexed: int
    skipped: int
    errors: tuple[MaadError, ...]
    rebuilt_types: tuple[str, ...]
    partial: int
    pruned: int
    warnings: tuple[str, ...]
    prunable: int
    prunable_ids: tuple[str, ...]
    complete: bool
    changed_ids: tuple[ChangedId, ...] = ()

    def view(self) -> dict[str, Any]:
        """The members of a reindex answer; optional ones only when they say something."""
        view: dict[str, Any] = {
            "scanned": self.scanned,
            "indexed": self.indexed,
            "skipped": self.skipped,
            "errors": [_error_view(error) for error in self.errors[:_SHOWN_ERRORS]],
        }
        if len(self.errors) > _SHOWN_ERRORS:
            view["errorsTotal"] = len(self.errors)
        if self.rebuilt_types:
            view["rebuiltTypes"] = list(self.rebuilt_types)
        if self.partial:
            view["partial"] = self.partial
        if self.pruned:
            view["pruned"] = self.pruned
        if self.warnings:
            view["warnings"] = list(self.warnings)
        return view


def _error_view(error: MaadError) -> dict[str, Any]:
    view: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.location is not None:
        view["location"] = {
            "file": error.location.file,
            "line": error.location.line,
            "col": error.location.col,
        }
    if error.details:
        view["details"] = error.details
    return view
