"""Carrying out planned file changes, and taking them back (spec 01 §15.2, 03 §2.5).

New bytes are staged for a whole group, and synced before the first name changes; the changes
themselves are then a rename or an unlink each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.disk.publish import (
    Staged,
    discard,
    exchange,
    failing_as,
    put_in_place,
    rename_no_replace,
    replace,
    set_aside,
    stage_new,
    stage_replacement,
    sync_staged,
    unlink,
)
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.failpoints import reach
from maadd_worker.markdown.frontmatter import content_hash
from maadd_worker.write.context import FileChange


class Published(msgspec.Struct, frozen=True):
    """The end of a change: `failure`, or what `aside` keeps for taking it back."""

    failure: MaadError | None = None
    aside: Staged | None = None


class Staging(msgspec.Struct, frozen=True):
    """The new bytes of some changes beside their targets, and the failure of each change that
    could not get so far; both by number of the change."""

    staged: Mapping[int, Staged]
    failures: Mapping[int, MaadError]


def stage_changes(root: ProjectRoot, changes: Sequence[FileChange], *, fsync: bool) -> Staging:
    """Write what the changes will publish; with `fsync` it is on its way to the disk.

    No name that anybody reads changes by this. WRITE_ERROR, PATH_OUTSIDE_PROJECT.
    """
    staged: dict[int, Staged] = {}
    failures: dict[int, MaadError] = {}
    for number, change in enumerate(changes):
        if change.data is None:
            continue
        stage = stage_new if change.kind == "create" else stage_replacement
        try:
            staged[number] = stage(root, change.path, change.data, fsync=fsync)
        except MaadError as failure:
            failures[number] = failure
    return Staging(staged, failures)


def discard_staging(root: ProjectRoot, staging: Staging) -> None:
    """Remove what was staged for changes that will not happen."""
    for staged in staging.staged.values():
        discard(root, staged)


def publish_changes(
    root: ProjectRoot, changes: Sequence[FileChange], staging: Staging
) -> list[Published]:
    """Do the changes, in order.

    WRITE_ERROR, DELETE_ERROR, DUPLICATE_DOC_ID, VERSION_CONFLICT, PATH_OUTSIDE_PROJECT: such a
    change leaves the disk as it was. Directories are synced by the caller.
    """
    failures = dict(staging.failures)
    ends: list[Published] = []
    refused = sync_staged(root, list(staging.staged.values()))
    for (number, staged), failure in zip(staging.staged.items(), refused, strict=True):
        if failure is not None:
            failures[number] = failure
            discard(root, staged)
    for number, change in enumerate(changes):
        if number in failures:
            ends.append(Published(failures[number]))
            continue
        try:
            ends.append(Published(aside=_publish(root, change, staging.staged.get(number))))
        except MaadError as failure:
            ends.append(Published(failure))
    return ends


def withdraw(root: ProjectRoot, change: FileChange, aside: Staged | None, *, fsync: bool) -> None:
    """Put the disk back to what it was before a change; raises what the disk refuses."""
    with failing_as("WRITE_ERROR", change.path):
        reach("file.withdraw")
    if aside is not None:
        put_in_place(root, aside)
    elif change.kind == "create":
        unlink(root, change.path)
    elif change.kind == "replace":
        replace(root, change.path, _old_data(change), fsync=fsync)
    elif change.kind == "rename":
        assert change.new_path is not None
        rename_no_replace(root, change.new_path, change.path)


def touched_paths(change: FileChange) -> list[str]:
    """Every path whose directory entry the change writes."""
    if change.kind == "forget":
        return []
    return [change.path] if change.new_path is None else [change.path, change.new_path]


def _publish(root: ProjectRoot, change: FileChange, staged: Staged | None) -> Staged | None:
    """Do one change; what it keeps aside.

    The bytes that are about to go are compared with what the plan saw, so that an edit made
    outside meanwhile is never lost.
    """
    try:
        with failing_as("DELETE_ERROR" if change.data is None else "WRITE_ERROR", change.path):
            reach("file.publish")
        if change.kind in ("replace", "rename", "unlink"):
            _check_unchanged(root, change)
    except MaadError:
        if staged is not None:
            discard(root, staged)
        raise
    aside: Staged | None = None
    if staged is not None and staged.replaces:
        aside = exchange(root, staged)
    elif staged is not None:
        put_in_place(root, staged)
    elif change.kind == "rename":
        assert change.new_path is not None
        rename_no_replace(root, change.path, change.new_path)
    elif change.kind == "unlink":
        aside = set_aside(root, change.path)
    reach("file.published")
    return aside


def _check_unchanged(root: ProjectRoot, change: FileChange) -> None:
    content = root.read(change.path)
    if content_hash(content.data) != change.old_hash:
        raise MaadError(
            "VERSION_CONFLICT",
            f"{change.path} was changed on disk while this call was prepared; read it again",
            {"reason": "changed_on_disk"},
        )


def _old_data(change: FileChange) -> bytes:
    assert change.old_data is not None
    return change.old_data
