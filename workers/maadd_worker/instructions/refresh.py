"""`maad_instructions` refresh: write what is outdated or missing (spec 03 §6.5, §11.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from maadd import __version__
from maadd.protocol.arguments import InstructionsArgs
from maadd.protocol.errors import MaadError
from maadd.protocol.roles import Role
from maadd_worker.disk.publish import (
    Staged,
    discard,
    fsync_dirs,
    put_in_place,
    stage_new,
    stage_replacement,
    sync_staged,
)
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.history.controller import HistoryController
from maadd_worker.history.outcome import (
    CommitFailure,
    CommitIdentity,
    CommitRequest,
    HistoryOutcome,
)
from maadd_worker.instructions.files import FileStatus, InstructionFiles
from maadd_worker.instructions.manifest import ENGINE, Template
from maadd_worker.instructions.plan import plan_refresh

ACTION = "instructions"


class RefreshContext(msgspec.Struct, frozen=True):
    """What a refresh works on, on the writer thread."""

    root: ProjectRoot
    files: InstructionFiles
    history: HistoryController
    identity: CommitIdentity | None
    fsync: bool


class Refreshed(msgspec.Struct, frozen=True):
    """The answer, and the end of the history step; None for a dry run."""

    data: dict[str, Any]
    history: HistoryOutcome | None = None


def check_refresh(role: Role, project: str, *, read_only: bool) -> None:
    """Who may refresh, and where: INSUFFICIENT_ROLE below admin, READ_ONLY."""
    if role < Role.ADMIN:
        raise MaadError(
            "INSUFFICIENT_ROLE",
            f"maad_instructions refresh needs the role admin on {project!r}, this session has "
            f"{role.text}; action check works with any role",
            {"project": project},
        )
    if read_only:
        raise MaadError(
            "READ_ONLY",
            "this project is read-only; its guides can be refreshed where it is writable",
        )


def refresh(context: RefreshContext, args: InstructionsArgs) -> Refreshed:
    """Write the planned files, each at once and whole, and commit them by themselves.

    Raises WRITE_ERROR and PATH_OUTSIDE_PROJECT; nothing is written then, or, when the last
    step failed for one file, what is written is committed all the same.
    """
    chosen = plan_refresh(context.files.statuses(), force=args.force)
    data: dict[str, Any] = {
        "engineVersion": ENGINE,
        "refresh": chosen.refresh,
        "skippedModified": chosen.skipped_modified,
        "skippedUnmanaged": chosen.skipped_unmanaged,
        "current": [status.rel_path for status in chosen.current],
        "dryRun": args.dry_run,
        "written": [],
    }
    if args.dry_run:
        return Refreshed(data)
    written, failure = _write(context, chosen.refresh)
    outcome = HistoryOutcome("none")
    if written:
        outcome = _commit(context.history, _request(written, context.identity))
    if failure is not None:
        raise failure
    data["written"] = [template.path for template in written]
    data["committed"] = outcome.outcome == "committed"
    return Refreshed(data, outcome)


def _write(
    context: RefreshContext, chosen: Sequence[FileStatus]
) -> tuple[list[Template], MaadError | None]:
    """Stage everything, then put it in place; what was written, and what stopped it."""
    templates = {template.path: template for template in context.files.templates}
    staged: list[Staged] = []
    try:
        for status in chosen:
            staged.append(_stage(context, status, templates[status.rel_path].content))
        for unsynced in sync_staged(context.root, staged):
            if unsynced is not None:
                raise unsynced
    except MaadError as failure:
        for one in staged:
            discard(context.root, one)
        return [], failure
    written: list[Template] = []
    stopped: MaadError | None = None
    for status, one in zip(chosen, staged, strict=True):
        template = templates[status.rel_path]
        if stopped is not None or context.files.status(template) != status:
            # Somebody has just edited it: that edit decides anew.
            discard(context.root, one)
            continue
        try:
            put_in_place(context.root, one)
        except MaadError as failure:
            stopped = failure
        else:
            written.append(template)
    if context.fsync and written:
        try:
            fsync_dirs(context.root, [template.path for template in written])
        except MaadError as failure:
            stopped = stopped or failure
    return written, stopped


def _stage(context: RefreshContext, status: FileStatus, content: bytes) -> Staged:
    if status.state == "missing":
        return stage_new(context.root, status.rel_path, content, fsync=context.fsync)
    return stage_replacement(context.root, status.rel_path, content, fsync=context.fsync)


def _request(written: Sequence[Template], identity: CommitIdentity | None) -> CommitRequest:
    return CommitRequest(
        action=ACTION,
        doc_id="",
        doc_type="",
        detail="",
        summary=f"refresh managed instructions to {__version__}",
        paths=tuple(template.path for template in written),
        identity=identity,
        contents={template.path: template.content for template in written},
    )


def _commit(history: HistoryController, request: CommitRequest) -> HistoryOutcome:
    """A commit of its own in every mode that commits: what waits for a shared commit is flushed
    before, and the request itself behind it."""
    blocked: MaadError | None = None
    try:
        history.flush()
    except MaadError as failure:
        blocked = failure
    [outcome] = history.commit([request])
    if outcome.outcome != "pending":
        return outcome
    if blocked is None:
        try:
            sha = history.flush().sha
        except MaadError as failure:
            blocked = failure
        else:
            return HistoryOutcome("committed", sha) if sha else HistoryOutcome("none")
    details = dict(blocked.details or {})
    code = details.pop("historyCode", blocked.code)
    return HistoryOutcome("failed", failure=CommitFailure(code, blocked.message, ACTION, details))
