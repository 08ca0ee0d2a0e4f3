"""Reads what a commit shall hold from the project's files (spec 03 §7.3).

On disk: added. Absent but tracked: removed. Neither: nothing. What Git cannot hold here is
left out and named.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Set

import pygit2

from maadd_worker.history.attributes import ContentFilters
from maadd_worker.history.command import GitTimeout, run_git
from maadd_worker.history.foreign_folders import foreign_reason
from maadd_worker.history.git_dir import GitDir
from maadd_worker.history.moves import settle_moves
from maadd_worker.history.object_writer import ObjectWriter
from maadd_worker.history.outcome import GitFailure
from maadd_worker.history.store import Change, check_path
from maadd_worker.history.trees import (
    EXECUTABLE,
    REGULAR,
    SUBMODULE,
    SYMLINK,
    CannotDescend,
    TreeCache,
    TreeEntry,
)

Entries = dict[str, TreeEntry | None]
Skipped = tuple[tuple[str, str], ...]


class _NotVersioned(Exception):
    """A path that Git does not take; the text says why."""


class Worktree:
    """The files of one project, looked at with the eyes of its repository."""

    __slots__ = (
        "_filters",
        "_git_dir",
        "_keeps_mode",
        "_objects",
        "_repository",
        "_staged_submodules",
        "_submodules",
        "_trees",
        "runs_programs",
    )

    def __init__(
        self,
        git_dir: GitDir,
        repository: pygit2.Repository,
        objects: ObjectWriter,
        trees: TreeCache,
        staged_submodules: Callable[[], Set[str]],
    ) -> None:
        self.runs_programs = False
        """Whether a program filtered the content of a file, which may take long."""
        self._git_dir = git_dir
        self._repository = repository
        self._objects = objects
        self._trees = trees
        self._filters = ContentFilters(repository, git_dir)
        self._keeps_mode = False
        self._staged_submodules = staged_submodules
        self._submodules: Set[str] = frozenset()

    def refresh(self) -> None:
        """Look at configuration and submodules again; once per group of commits."""
        self._submodules = self._staged_submodules()
        if self._filters.refresh():
            config = self._repository.config
            self._keeps_mode = "core.filemode" in config and not config.get_bool("core.filemode")

    def collect(self, change: Change, timeout_s: float) -> tuple[Entries, Skipped]:
        """What the tree shall hold for each path of a change, None to remove it, and the
        paths left out with the reason. Raises GitFailure GIT_ADD_FAILED."""
        change = settle_moves(change, self._tracked_content, self._content)
        entries: Entries = {}
        skipped: list[tuple[str, str]] = []
        for path in change.paths:
            try:
                check_path(path)
                tracked = self._trees.get(path.encode("utf-8", "surrogateescape"))
                self._refuse_foreign(path, tracked)
                entry = self._entry(path, change, tracked, timeout_s)
            except _NotVersioned as reason:
                skipped.append((path, str(reason)))
                continue
            except CannotDescend as submodule:
                skipped.append((path, f"it lies in the submodule {submodule}"))
                continue
            except (pygit2.GitError, ValueError, KeyError, OSError) as failure:
                raise GitFailure(
                    "GIT_ADD_FAILED", self._git_dir.scrub(f"cannot add {path}: {failure}")
                ) from failure
            if entry is not None or tracked is not None:
                entries[path] = entry
        return entries, tuple(skipped)

    def _entry(
        self, path: str, change: Change, tracked: TreeEntry | None, timeout_s: float
    ) -> TreeEntry | None:
        mode = tracked.mode if tracked and tracked.mode in (REGULAR, EXECUTABLE) else REGULAR
        if path in change.contents:
            data = change.contents[path]
        else:
            data, found = self._read(path)
            if found == SYMLINK or not self._keeps_mode:
                mode = found
        if data is None:
            return None
        if tracked is None:
            self._refuse_unversioned(path)
        if mode != SYMLINK and self._filters.changes(path, data):
            return TreeEntry(mode, self._filtered_blob(path, data, timeout_s))
        return TreeEntry(mode, self._objects.write(b"blob", data))

    def _tracked_content(self, path: str) -> bytes | None:
        try:
            check_path(path)
            tracked = self._trees.get(path.encode("utf-8", "surrogateescape"))
        except (CannotDescend, ValueError):
            return None
        if tracked is None or tracked.mode not in (REGULAR, EXECUTABLE):
            return None
        return self._repository.odb.read(pygit2.Oid(raw=tracked.oid))[1]

    def _content(self, path: str) -> bytes | None:
        try:
            return self._read(path)[0]
        except OSError:
            return b""

    def _read(self, path: str) -> tuple[bytes | None, bytes]:
        full = os.path.join(self._git_dir.root, path)
        try:
            status = os.lstat(full)
            if stat.S_ISLNK(status.st_mode):
                return os.fsencode(os.readlink(full)), SYMLINK
            if not stat.S_ISREG(status.st_mode):
                raise OSError("not a regular file")
            with open(full, "rb") as file:
                data = file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None, REGULAR
        return data, EXECUTABLE if status.st_mode & stat.S_IXUSR else REGULAR

    def _refuse_foreign(self, path: str, tracked: TreeEntry | None) -> None:
        if tracked is not None and tracked.mode == SUBMODULE:
            raise CannotDescend(path)
        reason = foreign_reason(self._git_dir.root, path, self._submodules)
        if reason is not None:
            raise _NotVersioned(reason)

    def _refuse_unversioned(self, path: str) -> None:
        if self._repository.path_is_ignored(path):
            raise _NotVersioned("it is ignored by .gitignore")
        directory = self._git_dir.root
        for name in path.split("/")[:-1]:
            directory = os.path.join(directory, name)
            if os.path.islink(directory):
                raise _NotVersioned("it lies beyond a symbolic link")

    def _filtered_blob(self, path: str, data: bytes, timeout_s: float) -> bytes:
        self.runs_programs = True
        try:
            result = run_git(
                self._git_dir.root,
                ["hash-object", "-w", "--stdin", "--path", path],
                stdin=data,
                timeout_s=timeout_s,
            )
        except GitTimeout as failure:
            raise GitFailure(
                "GIT_ADD_FAILED", str(failure), {"reason": "timeout"}, timed_out=True
            ) from failure
        if result.status != 0:
            raise GitFailure("GIT_ADD_FAILED", self._git_dir.scrub(result.complaint))
        return bytes.fromhex(result.stdout.decode("ascii").strip())
