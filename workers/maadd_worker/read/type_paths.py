"""Which registered type a file belongs to by its place."""

from __future__ import annotations

from maadd_worker.schema.registry import Registry, TypeEntry


def owning_type(registry: Registry, path: str) -> TypeEntry | None:
    """The type whose folder holds the path; the innermost where folders lie in each other."""
    owners = [entry for entry in registry.types.values() if path.startswith(f"{entry.path}/")]
    return max(owners, key=lambda entry: len(entry.path), default=None)
