"""Writes loose Git objects at any compression level.

libgit2 always compresses (asked for level 0 it writes a file nobody can read), and for the
tree of a flat folder of thousands of records compression is most of the cost of a commit.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import zlib

DEFAULT_LEVEL = 1
"""Git's own default for loose objects."""


class LooseObjects:
    """The object directory of a repository with SHA-1 names, for writing."""

    __slots__ = ("_directory", "_fsync", "_level", "_numbers")

    def __init__(self, directory: str, *, level: int = DEFAULT_LEVEL, fsync: bool = False) -> None:
        self._directory = directory
        self._level = level
        self._fsync = fsync
        self._numbers = itertools.count()

    def write(self, name: str, kind: bytes, data: bytes) -> None:
        """Store an object of the given kind (`tree`, `blob`) under its hexadecimal name.

        Raises OSError when it cannot be stored.
        """
        folder = os.path.join(self._directory, name[:2])
        path = os.path.join(folder, name[2:])
        try:
            os.utime(path)  # keeps it from being pruned as old, as Git does
        except FileNotFoundError:
            self._create(folder, path, b"%s %d\0" % (kind, len(data)), data)

    def _create(self, folder: str, path: str, head: bytes, data: bytes) -> None:
        deflate = zlib.compressobj(self._level)
        content = deflate.compress(head) + deflate.compress(data) + deflate.flush()
        temporary = os.path.join(folder, f"tmp_obj_{os.getpid()}_{next(self._numbers)}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            descriptor = os.open(temporary, flags, 0o444)
        except FileNotFoundError:
            os.makedirs(folder, exist_ok=True)
            descriptor = os.open(temporary, flags, 0o444)
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
                if self._fsync:
                    file.flush()
                    os.fsync(descriptor)
            os.rename(temporary, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
