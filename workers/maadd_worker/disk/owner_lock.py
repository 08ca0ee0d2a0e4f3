"""Owning a project: `flock` on `_backend/lock` (spec 01 §1.1)."""

from __future__ import annotations

import errno
import os

import msgspec

from maadd.protocol.errors import MaadError
from maadd.protocol.ownership import (
    LOCK_PATH,
    Owner,
    Server,
    acquire_flock,
    last_owner,
    lock_holders,
    this_owner,
)
from maadd.protocol.process_identity import is_running
from maadd_worker.disk.abandoned_lock import take_over
from maadd_worker.disk.folders import make_folders
from maadd_worker.disk.root import errno_name


class OwnerLock:
    """The right to open a project, held until `release` or the end of the process."""

    __slots__ = ("_descriptor", "ended")

    def __init__(self, descriptor: int | None, ended: Owner | None = None) -> None:
        self._descriptor = descriptor
        self.ended = ended
        """The abandoned worker that was killed for the lock."""

    @classmethod
    def acquire(
        cls,
        root: str,
        endpoint: str | None,
        server: Server | None = None,
        *,
        read_only: bool = False,
    ) -> OwnerLock:
        """Become the owner of the project at `root`, for `server` and its control socket.

        A read-only engine creates nothing: it shares the lock when the file exists and goes
        without when it does not. A worker whose server is gone has a few seconds to leave, and
        is killed then. Raises PROJECT_LOCKED when another process holds the project,
        BACKEND_ERROR when the file system cannot lock.
        """
        path = os.path.join(root, LOCK_PATH)
        try:
            if not read_only:
                make_folders(root, os.path.dirname(LOCK_PATH))
            lock = cls._take(root, path, shared=read_only)
        except OSError as failure:
            if read_only and isinstance(failure, FileNotFoundError):
                return cls(None)
            raise _cannot_lock(failure) from failure
        if not read_only:
            lock._write_line(this_owner(endpoint, server))
        return lock

    @classmethod
    def _take(cls, root: str, path: str, *, shared: bool) -> OwnerLock:
        try:
            return cls(acquire_flock(path, shared=shared, create=not shared))
        except BlockingIOError:
            taken = take_over(root, path, shared=shared)
            if taken is None:
                raise _locked(root, path) from None
            return cls(*taken)

    def _write_line(self, owner: Owner) -> None:
        assert self._descriptor is not None
        line = msgspec.json.encode(owner) + b"\n"
        try:
            os.pwrite(self._descriptor, line, 0)
            os.ftruncate(self._descriptor, len(line))
        except OSError as failure:
            self.release()
            raise _cannot_lock(failure) from failure

    def release(self) -> None:
        """Give the project up; the file stays. Further calls do nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _locked(root: str, path: str) -> MaadError:
    owner = _holder(root, path)
    return MaadError(
        "PROJECT_LOCKED",
        f"the project is open in {owner}; {owner.advice}",
        {"scope": "project", "ownerPid": owner.server_pid},
    )


def _holder(root: str, path: str) -> Owner:
    """Who has the lock: what it wrote of itself, else what the kernel says."""
    owner = last_owner(root)
    if owner.process is not None and is_running(owner.process):
        return owner
    try:
        # Readers write nothing of themselves; what stands there is of an owner of before.
        holders = [pid for pid in lock_holders(path) if pid]
    except OSError:
        holders = []
    return Owner(holders[0] if holders else None)


def _cannot_lock(failure: OSError) -> MaadError:
    reason = os.strerror(failure.errno) if failure.errno else str(failure)
    hint = (
        "; put the project on a file system with working flock"
        if failure.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
        else "; check the permissions and the space of _backend/"
    )
    return MaadError(
        "BACKEND_ERROR", f"cannot lock {LOCK_PATH}: {reason}{hint}", {"errno": errno_name(failure)}
    )
