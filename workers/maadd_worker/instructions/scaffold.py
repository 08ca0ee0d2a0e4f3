"""What a server does with the managed files when it opens a project (spec 03 §11.1).

It writes those that are absent and never touches one that exists; what it could not do, and
what a person should refresh, is told once in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.disk.publish import create_exclusive, fsync_dirs, sweep_temp_files
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.instructions.files import InstructionFiles


class Notice(msgspec.Struct, frozen=True):
    """A line for the ops log: its name and its members."""

    event: str
    members: dict[str, Any]
    level: Literal["info", "warn"] = "warn"


def scaffold(root: ProjectRoot, files: InstructionFiles, *, fsync: bool) -> list[MaadError]:
    """Create the files that are absent; why some could not be."""
    sweep_temp_files(root, ["_skills"])
    sweep_temp_files(root, [""], deep=False)
    failures: list[MaadError] = []
    created: list[str] = []
    for template in files.templates:
        if files.status(template).state != "missing":
            continue
        try:
            create_exclusive(root, template.path, template.content, fsync=fsync)
        except MaadError as failure:
            failures.append(failure)
        else:
            created.append(template.path)
    if fsync and created:
        try:
            fsync_dirs(root, created)
        except MaadError as failure:
            failures.append(failure)
    return failures


def bind_notices(
    root: ProjectRoot, files: InstructionFiles, failures: Sequence[MaadError], *, read_only: bool
) -> list[Notice]:
    """What the log should say once, when the project is opened."""
    notices = [
        Notice("instructions_not_created", {"code": failure.code, "message": failure.message})
        for failure in failures
    ]
    stale = [
        {"file": status.rel_path, "state": status.state}
        for status in files.stale(read_only=read_only)
    ]
    if stale:
        notices.append(Notice("instructions_outdated", {"project_root": root.path, "stale": stale}))
    return notices
