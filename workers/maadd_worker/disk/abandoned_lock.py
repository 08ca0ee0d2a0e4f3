"""A project whose owner works for nobody: its server is gone, and it does not leave.

A worker ends by itself soon after its server did. One that cannot, because it is stopped or
hangs, is ended by the next owner: what it was about to write is in the journal.
"""

from __future__ import annotations

import os
import select
import signal

from maadd.protocol.ownership import Owner, acquire_flock, last_owner
from maadd.protocol.process_identity import is_running

_GRACE_S = 3.0
"""More than a worker takes to finish its write and leave (spec 04 §13: 2 s)."""

_KILL_S = 2.0


def take_over(root: str, path: str, *, shared: bool) -> tuple[int, Owner | None] | None:
    """The lock at `path` of a worker whose server is gone: left behind in order, or by a worker
    that was ended for it and is returned as well. None when its owner is in its right."""
    owner = last_owner(root)
    if not owner.is_abandoned:
        return None
    freed = _acquire(path, _GRACE_S, shared)
    if freed is not None:
        return freed, None
    if last_owner(root) != owner or not _end(owner, path):
        return None
    freed = _acquire(path, _KILL_S, shared)
    return None if freed is None else (freed, owner)


def _acquire(path: str, wait_s: float, shared: bool) -> int | None:
    try:
        return acquire_flock(path, shared=shared, create=not shared, wait_s=wait_s)
    except BlockingIOError:
        return None


def _end(owner: Owner, path: str) -> bool:
    """Kill the owner, if it is certain that it is the one: True when it has ended."""
    process = owner.process
    if process is None or not hasattr(os, "pidfd_open"):
        return False
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        # Looked at after the handle was made: what is found is true of the process it leads to.
        if not (is_running(process) and _is_ours(process.pid) and _holds(process.pid, path)):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        ended, _, _ = select.select([handle], [], [], _KILL_S)
        return bool(ended)
    except OSError:
        return False
    finally:
        os.close(handle)


def _is_ours(pid: int) -> bool:
    return os.stat(f"/proc/{pid}").st_uid == os.geteuid()


def _holds(pid: int, path: str) -> bool:
    """Whether the process has the file at `path` open and locked."""
    file = os.stat(path)
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            if not os.path.samestat(os.stat(f"/proc/{pid}/fd/{name}"), file):
                continue
            with open(f"/proc/{pid}/fdinfo/{name}", encoding="ascii") as facts:
                if any(line.startswith("lock:") and "FLOCK" in line for line in facts):
                    return True
        except OSError:
            continue
    return False
