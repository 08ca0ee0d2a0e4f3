"""A full disk as SQLite tells of it (spec 01 §15.2)."""

from __future__ import annotations

import apsw

FREE_SOME = "free some space on the disk of the project"


def is_full_disk(error: Exception) -> bool:
    """Whether SQLite failed as there was no room: for a page, or for the file that the connections
    to a database share."""
    if isinstance(error, apsw.FullError):
        return True
    return getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE
