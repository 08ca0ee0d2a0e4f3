"""Slow looks at a repository for health, remembered for a while (spec 03 §6.3)."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence

from maadd_worker.history.command import PLAIN, GitTimeout, run_git
from maadd_worker.history.outcome import GitFailure

CLEAN_TTL_S = 5.0
SIZE_TTL_S = 60.0
_STATUS_TIMEOUT_S = 5.0
_STATUS_LETTERS = len("XY ")


class RepositoryInspection:
    """State and size of the repository of one project; may be asked from any thread."""

    __slots__ = ("_changed", "_lock", "_looked_at", "_root", "_size", "_size_at")

    def __init__(self, root: str) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._changed: set[str] | None = None
        self._looked_at = float("-inf")
        self._size: int | None = None
        self._size_at = float("-inf")

    def changed(self, *, may_look: bool) -> set[str] | None:
        """The files that `git status` names, None when that was never found out.

        `may_look` is False while the index file is behind on purpose.
        """
        with self._lock:
            if may_look and time.monotonic() - self._looked_at >= CLEAN_TTL_S:
                changed = self.changed_files(())
                if changed is not None:
                    self._changed = changed
                    self._looked_at = time.monotonic()
            return self._changed

    def forget_state(self) -> None:
        """The last answer of `changed` no longer counts."""
        self._looked_at = float("-inf")

    def changed_files(self, paths: Sequence[str]) -> set[str] | None:
        """`changed_files`; None when Git does not tell, or not in time."""
        if not os.path.lexists(os.path.join(self._root, ".git")):
            return None
        try:
            return changed_files(self._root, paths)
        except (GitTimeout, GitFailure):
            return None

    def size_bytes(self) -> int | None:
        """Bytes under `.git`, looked up at most once a minute; None without a repository."""
        with self._lock:
            if time.monotonic() - self._size_at >= SIZE_TTL_S:
                self._size = _size_of(os.path.join(self._root, ".git"))
                self._size_at = time.monotonic()
            return self._size


def changed_files(root: str, paths: Sequence[str]) -> set[str]:
    """The files under `paths` (all, when empty) that differ from HEAD or are unknown to it.

    Raises GitTimeout, and GitFailure with what Git says.
    """
    result = run_git(
        root,
        ["status", "-z", "--no-renames", "--untracked-files=all", "--", *paths],
        settings=(*PLAIN, "-c", "core.fsmonitor=false"),
        timeout_s=_STATUS_TIMEOUT_S,
    )
    if result.status != 0:
        raise GitFailure("GIT_UNKNOWN_ERROR", result.complaint)
    lines = result.stdout.split(b"\0")
    return {os.fsdecode(line[_STATUS_LETTERS:]) for line in lines if line}


def _size_of(path: str) -> int | None:
    try:
        total = os.lstat(path).st_size
    except OSError:
        return None
    folders = [path] if os.path.isdir(path) else []
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue  # files come and go while Git works
    return total
