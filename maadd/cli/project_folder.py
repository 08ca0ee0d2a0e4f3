"""What makes a folder a project."""

from __future__ import annotations

import os

from maadd.protocol.errors import MaadError

REGISTRY = "_registry/object_types.yaml"


def refuse_no_project(root: str) -> None:
    """REGISTRY_NOT_FOUND for a folder that is no project."""
    if not os.path.isfile(os.path.join(root, REGISTRY)):
        raise MaadError(
            "REGISTRY_NOT_FOUND",
            f"{root} is no project, it has no {REGISTRY}; go to the project folder, name it with "
            f"--project, or make one with `maad init {root}`",
        )
