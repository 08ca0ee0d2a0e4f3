"""`maad_backup`: named recovery points, annotated tags on HEAD (spec 03 §10)."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from maadd.protocol.arguments import BackupArgs
from maadd.protocol.errors import MaadError
from maadd.protocol.messages import HistorySettings, WorkerSettings
from maadd_worker.history.controller import HistoryController
from maadd_worker.history.git_dir import GitDir, locate
from maadd_worker.history.outcome import GitFailure
from maadd_worker.history.refs import (
    TAG_PREFIX,
    Tag,
    create_tag,
    delete_tag,
    list_tags,
    read_head,
)
from maadd_worker.history.report import iso_time
from maadd_worker.history.store import engine_person
from maadd_worker.outcome import Advice, Outcome, boundary_audit

LABEL_LENGTH = 32

_NOT_IN_LABELS = re.compile(r"[^a-z0-9-]+")


class BackupContext(msgspec.Struct, frozen=True):
    """What the tool works on; `paths` are the folders of the registered types."""

    root: str
    paths: Sequence[str]
    history: HistoryController
    policy: HistorySettings
    settings: WorkerSettings


def backup(context: BackupContext, args: BackupArgs) -> Outcome:
    """Create, list or delete recovery points.

    Raises INVALID_FIELDS, GIT_NOT_INITIALIZED, NO_HEAD_COMMIT, TAG_EXISTS, TAG_NOT_FOUND, and
    GIT_ERROR, also when what is pending cannot be committed first.
    """
    try:
        if args.mode == "list":
            return _list(context, args)
        if args.mode == "delete":
            return _delete(context, args.tag or "")
        return _create(context, args)
    except GitFailure as failure:
        raise MaadError("GIT_ERROR", failure.message, failure.details) from failure


def clean_label(label: str | None) -> str:
    """The label as it stands in a tag, empty for none; INVALID_FIELDS when nothing is left."""
    if not label:
        return ""
    text = _NOT_IN_LABELS.sub("-", label.strip().lower()).strip("-")
    cleaned = text[:LABEL_LENGTH].strip("-")
    if not cleaned:
        raise MaadError(
            "INVALID_FIELDS",
            "label has no character that a tag can bear; use letters a-z, digits and hyphens",
            {"field": "label"},
        )
    return cleaned


def tag_name(seconds: int, label: str, *, with_seconds: bool = False) -> str:
    """The tag of a recovery point made at a time, in seconds since 1970."""
    moment = datetime.fromtimestamp(seconds, UTC)
    name = f"{TAG_PREFIX}{moment:%Y-%m-%d-%H%M}"
    if with_seconds:
        name += f"{moment:%S}"
    return f"{name}-{label}" if label else name


def _create(context: BackupContext, args: BackupArgs) -> Outcome:
    git_dir = _repository(context)
    label = clean_label(args.label)
    if args.message is not None and "\0" in args.message:
        raise MaadError("INVALID_FIELDS", "message holds a NUL character", {"field": "message"})
    context.history.flush("snapshot")
    head = read_head(git_dir)
    if head is None:
        raise MaadError(
            "NO_HEAD_COMMIT", "the repository has no commit yet, so there is nothing to tag"
        )
    clean = _check_worktree(context, allow_dirty=args.allow_dirty)
    message = args.message or f"MAADB snapshot at {head.sha} ('{head.branch or 'HEAD'}')"
    now = int(time.time())
    name = _make_tag(context, git_dir, head.sha, label, message, now)
    data = {
        "tag": name,
        "sha": head.sha,
        "message": message,
        "createdAt": iso_time(now),
        "pendingWrites": context.history.pending_writes,
        "worktreeClean": clean,
    }
    return Outcome(data, audit=boundary_audit(head.sha, name))


def _make_tag(
    context: BackupContext, git_dir: GitDir, sha: str, label: str, message: str, now: int
) -> str:
    """Tag a commit; gives the name. Without a label a taken name gets the seconds too."""
    names = [tag_name(now, label)]
    if not label:
        names.append(tag_name(now, label, with_seconds=True))
    tagger = engine_person(context.settings)
    for name in names:
        try:
            if create_tag(git_dir, name, sha, message, tagger, now):
                return name
        except GitFailure as failure:
            if failure.reason != "tag-exists":
                raise
    raise MaadError(
        "TAG_EXISTS",
        f"there is a tag {names[-1]} already; use another label, or wait for the next minute",
        {"tag": names[-1]},
    )


def _check_worktree(context: BackupContext, *, allow_dirty: bool) -> bool | None:
    """Whether the records are as HEAD has them, None when Git does not tell; a recovery point
    that would miss some is refused unless it is allowed."""
    changed = context.history.changed_files(context.paths)
    if allow_dirty or changed == set():
        return None if changed is None else not changed
    if changed is None:
        raise MaadError(
            "GIT_ERROR",
            "Git did not tell in time whether all records are committed; try again, or pass "
            "allowDirty: true",
            {"reason": "timeout", "worktreeClean": None},
        )
    raise MaadError(
        "GIT_ERROR",
        f"{len(changed)} record files differ from the last commit and would be missing from the "
        "recovery point; commit them, or pass allowDirty: true",
        {
            "reason": "worktree-dirty",
            "files": len(changed),
            "pendingWrites": context.history.pending_writes,
            "worktreeClean": False,
        },
    )


def _list(context: BackupContext, args: BackupArgs) -> Outcome:
    since = _seconds(args.since) if args.since is not None else None
    git_dir = locate(context.root)
    tags = list_tags(git_dir) if git_dir is not None else []
    found = [_view(tag) for tag in tags if since is None or tag.created_at >= since]
    shown = found[: args.limit] if args.limit is not None else found
    warnings: tuple[Advice, ...] = ()
    if len(shown) < len(found):
        message = f"{len(found)} recovery points match, {len(shown)} are shown; raise limit"
        warnings = (Advice("limit", message, "RESULT_TRUNCATED"),)
    return Outcome(shown, warnings, rows=len(shown))


def _seconds(text: str) -> float:
    """A point in time as seconds since 1970; without a zone it is UTC. INVALID_FIELDS."""
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise MaadError(
            "INVALID_FIELDS",
            f"since is no ISO 8601 date or time: {text!r}; for example 2031-02-03T04:05:06Z",
            {"field": "since"},
        ) from None


def _view(tag: Tag) -> dict[str, Any]:
    return {
        "tag": tag.name,
        "sha": tag.sha,
        "message": tag.message,
        "createdAt": iso_time(tag.created_at),
    }


def _delete(context: BackupContext, name: str) -> Outcome:
    if not name.startswith(TAG_PREFIX):
        raise MaadError(
            "INVALID_FIELDS",
            f"only recovery points can be deleted here; their names start with {TAG_PREFIX}",
            {"field": "tag"},
        )
    if not delete_tag(_repository(context), name):
        raise MaadError(
            "TAG_NOT_FOUND", f"there is no tag {name}; mode list names them", {"tag": name}
        )
    return Outcome({"removed": name}, audit=boundary_audit(None, name))


def _repository(context: BackupContext) -> GitDir:
    git_dir = locate(context.root)
    if git_dir is None:
        raise MaadError(
            "GIT_NOT_INITIALIZED",
            "a recovery point is a Git tag, and there is no repository at the project root; run "
            "`git init` there",
            {
                "historyMode": context.policy.effective_mode,
                "modeSource": context.policy.mode_source,
            },
        )
    return git_dir
