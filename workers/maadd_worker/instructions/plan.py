"""What a refresh would do to each managed file (spec 03 §11.1)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from maadd_worker.instructions.files import FileStatus


class RefreshPlan(msgspec.Struct, frozen=True):
    """Files to write, and those left alone for one of three reasons."""

    refresh: tuple[FileStatus, ...]
    skipped_modified: tuple[FileStatus, ...]
    skipped_unmanaged: tuple[FileStatus, ...]
    current: tuple[FileStatus, ...]


def plan_refresh(statuses: Sequence[FileStatus], *, force: bool) -> RefreshPlan:
    """Outdated and missing files are written, edited and foreign ones only with `force`."""

    def those(*states: str) -> tuple[FileStatus, ...]:
        return tuple(status for status in statuses if status.state in states)

    if force:
        chosen = those("outdated", "missing", "modified", "unmanaged")
        return RefreshPlan(chosen, (), (), those("current"))
    return RefreshPlan(
        those("outdated", "missing"), those("modified"), those("unmanaged"), those("current")
    )
