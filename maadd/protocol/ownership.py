"""Who owns a project: the lock file `_backend/lock` as every process reads it (spec 01 §1.1).

It holds one line of JSON, `{"pid", "endpoint"}`, and is never deleted. The kernel's lock alone
says who owns the project: it ends with its process, however that died, so a line left in the
file proves nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time

import msgspec

LOCK_PATH = "_backend/lock"
_HANDOVER_S = 0.05
_PROBE_S = 0.005


class Owner(msgspec.Struct, frozen=True):
    """Who holds a project: process id and control socket, each None when not known."""

    pid: int | None = None
    endpoint: str | None = None


def acquire_flock(
    path: str, *, shared: bool = False, create: bool = True, wait_s: float = _HANDOVER_S
) -> int:
    """Lock the file at `path`; the returned descriptor holds the lock until it is closed.

    `wait_s` bounds how long a lock that is just being given up is waited for. Raises
    BlockingIOError when the lock stays held, FileNotFoundError without `create`, any other
    OSError as the file system gave it.
    """
    flags = os.O_RDONLY if shared and not create else os.O_RDWR
    if create:
        flags |= os.O_CREAT
    operation = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    give_up = time.monotonic() + wait_s
    while True:
        descriptor = os.open(path, flags, 0o644)
        try:
            fcntl.flock(descriptor, operation)
            if _is_at(descriptor, path):
                return descriptor
        except BlockingIOError:
            if time.monotonic() >= give_up:
                os.close(descriptor)
                raise
            time.sleep(_PROBE_S)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_at(descriptor: int, path: str) -> bool:
    """Whether the locked file still is the one others would open."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    return False


def read_owner(root: str) -> Owner | None:
    """The process that owns the project at `root` for writing now; None when nobody does, or
    when the lock cannot be looked at, which whoever takes it is told better."""
    try:
        descriptor = acquire_flock(
            os.path.join(root, LOCK_PATH), shared=True, create=False, wait_s=0
        )
    except BlockingIOError:
        return last_owner(root)
    except OSError:
        return None
    os.close(descriptor)
    return None


def last_owner(root: str) -> Owner:
    """What the last owner of the project at `root` wrote of itself, gone or not."""
    try:
        with open(os.path.join(root, LOCK_PATH), "rb") as file:
            return msgspec.json.decode(file.read(4096), type=Owner)
    except (OSError, msgspec.MsgspecError):
        return Owner()
