"""Which process is meant: its number alone may name another one a moment later."""

from __future__ import annotations

import os
import socket
import struct
from functools import cache

import msgspec

_CREDENTIALS = "3i"


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A process. `started` counts clock ticks since the start of the system; `realm` names that
    start and the space of process ids, outside of which the numbers mean nothing."""

    pid: int
    started: int
    realm: str


@cache
def this_realm() -> str | None:
    """Where the process ids of this process count; None where the system does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot}:{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return None


def identify(pid: int) -> ProcessIdentity | None:
    """The process that has this number now; None when there is none that lives."""
    realm, status = this_realm(), _status(pid)
    if realm is None or status is None:
        return None
    return ProcessIdentity(pid, status[1], realm)


def is_running(process: ProcessIdentity) -> bool:
    """Whether it surely lives."""
    return identify(process.pid) == process


def is_gone(process: ProcessIdentity) -> bool:
    """Whether it surely has ended; False also for a process that cannot be judged from here."""
    if process.realm != this_realm():
        return False
    status = _status(process.pid)
    if status is not None:
        return status[1] != process.started
    try:
        os.kill(process.pid, 0)
    except PermissionError:
        return False  # of another user, whose processes /proc may hide
    except (ProcessLookupError, OverflowError):
        pass
    return True


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped the process, so that it does nothing before another one."""
    status = _status(pid)
    return status is not None and status[0] in "Tt"


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Process id and user id of the other end of a unix socket, as the kernel noted them: of who
    connected, or of who listens."""
    credentials = connection.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(_CREDENTIALS)
    )
    pid, uid, _gid = struct.unpack(_CREDENTIALS, credentials)
    return pid, uid


def _status(pid: int) -> tuple[str, int] | None:
    """State and start of a process; None when there is none, or one that only waits to be
    collected."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else (fields[0], int(fields[19]))
