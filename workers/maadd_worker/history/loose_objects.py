"""Writes loose Git objects at any compression level.

libgit2 always compresses (asked for level 0 it writes a file nobody can read), and for the
tree of a flat folder of thousands of records compression is most of the cost of a commit.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import zlib

from maadd_worker.disk.folders import make_folders
from maadd_worker.disk.publish import is_gone
from maadd_worker.failpoints import reach

DEFAULT_LEVEL = 1
"""Git's own default for loose objects."""

TEMPORARY_OBJECT = "tmp_obj_maadd_"
TEMPORARY_PACK = "tmp_pack_maadd_"
"""Beginnings of our unfinished files; the process id follows. `git gc` removes them too."""

_TEMPORARY = re.compile(f"(?:{TEMPORARY_OBJECT}|{TEMPORARY_PACK})([0-9]+)(?:_[0-9]+)?")
_FAILPOINTS = {b"blob": "git.blob", b"tree": "git.tree", b"commit": "git.committed"}


def sweep_unfinished(directory: str) -> None:
    """Remove what dead processes of ours left in the object directory of a repository.

    Unfinished files of this process count as left behind: call it before the first commit.
    """
    with os.scandir(directory) as folders:
        names = [folder.name for folder in folders if len(folder.name) == 2]
    for name in (*names, "pack"):
        folder = os.path.join(directory, name)
        with contextlib.suppress(OSError):
            for file in os.listdir(folder):
                match = _TEMPORARY.fullmatch(file)
                if match is not None and is_gone(int(match[1])):
                    os.unlink(os.path.join(folder, file))


class LooseObjects:
    """The object directory of a repository with SHA-1 names, for writing."""

    __slots__ = ("_directory", "_fsync", "_level", "_numbers")

    def __init__(self, directory: str, *, level: int = DEFAULT_LEVEL, fsync: bool = False) -> None:
        self._directory = directory
        self._level = level
        self._fsync = fsync
        self._numbers = itertools.count()

    def write(self, name: str, kind: bytes, data: bytes) -> None:
        """Store an object of the given kind (`commit`, `tree`, `blob`) under its hexadecimal
        name.

        Raises OSError when it cannot be stored.
        """
        folder = os.path.join(self._directory, name[:2])
        path = os.path.join(folder, name[2:])
        try:
            os.utime(path)  # keeps it from being pruned as old, as Git does
        except FileNotFoundError:
            self._create(folder, path, b"%s %d\0" % (kind, len(data)), data)
            reach(_FAILPOINTS[kind])

    def _create(self, folder: str, path: str, head: bytes, data: bytes) -> None:
        deflate = zlib.compressobj(self._level)
        content = deflate.compress(head) + deflate.compress(data) + deflate.flush()
        temporary = os.path.join(folder, f"{TEMPORARY_OBJECT}{os.getpid()}_{next(self._numbers)}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            descriptor = os.open(temporary, flags, 0o444)
        except FileNotFoundError:
            make_folders(self._directory, os.path.basename(folder))
            descriptor = os.open(temporary, flags, 0o444)
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
                if self._fsync:
                    file.flush()
                    os.fsync(descriptor)
            reach("git.object")
            os.rename(temporary, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
