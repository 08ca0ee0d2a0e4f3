"""The owner lock of a project: `flock` on `_backend/lock` (spec 01 §1.1).

The lock file holds one line of JSON, `{"pid", "endpoint"}`, and is never deleted. The
kernel's lock alone says who owns the project: it ends with its process, however that died,
so a line left in the file proves nothing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time

import msgspec

from maadd.protocol.errors import MaadError

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
    """The process that owns the project at `root` for writing now, None when nobody does."""
    path = os.path.join(root, LOCK_PATH)
    try:
        descriptor = acquire_flock(path, shared=True, create=False, wait_s=0)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return _read_line(path)
    os.close(descriptor)
    return None


def _read_line(path: str) -> Owner:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(4096), type=Owner)
    except (OSError, msgspec.MsgspecError):
        return Owner()


class OwnerLock:
    """The right to open a project, held until `release` or the end of the process."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, root: str, endpoint: str | None, *, read_only: bool = False) -> OwnerLock:
        """Become the owner of the project at `root`.

        A read-only engine creates nothing: it shares the lock when the file exists and goes
        without when it does not. Raises PROJECT_LOCKED when another process holds the
        project, BACKEND_ERROR when the file system cannot lock.
        """
        path = os.path.join(root, LOCK_PATH)
        try:
            if read_only:
                return cls(acquire_flock(path, shared=True, create=False))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            descriptor = acquire_flock(path)
        except FileNotFoundError:
            return cls(None)
        except BlockingIOError:
            raise _locked(_read_line(path)) from None
        except OSError as failure:
            raise _cannot_lock(failure) from failure
        lock = cls(descriptor)
        try:
            line = msgspec.json.encode(Owner(os.getpid(), endpoint)) + b"\n"
            os.pwrite(descriptor, line, 0)
            os.ftruncate(descriptor, len(line))
        except OSError as failure:
            lock.release()
            raise _cannot_lock(failure) from failure
        return lock

    def release(self) -> None:
        """Give the project up; the file stays. Further calls do nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _locked(owner: Owner) -> MaadError:
    pid = owner.pid if owner.pid is not None and _alive(owner.pid) else None
    by = f"process {pid}" if pid is not None else "another process"
    return MaadError(
        "PROJECT_LOCKED",
        f"the project is open in {by}; stop the server it belongs to, or send the request to "
        "that server",
        {"scope": "project", "ownerPid": pid},
    )


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _cannot_lock(failure: OSError) -> MaadError:
    reason = os.strerror(failure.errno) if failure.errno else str(failure)
    hint = (
        "; put the project on a file system with working flock"
        if failure.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
        else "; check the permissions and the space of _backend/"
    )
    return MaadError(
        "BACKEND_ERROR", f"cannot lock {LOCK_PATH}: {reason}{hint}", {"errno": failure.errno}
    )
