"""What a reload changes: the running instance against the file's new one (spec 04 §3)."""

from __future__ import annotations

import msgspec

from maadd.config.instance import Instance, ProjectConfig
from maadd.protocol.errors import MaadError


class InstanceDiff(msgspec.Struct, frozen=True):
    """Project names by what happens to them, each in the order of its file.

    `restarted` are kept projects whose history mode or options differ.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    restarted: tuple[str, ...]


def diff_instances(old: Instance, new: Instance) -> InstanceDiff:
    """The difference; INSTANCE_MUTATION_UNSUPPORTED when a kept project's path or role moved."""
    kept = [
        (old.projects[name], new.projects[name]) for name in new.projects if name in old.projects
    ]
    moved = [
        f"{before.name} ({', '.join(what)})"
        for before, after in kept
        if (what := _fixed(before, after))
    ]
    if moved:
        raise MaadError(
            "INSTANCE_MUTATION_UNSUPPORTED",
            f"path and role of a running project cannot change: {', '.join(moved)}; remove and "
            "add the project in two reloads, or restart",
        )
    return InstanceDiff(
        added=tuple(name for name in new.projects if name not in old.projects),
        removed=tuple(name for name in old.projects if name not in new.projects),
        restarted=tuple(after.name for before, after in kept if _policy(before) != _policy(after)),
    )


def _fixed(before: ProjectConfig, after: ProjectConfig) -> list[str]:
    changed = []
    if before.path != after.path:
        changed.append("path")
    if before.role != after.role:
        changed.append("role")
    return changed


def _policy(project: ProjectConfig) -> tuple[object, ...]:
    history = project.history
    return (
        history.effective_mode,
        history.max_writes,
        history.max_delay_ms,
        history.external_edits,
    )
