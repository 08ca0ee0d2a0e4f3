"""A project directory, held by descriptor (spec 01 §16).

Every path is walked from the descriptor name by name without following links, so nothing
can be exchanged between a check and its use. A link on the way is resolved, must lead to a
place inside the project, and that place is walked in the same way.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.disk.paths import is_within, outside_project, segments
from maadd_worker.disk.scan import MarkdownWalk, walk_markdown

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_WALK_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
_LIST_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_LINK_REFUSALS = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)
_NO_SUCH_NAME = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
_MAX_LINKS = 40
_THREADS = 8
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


T = TypeVar("T")
R = TypeVar("R")


class FileContent(msgspec.Struct, frozen=True):
    """The bytes of a file and the stamp it had when reading began.

    A stamp (`mtime_ns`, `size`, `inode`) that differs later says that the file changed.
    """

    data: bytes
    mtime_ns: int
    size: int
    inode: int


class _LinkOnTheWay(Exception):
    """The name at `position` of a path is a symbolic link."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


class ProjectRoot:
    """The root of one project; usable from several threads.

    `path` is the absolute path with links resolved, for messages to operators and for tools
    that need one; it never belongs into an answer.
    """

    __slots__ = ("_fd", "_threads", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._threads: ThreadPoolExecutor | None = None

    @property
    def held_path(self) -> str:
        """A path that leads to the directory that is held wherever it is moved, and to no other
        that takes its place; children of this process may use it. For tools that need a path."""
        held = f"/proc/{os.getpid()}/fd/{self._fd}"
        try:
            same = os.path.samestat(os.stat(held), os.fstat(self._fd))
        except OSError:
            return self.path  # a system without it
        return held if same else self.path

    @classmethod
    def open(cls, path: str) -> ProjectRoot:
        """Hold the directory at `path`; FILE_READ_ERROR when it is none or unreadable."""
        try:
            real = os.path.realpath(path, strict=True)
            return cls(real, os.open(real, os.O_RDONLY | os.O_DIRECTORY))
        except OSError as failure:
            raise MaadError(
                "FILE_READ_ERROR",
                f"the project's folder cannot be opened: {os.strerror(failure.errno or 0)}; check "
                "its path (one in an instance file is relative to that file)",
                {"errno": errno_name(failure)},
            ) from None

    def close(self) -> None:
        """Let the directory go; safe to call again."""
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def at_once(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """The results of `work`, which waits for the disk, on several items at the same time.

        For one thread only, the one that writes; `work` returns its failures.
        """
        if len(items) < 2:
            return [work(item) for item in items]
        if self._threads is None:
            # Slow to import, and parsing processes, which start anew, have no use for it.
            from concurrent.futures import ThreadPoolExecutor

            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="disk")
        return list(self._threads.map(work, items))

    def stat(self, rel: str) -> os.stat_result:
        """One system call that follows links and checks no containment; OSError passes."""
        return os.stat(rel, dir_fd=self._fd)

    def read(self, rel: str, max_bytes: int | None = None) -> FileContent:
        """The content of a regular file.

        Raises PATH_OUTSIDE_PROJECT, DOC_TOO_LARGE (`{sizeBytes, capBytes}`, nothing is read;
        a cap of None or 0 is no cap) and FILE_READ_ERROR (`{file, errno}`, also when absent).
        """
        try:
            fd = self._open(rel, _READ_FLAGS)
            try:
                return _read_open_file(fd, rel, max_bytes or 0)
            finally:
                os.close(fd)
        except OSError as failure:
            raise _unreadable(rel, failure) from None

    def exists(self, rel: str) -> bool:
        """Whether the name is taken, even by a dangling link.

        Raises PATH_OUTSIDE_PROJECT, and FILE_READ_ERROR when a directory keeps it secret.
        """
        try:
            with self.parent(rel) as (directory, name):
                os.stat(name, dir_fd=directory, follow_symlinks=False)
        except OSError as failure:
            if failure.errno in _NO_SUCH_NAME:
                return False
            raise _unreadable(rel, failure) from None
        return True

    def resolve(self, rel: str) -> str:
        """The project-relative path `rel` leads to with all links resolved.

        Raises PATH_OUTSIDE_PROJECT also when it leads nowhere.
        """
        return "/".join(self._resolved(segments(rel)))

    def walk_markdown(self, rel_dir: str) -> MarkdownWalk:
        """The records and tombstones below a directory (spec 01 §14.1)."""
        return walk_markdown(self, rel_dir)

    def open_directory(self, rel: str, *, follow_links: bool = True) -> int:
        """A descriptor for listing and syncing a directory; the caller closes it.

        Raises PATH_OUTSIDE_PROJECT; OSError passes. Without `follow_links` a link on the way
        is NotADirectoryError.
        """
        if follow_links:
            return self._open(rel, _LIST_FLAGS)
        try:
            return self._open_names(segments(rel), _LIST_FLAGS)
        except _LinkOnTheWay:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None

    @contextmanager
    def parent(self, rel: str) -> Iterator[tuple[int, str]]:
        """A descriptor of the directory a path stands in, and its last name.

        For one system call on that name. Raises PATH_OUTSIDE_PROJECT; OSError passes.
        """
        names = segments(rel)
        if not names:
            raise outside_project(rel)
        directory = self._open("/".join(names[:-1]), _WALK_FLAGS)
        try:
            yield directory, names[-1]
        finally:
            os.close(directory)

    def _open(self, rel: str, flags: int) -> int:
        names = segments(rel)
        for _ in range(_MAX_LINKS):
            try:
                return self._open_names(names, flags)
            except _LinkOnTheWay as link:
                # Only the link is resolved: what stands behind it may not exist yet.
                names = self._resolved(names[: link.position + 1]) + names[link.position + 1 :]
        raise outside_project(rel)

    def _open_names(self, names: Sequence[str], flags: int) -> int:
        """Open the last name with `flags`, every one before it as a directory."""
        if not names:
            return os.open(".", flags, dir_fd=self._fd)
        last = len(names) - 1
        directory = self._fd
        try:
            for index, name in enumerate(names):
                try:
                    fd = os.open(name, flags if index == last else _WALK_FLAGS, dir_fd=directory)
                except OSError as failure:
                    if failure.errno in _LINK_REFUSALS and _is_link(name, directory):
                        raise _LinkOnTheWay(index) from None
                    raise
                if directory != self._fd:
                    os.close(directory)
                directory = fd
        except BaseException:
            if directory != self._fd:
                os.close(directory)
            raise
        return directory

    def _resolved(self, names: Sequence[str]) -> list[str]:
        try:
            real = os.path.realpath(os.path.join(self.path, *names), strict=True)
        except (OSError, ValueError):
            raise outside_project("/".join(names)) from None
        if not is_within(self.path, real):
            raise outside_project("/".join(names))
        return segments(real[len(self.path) :].lstrip("/"))


def errno_name(failure: OSError) -> str:
    """The symbolic name of an error number, such as `ENOSPC`."""
    return errno.errorcode.get(failure.errno or 0, "EIO")


def _unreadable(rel: str, failure: OSError) -> MaadError:
    return MaadError(
        "FILE_READ_ERROR",
        f"{rel} cannot be read: {os.strerror(failure.errno or 0)}",
        {"file": rel, "errno": errno_name(failure)},
    )


def _is_link(name: str, directory: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _read_open_file(fd: int, rel: str, max_bytes: int) -> FileContent:
    before = os.fstat(fd)
    if not stat.S_ISREG(before.st_mode):
        raise MaadError(
            "FILE_READ_ERROR", f"{rel} is not a regular file", {"file": rel, "errno": "EINVAL"}
        )
    size = before.st_size
    if max_bytes and size > max_bytes:
        raise _too_large(rel, size, max_bytes)
    # One byte more than the file has: a shorter answer is its end, without a second call.
    data = os.read(fd, size + 1)
    if len(data) > size:
        chunks = [data]
        while chunks[-1] and not (max_bytes and sum(map(len, chunks)) > max_bytes):
            chunks.append(os.read(fd, 1 << 20))
        data = b"".join(chunks)
        if max_bytes and len(data) > max_bytes:
            raise _too_large(rel, len(data), max_bytes)
    return FileContent(data, before.st_mtime_ns, size, before.st_ino)


def _too_large(rel: str, size: int, cap: int) -> MaadError:
    return MaadError(
        "DOC_TOO_LARGE",
        f"{rel} has {size} bytes, more than the cap of {cap} (MAAD_MAX_DOC_BYTES)",
        {"sizeBytes": size, "capBytes": cap},
    )
