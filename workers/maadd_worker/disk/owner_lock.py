"""Owning a project: `flock` on `_backend/lock` (spec 01 §1.1)."""

from __future__ import annotations

import errno
import os

import msgspec

from maadd.protocol.errors import MaadError
from maadd.protocol.ownership import LOCK_PATH, Owner, acquire_flock, last_owner


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
            raise _locked(last_owner(root)) from None
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
