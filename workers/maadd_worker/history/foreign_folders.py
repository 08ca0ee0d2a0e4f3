"""Folders of a project that belong to other repositories: submodules, and clones made inside.

Nothing in them is ours to commit, and their own entries are never touched (spec 03 §7.3).
"""

from __future__ import annotations

import os
import re
from collections.abc import Set

_LISTED = re.compile(rb"(?:^|\0)160000 [^\t\0]*\t([^\0]*)")


def submodules_listed(output: bytes) -> set[str]:
    """The submodules in what `git ls-files --stage -z` or `git ls-tree -z` prints."""
    return {os.fsdecode(path) for path in _LISTED.findall(output)}


def foreign_reason(root: str, path: str, submodules: Set[str]) -> str | None:
    """Why a project-relative path belongs to another repository, None when it does not.

    `submodules` are the paths that Git has as such, in the last commit or staged.
    """
    parts = path.split("/")
    for count in range(1, len(parts) + 1):
        folder = "/".join(parts[:count])
        if folder in submodules:
            return f"it lies in the submodule {folder}"
        if os.path.lexists(os.path.join(root, folder, ".git")):
            return f"it lies in another repository, {folder}"
    return None
