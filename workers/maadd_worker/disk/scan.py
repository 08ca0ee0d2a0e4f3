"""The Markdown files below a directory (spec 01 §14.1)."""

from __future__ import annotations

import os
import stat
from typing import Protocol

import msgspec

from maadd.protocol.errors import MaadError

TOMBSTONE_PREFIX = "_deleted_"


class MarkdownFile(msgspec.Struct, frozen=True):
    """A file found by a walk: project-relative path and stamp."""

    path: str
    size: int
    mtime_ns: int
    inode: int


class MarkdownWalk(msgspec.Struct, frozen=True):
    """What a walk found, sorted by path.

    `tombstones` are soft-deleted records (`_deleted_*.md`). Not `complete` means that a
    directory was missing or unreadable: files the walk lacks may well exist.
    """

    files: tuple[MarkdownFile, ...]
    tombstones: tuple[MarkdownFile, ...]
    complete: bool
    warnings: list[str]


class ContainedDirectories(Protocol):
    """What a walk needs of a project root."""

    def open_directory(self, rel: str, *, follow_links: bool = True) -> int: ...
    def resolve(self, rel: str) -> str: ...
    def stat(self, rel: str) -> os.stat_result: ...


def walk_markdown(root: ContainedDirectories, rel_dir: str) -> MarkdownWalk:
    """All `.md` files below `rel_dir`.

    Directories that are links or begin with a dot are not entered. A linked file counts when
    it leads to a regular file of the project, else it is dropped with a warning. `rel_dir`
    itself may be a link that stays inside.
    """
    walk = _Walk(root)
    pending = [rel_dir.strip("/")]
    walk.directory(pending.pop(), pending, follow_links=True)
    while pending:
        walk.directory(pending.pop(), pending, follow_links=False)
    return MarkdownWalk(
        tuple(sorted(walk.files, key=_path)),
        tuple(sorted(walk.tombstones, key=_path)),
        walk.complete,
        sorted(walk.warnings),
    )


def _path(file: MarkdownFile) -> str:
    return file.path


class _Walk:
    """The findings of a walk while it goes on."""

    __slots__ = ("_root", "complete", "files", "tombstones", "warnings")

    def __init__(self, root: ContainedDirectories) -> None:
        self._root = root
        self.files: list[MarkdownFile] = []
        self.tombstones: list[MarkdownFile] = []
        self.warnings: list[str] = []
        self.complete = True

    def directory(self, rel: str, pending: list[str], *, follow_links: bool) -> None:
        """Read one directory; directories in it are added to `pending`."""
        try:
            fd = self._root.open_directory(rel, follow_links=follow_links)
        except (OSError, MaadError) as failure:
            self._unreadable(rel, failure)
            return
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    self._entry(f"{rel}/{entry.name}" if rel else entry.name, entry, pending)
        except OSError as failure:
            self._unreadable(rel, failure)
        finally:
            os.close(fd)

    def _entry(self, rel: str, entry: os.DirEntry[str], pending: list[str]) -> None:
        name = entry.name
        if entry.is_dir(follow_symlinks=False):
            if not name.startswith("."):
                pending.append(rel)
            return
        if not name.endswith(".md"):
            return
        if not _is_utf8(name):
            self.warnings.append(f"{rel!a} skipped: its name is not UTF-8; rename it")
            return
        try:
            if entry.is_symlink():
                self._root.resolve(rel)
                status = self._root.stat(rel)
            else:
                status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return
        except MaadError:
            self.warnings.append(f"{rel} skipped: the link leaves the project or leads nowhere")
            return
        if not stat.S_ISREG(status.st_mode):
            self.warnings.append(f"{rel} skipped: not a regular file")
            return
        found = MarkdownFile(rel, status.st_size, status.st_mtime_ns, status.st_ino)
        (self.tombstones if name.startswith(TOMBSTONE_PREFIX) else self.files).append(found)

    def _unreadable(self, rel: str, failure: OSError | MaadError) -> None:
        self.complete = False
        if isinstance(failure, MaadError):
            reason = "it leaves the project"
        else:
            reason = os.strerror(failure.errno or 0)
        self.warnings.append(f"directory {rel or '.'} could not be read: {reason}")


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
