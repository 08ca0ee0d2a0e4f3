"""How long the write-ahead log of a database may get on the disk it lies on (spec 01 §15.2).

Writing a log back frees its place, but may itself need some; so it is done while there is enough.
"""

from __future__ import annotations

import os

_PAGE_BYTES = 4096
_FEWEST_PAGES = 16
_LOGS_THAT_FIT = 8
_RESERVE_BYTES = 1024 * 1024


def log_bytes(path: str) -> int:
    """The size of the log beside the database at `path`; 0 without one."""
    try:
        return os.stat(f"{path}-wal").st_size
    except OSError:
        return 0


def log_room(path: str, most: int) -> int:
    """Pages of 4 KiB that the log of the database at `path` may get before it is written back:
    `most` where the disk has several times that free, fewer on a disk that is small or full."""
    return min(most, max(_FEWEST_PAGES, (_free(path) // _LOGS_THAT_FIT) // _PAGE_BYTES))


def is_cramped(path: str) -> bool:
    """Whether the disk is so full that the log of the database at `path` should be written back
    and cut off at once."""
    free = _free(path)
    if free >= 1 << 30:
        return False
    log = log_bytes(path)
    return log > 0 and free < _RESERVE_BYTES + 2 * log


def _free(path: str) -> int:
    """Free bytes for this user; plenty where that cannot be told."""
    try:
        found = os.statvfs(os.path.dirname(path) or ".")
    except OSError:
        return 1 << 40
    return found.f_bavail * found.f_frsize
