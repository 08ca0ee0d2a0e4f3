"""What makes a folder a project."""

from __future__ import annotations

import os

from maadd.protocol.errors import MaadError

REGISTRY = "_registry/object_types.yaml"
_PARTS = ("_registry", "_schema", "_backend")


def has_registry(root: str) -> bool:
    """Whether something stands in the place of the registry, be it readable or not; so it is
    for a folder that cannot be looked into: what is wrong there is told when it is opened."""
    try:
        os.lstat(os.path.join(root, REGISTRY))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def parts_of_project(root: str) -> list[str]:
    """Folders that only a project has."""
    return [name for name in _PARTS if os.path.isdir(os.path.join(root, name))]


def refuse_no_project(root: str) -> None:
    """REGISTRY_NOT_FOUND for a folder that is no project, or has lost its registry."""
    if has_registry(root):
        return
    parts = parts_of_project(root)
    if parts:
        raise MaadError(
            "REGISTRY_NOT_FOUND",
            f"{root} has no {REGISTRY}, although {', '.join(parts)} lie there; put the file back: "
            f"git restore {REGISTRY}, or from a copy",
        )
    raise MaadError(
        "REGISTRY_NOT_FOUND",
        f"{root} is no project, it has no {REGISTRY}; go to the project folder, name it with "
        f"--project, or make one with `maad init {root}`",
    )
