"""New Git objects of a commit: a few become loose files, many become one pack.

A shared commit of thousands of records would otherwise cost a file for each blob, and leave
them to be packed later.
"""

from __future__ import annotations

import contextlib
import hashlib
import os

from maadd_worker.disk.folders import make_folders
from maadd_worker.failpoints import reach
from maadd_worker.history.loose_objects import TEMPORARY_PACK, LooseObjects
from maadd_worker.history.pack_file import encode_pack

PACK_FROM = 64
"""So many objects are written as a pack."""

_MOST_BYTES = 32 * 1024 * 1024


class ObjectWriter:
    """Takes the objects of one repository with SHA-1 names, and writes them on `flush`.

    Both raise OSError when the objects cannot be stored.
    """

    __slots__ = ("_bytes", "_fsync", "_level", "_loose", "_packs", "_waiting")

    def __init__(self, directory: str, *, level: int, fsync: bool) -> None:
        self._loose = LooseObjects(directory, level=level, fsync=fsync)
        self._packs = os.path.join(directory, "pack")
        self._level = level
        self._fsync = fsync
        self._waiting: dict[bytes, tuple[bytes, bytes]] = {}
        self._bytes = 0

    def write(self, kind: bytes, data: bytes) -> bytes:
        """Take an object of the given kind (`commit`, `tree`, `blob`); gives its binary name."""
        digest = hashlib.sha1(b"%s %d\0" % (kind, len(data)))
        digest.update(data)
        name = digest.digest()
        self._waiting[name] = (kind, data)
        self._bytes += len(data)
        if self._bytes > _MOST_BYTES:
            self.flush()
        return name

    def flush(self) -> None:
        """Store what was taken since the last time."""
        if len(self._waiting) < PACK_FROM:
            for name, (kind, data) in self._waiting.items():
                self._loose.write(name.hex(), kind, data)
        else:
            self._write_pack()
        self.forget()

    def forget(self) -> None:
        """Drop what was taken: no commit needs it."""
        self._waiting.clear()
        self._bytes = 0

    def _write_pack(self) -> None:
        pack = encode_pack(self._waiting, level=self._level)
        make_folders(*os.path.split(self._packs))
        # Git finds a pack by its index, which therefore comes last.
        self._publish(f"pack-{pack.name}.pack", pack.pack)
        reach("git.pack")
        self._publish(f"pack-{pack.name}.idx", pack.index)

    def _publish(self, name: str, content: bytes) -> None:
        temporary = os.path.join(self._packs, f"{TEMPORARY_PACK}{os.getpid()}")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
                if self._fsync:
                    file.flush()
                    os.fsync(descriptor)
            os.rename(temporary, os.path.join(self._packs, name))
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
