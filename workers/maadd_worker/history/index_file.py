"""Brings the Git index file up to date for the paths that were committed (design §7).

A commit that goes past the index would make a person's next `git commit` drop the record
again; so the index follows each group of commits, while the lock is held. Entries of other
paths, staged or not, stay as they are.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Sequence

from maadd_worker.failpoints import reach
from maadd_worker.history.command import GitTimeout, child_environment, run_git
from maadd_worker.history.foreign_folders import submodules_listed
from maadd_worker.history.git_dir import GitDir
from maadd_worker.history.index_format import (
    DamagedIndex,
    IndexEntry,
    UnsupportedIndex,
    edit_index,
    find_objects,
    find_submodules,
    new_index,
)
from maadd_worker.history.index_lock import TEMPORARY_PREFIX
from maadd_worker.history.index_splice import Landmarks, splice_index
from maadd_worker.history.outcome import GitFailure
from maadd_worker.history.trees import SYMLINK, TreeEntry

_LARGEST_CHECKED = 32 * 1024 * 1024
_SAME_MOMENT_S = 0.1
"""Who writes the index so soon after us cannot have read ours first and thought about it: editors
and other programs with a Git of their own read and write it within a few milliseconds."""

_Identity = tuple[int, int, int, int]


class IndexFile:
    """The index of one repository; the caller holds its lock."""

    __slots__ = (
        "_git_dir",
        "_landmarks",
        "_path",
        "_seen",
        "_submodules",
        "_submodules_at",
        "_temporary",
    )

    def __init__(self, git_dir: GitDir) -> None:
        self._git_dir = git_dir
        self._seen: _Identity | None = None
        self._landmarks: Landmarks | None = None
        self._submodules: frozenset[str] = frozenset()
        self._submodules_at: _Identity | None = None
        self._path = os.path.join(git_dir.path, "index")
        self._temporary = os.path.join(git_dir.path, f"{TEMPORARY_PREFIX}{os.getpid()}")

    def written_over(self, paths: Sequence[str]) -> dict[str, bytes] | None:
        """The object ids that the index has for some paths, where it was written by somebody
        who may have read it before our last `update`; none where only `git` can tell.

        None when nobody has: since then it is as we left it, or a command has changed entries.
        `git commit` reads the index before it takes the lock, such a command afterwards.
        """
        written = self.written_by_others()
        if self._seen is None or written is None:
            return None
        wanted = {path.encode("utf-8", "surrogateescape") for path in paths}
        try:
            with open(self._path, "rb") as file:
                found, edited = find_objects(file.read(), wanted)
        except (OSError, DamagedIndex, UnsupportedIndex):
            return {}
        if edited and written - self._seen[2] / 1e9 > _SAME_MOMENT_S:
            return None
        return {path.decode("utf-8", "surrogateescape"): oid for path, oid in found.items()}

    def submodules(self) -> frozenset[str]:
        """The submodules in the index, staged ones too; read again when somebody wrote it."""
        identity = self._identity()
        if identity != self._submodules_at:
            self._submodules = frozenset(self._read_submodules())
            self._submodules_at = identity
        return self._submodules

    def _read_submodules(self) -> set[str]:
        try:
            with open(self._path, "rb") as file:
                return set(map(os.fsdecode, find_submodules(file.read())))
        except UnsupportedIndex:
            return submodules_listed(self._run("ls-files", "--stage", "-z", temporary=False))
        except (OSError, DamagedIndex):
            return set()  # `update` tells of it

    def _identity(self) -> _Identity | None:
        try:
            return _identity(os.stat(self._path))
        except OSError:
            return None

    def size(self) -> int:
        """Bytes of the index; 0 when there is none."""
        try:
            return os.stat(self._path).st_size
        except OSError:
            return 0

    def objects(self, paths: Sequence[str]) -> dict[str, bytes] | None:
        """The object ids that the index has for some paths; None where only `git` can tell."""
        wanted = {path.encode("utf-8", "surrogateescape") for path in paths}
        try:
            with open(self._path, "rb") as file:
                found, _ = find_objects(file.read(), wanted)
        except (OSError, DamagedIndex, UnsupportedIndex):
            return None
        return {path.decode("utf-8", "surrogateescape"): oid for path, oid in found.items()}

    def update(self, entries: dict[str, TreeEntry | None]) -> None:
        """Set the index entries of some paths, None removing one.

        Raises GitFailure when the index cannot be read or written; it is unchanged then.
        """
        try:
            reach("git.index")
            known = self._submodules_at is not None and self._identity() == self._submodules_at
            if not self._write_edited(entries):
                self._edit_by_program(entries)
            reach("git.index.written")
            os.replace(self._temporary, self._path)
            self._seen = _identity(os.stat(self._path))
            self._submodules_at = self._seen if known else None
            reach("git.indexed")
        except DamagedIndex as failure:
            raise GitFailure(
                "GIT_UNKNOWN_ERROR",
                f"the Git index is damaged ({failure}); remove .git/index and run `git reset`",
            ) from failure
        except OSError as failure:
            raise GitFailure(
                "GIT_UNKNOWN_ERROR",
                f"cannot write the Git index: {os.strerror(failure.errno or 0)}",
            ) from failure
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._temporary)

    def written_by_others(self) -> float | None:
        """When somebody else wrote the index since we last did, as `time.time()`; None when
        nobody has, or this process has not written it yet."""
        if self._seen is None:
            return None
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return None if _identity(status) == self._seen else status.st_mtime

    def _write_edited(self, entries: dict[str, TreeEntry | None]) -> bool:
        """Write the new index beside the old one; False when only `git` can."""
        landmarks: Landmarks | None = None
        try:
            with open(self._path, "rb") as file:
                status = os.fstat(file.fileno())
                data, mode = file.read(), stat.S_IMODE(status.st_mode)
                if _identity(status) == self._seen:
                    landmarks = self._landmarks
        except FileNotFoundError:
            data, mode = self._index_of_head(), 0o644
        updates = {
            path.encode("utf-8", "surrogateescape"): self._with_stat(path, entry)
            for path, entry in entries.items()
        }
        self._seen = self._landmarks = None
        try:
            spliced = splice_index(data, updates, landmarks)
            edited = (edit_index(data, updates),) if spliced is None else spliced.parts
        except UnsupportedIndex:
            return False
        with open(self._temporary, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.writelines(edited)
        self._landmarks = None if spliced is None else spliced.landmarks
        return True

    def _index_of_head(self) -> bytes:
        """A missing index counts as empty, as if every file were staged for removal: start
        from the commit instead."""
        self._run("read-tree", "HEAD")
        try:
            with open(self._temporary, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return new_index()

    def _with_stat(self, path: str, entry: TreeEntry | None) -> IndexEntry | None:
        """The index entry of a path; with stat data only if the file really has the content
        of the entry, since Git takes them as proof that it has."""
        if entry is None:
            return None
        plain = IndexEntry(int(entry.mode, 8), entry.oid)
        if entry.mode == SYMLINK:
            return plain
        try:
            descriptor = os.open(
                os.path.join(self._git_dir.root, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            )
        except OSError:
            return plain
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_CHECKED:
                return plain
            data = file.read()
        digest = hashlib.sha1(b"blob %d\0" % len(data))
        digest.update(data)
        if digest.digest() != entry.oid or len(data) != status.st_size:
            return plain
        return IndexEntry(
            plain.mode,
            plain.oid,
            status.st_ctime_ns,
            status.st_mtime_ns,
            status.st_dev,
            status.st_ino,
            status.st_uid,
            status.st_gid,
            status.st_size,
        )

    def _edit_by_program(self, entries: dict[str, TreeEntry | None]) -> None:
        shutil.copy2(self._path, self._temporary)
        lines = [
            b"%s %s\t%s\0"
            % (
                entry.mode if entry else b"0",
                entry.oid.hex().encode() if entry else b"0" * 40,
                path.encode("utf-8", "surrogateescape"),
            )
            for path, entry in entries.items()
        ]
        self._run("update-index", "-z", "--index-info", stdin=b"".join(lines))

    def _run(self, *arguments: str, stdin: bytes | None = None, temporary: bool = True) -> bytes:
        root = self._git_dir.root
        file = {"GIT_INDEX_FILE": self._temporary} if temporary else {}
        environment = child_environment(root, file)
        try:
            result = run_git(root, arguments, stdin=stdin, environment=environment)
        except GitTimeout as failure:
            raise GitFailure("GIT_UNKNOWN_ERROR", str(failure), {"reason": "timeout"}) from failure
        if result.status != 0:
            raise GitFailure("GIT_UNKNOWN_ERROR", f"the Git index: {result.complaint}")
        return result.stdout


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
