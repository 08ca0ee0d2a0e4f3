"""Whether a project's folder and the files under `_backend` still are where the next engine will
look for them.

Somebody may delete or move them while an engine has them open. SQLite goes on in a file that
has no name any more; whoever comes next starts without it, and takes a lock that is free.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from maadd_worker.disk.root import ProjectRoot

_Identity = tuple[int, int]


class Placement:
    """The folder and some files of it, as found when the engine had opened them.

    `kept` are project-relative paths that count as lost when another file, or none, is there;
    `followed` only when another is. Usable from any thread.
    """

    __slots__ = ("_folder", "_followed", "_kept", "_root")

    def __init__(
        self, root: ProjectRoot, *, kept: Iterable[str] = (), followed: Iterable[str] = ()
    ) -> None:
        self._root = root
        self._folder = _identity(root.stat("."))
        self._kept = self._found(kept)
        self._followed = self._found(followed)

    @property
    def root_is_here(self) -> bool:
        """Whether the path of the project still leads to the folder that is held."""
        try:
            return _identity(os.stat(self._root.path)) == self._folder
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True  # a file system in trouble has moved nothing

    def lost(self) -> str | None:
        """What is no longer there: a project-relative path, `.` for the folder; None: nothing."""
        if not self.root_is_here:
            return "."
        try:
            for path in self._kept:
                if not self.has(path):
                    return path
            for path, was in self._followed.items():
                if self._now(path) not in (was, None):
                    return path
        except OSError:
            return None  # as above
        return None

    def has(self, path: str) -> bool:
        """Whether one of the kept files is still the one at its path. OSError passes."""
        return self._now(path) == self._kept[path]

    def _found(self, paths: Iterable[str]) -> dict[str, _Identity]:
        found = {path: self._now(path) for path in paths}
        return {path: now for path, now in found.items() if now is not None}

    def _now(self, path: str) -> _Identity | None:
        try:
            return _identity(self._root.stat(path))
        except (FileNotFoundError, NotADirectoryError):
            return None


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino
