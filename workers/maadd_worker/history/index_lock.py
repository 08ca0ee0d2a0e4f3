"""Our hold on `.git/index.lock`, which can be proven after a crash (spec 03 §9.3).

The lock appears by hard-linking a file that already holds a token, so there is no moment
in which a lock of ours has no proof in it. The token is in the journal before the first
lock is taken: whoever owns the project next removes a lock with that token, and one
that names a process of ours which has ended by number and start, and no other.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.disk.journal import Journal
from maadd_worker.failpoints import reach
from maadd_worker.history.git_dir import GitDir
from maadd_worker.history.left_behind import has_ended, mark_of_this_process
from maadd_worker.history.lock_holder import find_holder
from maadd_worker.history.outcome import GitFailure
from maadd_worker.history.store import WAITS_S

LEDGER_KEY = "git_index_lock"
LOCK_NAME = "index.lock"
TEMPORARY_PREFIX = "maadd-index."
TOKEN_NAME = "maadd-index.token"

_OURS = re.compile(r"maadd ([0-9]+\.[0-9]+) [0-9a-f]{32}\n")
_SHOWN = f".git/{LOCK_NAME}"
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
_GAP_SHARE = 0.5
_LONGEST_GAP_S = 0.025
"""After a hold others get a part of its length, but no more than this."""


class _Proof(msgspec.Struct, frozen=True):
    pid: int
    token: str


def reclaim_lock(git_dir: GitDir, journal: Journal) -> bool:
    """Remove what a dead process of ours left: its lock, when the journal proves it, and its
    unfinished files. True when a lock was removed.

    The caller owns the project, so no process that could have taken the lock is alive.
    """
    if _sweep(git_dir, journal) is None:
        return False
    os.unlink(os.path.join(git_dir.path, LOCK_NAME))
    return True


def _sweep(git_dir: GitDir, journal: Journal) -> str | None:
    """Remove the unfinished files of a dead process; the content of the lock that it left."""
    token = None
    stored = journal.meta_get(LEDGER_KEY)
    if stored is not None:
        token = msgspec.json.decode(stored, type=_Proof).token
        for name in os.listdir(git_dir.path):
            if name.startswith(TEMPORARY_PREFIX):
                os.unlink(os.path.join(git_dir.path, name))
    with contextlib.suppress(FileNotFoundError):
        content = _content(os.path.join(git_dir.path, LOCK_NAME))
        if content == token or _is_of_dead(content):
            return content
    return None


class LockPatience:
    """Deals with a lock of somebody else: it is waited for in three pauses, once, and
    described once, however often it is met."""

    __slots__ = ("_failure", "_known", "_lock", "_root")

    def __init__(self, git_dir: GitDir) -> None:
        self._lock = os.path.join(git_dir.path, LOCK_NAME)
        self._root = git_dir.root
        self._known: tuple[int, int, int] | None = None
        self._failure: GitFailure | None = None

    def until(self, succeeds: Callable[[], bool], *, patient: bool) -> None:
        """Call `succeeds` until it is true. Raises the failure when the lock stays."""
        for pause in (*WAITS_S, None):
            if succeeds():
                self._known = None
                return
            found = _identity(self._lock)
            if pause is None or not patient or (found is not None and found == self._known):
                break
            time.sleep(pause)
        raise self.failure()

    def failure(self) -> GitFailure:
        """Where the lock is, since when, and whose if that can be found."""
        found = _identity(self._lock)
        if self._failure is None or found is None or found != self._known:
            self._failure = _describe(self._lock, self._root)
            self._known = found
        return self._failure


class IndexLock:
    """The lock of one repository's index file. Used from one thread."""

    __slots__ = (
        "_free_from",
        "_git_dir",
        "_inherited",
        "_journal",
        "_lock",
        "_patience",
        "_token",
        "_token_file",
        "taken_at",
    )

    def __init__(self, git_dir: GitDir, journal: Journal | None) -> None:
        self._git_dir = git_dir
        self._lock = os.path.join(git_dir.path, LOCK_NAME)
        self._token_file = os.path.join(git_dir.path, TOKEN_NAME)
        self._journal = journal
        self._token: str | None = None
        self._inherited = False
        self._patience = LockPatience(git_dir)
        self._free_from = 0.0
        self.taken_at: float | None = None
        """Monotonic time of taking the lock, None while it is not held."""

    def _prepare(self) -> str:
        # One token for life: what was taken with it before stays provable.
        token = self._token
        if token is None:
            token = f"maadd {mark_of_this_process()} {secrets.token_hex(16)}\n"
            if self._journal is not None:
                proof = msgspec.json.encode(_Proof(os.getpid(), token)).decode()
                self._journal.meta_set(LEDGER_KEY, proof, durable=True)
            self._token = token
        temporary = f"{self._token_file}.{os.getpid()}"
        with open(temporary, "w", encoding="ascii") as file:
            file.write(token)
        os.replace(temporary, self._token_file)
        return token

    def take_over(self) -> bool:
        """Hold the lock that a dead process of ours left, which nobody else can have had in
        between; False when there is none. What it left unfinished is removed.

        The caller owns the project. What proves the lock is what proved it before, until it is
        released.
        """
        token = _sweep(self._git_dir, self._journal) if self._journal is not None else None
        if token is None:
            return False
        self._token = token
        self._inherited = True
        self.taken_at = time.monotonic()
        return True

    def acquire(self, *, patient: bool) -> None:
        """Take the lock, unless it is held already.

        Raises GitFailure GIT_COMMIT_FAILED with `details.reason` `index-lock` when somebody
        else has it. `patient` waits for it, but not for a lock that was waited for before.
        """
        if self.taken_at is not None:
            if self._is_ours():
                return
            self.taken_at = None
        pause = self._free_from - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        self._patience.until(self._try, patient=patient)
        self.taken_at = time.monotonic()

    def await_free(self, *, patient: bool) -> None:
        """Make sure that nobody else has the lock, without taking it. Raises as `acquire`."""
        self._patience.until(lambda: not self.is_foreign(), patient=patient)

    def _try(self) -> bool:
        try:
            token = self._token or self._prepare()
            reach("git.lock")
            try:
                os.link(self._token_file, self._lock)
                if not self._is_ours():
                    # Whoever emptied the lock emptied the token with it: they were one file.
                    os.unlink(self._lock)
                    _create(self._lock, self._prepare())
            except FileNotFoundError:
                _create(self._lock, self._prepare())
            except OSError as failure:
                if failure.errno not in _NO_LINKS:
                    raise
                _create(self._lock, token)
            reach("git.locked")
        except FileExistsError:
            # Of an acquire that failed half-way, or whose release did.
            return self._is_ours() or (_discard_of_dead(self._lock) and self._try())
        except OSError as failure:
            reason = os.strerror(failure.errno or 0)
            raise GitFailure("GIT_COMMIT_FAILED", f"cannot create {_SHOWN}: {reason}") from failure
        except MaadError as failure:
            raise GitFailure("GIT_COMMIT_FAILED", failure.message) from failure
        return True

    def _is_ours(self) -> bool:
        try:
            return _content(self._lock) == self._token
        except OSError:
            return False

    def release(self) -> None:
        """Give the lock up, and leave others a moment before it is taken again.

        Raises GitFailure when the file cannot be removed; the lock is held on then.
        """
        if self.taken_at is None:
            return
        now = time.monotonic()
        self._free_from = now + min((now - self.taken_at) * _GAP_SHARE, _LONGEST_GAP_S)
        if self._is_ours():
            try:
                reach("git.unlock")
                os.unlink(self._lock)
                reach("git.unlocked")
            except OSError as failure:
                reason = os.strerror(failure.errno or 0)
                raise GitFailure(
                    "GIT_UNKNOWN_ERROR", f"cannot remove {_SHOWN}: {reason}"
                ) from failure
        if self._inherited:
            self._token, self._inherited = None, False
        self.taken_at = None

    def is_foreign(self) -> bool:
        """Whether there is a lock that is not ours. One of a worker that died is removed."""
        return (
            os.path.lexists(self._lock) and not self._is_ours() and not _discard_of_dead(self._lock)
        )

    def close(self) -> None:
        """Release the lock and remove what proves it."""
        self.release()
        if self._token is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._token_file)
            self._token = None


def _discard_of_dead(lock: str) -> bool:
    """Remove the lock if its content says that a process of ours took it that has ended."""
    try:
        if not _is_of_dead(_content(lock)):
            return False
        os.unlink(lock)
    except OSError:
        return False
    return True


def _is_of_dead(content: str) -> bool:
    """Whether a lock says that a process of ours took it that has ended."""
    match = _OURS.fullmatch(content)
    return match is not None and has_ended(match[1])


def _create(lock: str, token: str) -> None:
    """The lock where the file system has no hard links."""
    descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.write(descriptor, token.encode("ascii"))
    except BaseException:
        os.unlink(lock)
        raise
    finally:
        os.close(descriptor)


def _describe(lock: str, root: str) -> GitFailure:
    details: dict[str, Any] = {
        "reason": "index-lock",
        "path": _SHOWN,
        "mtime": None,
        "holder": None,
    }
    with contextlib.suppress(OSError):
        modified = datetime.fromtimestamp(os.lstat(lock).st_mtime, UTC)
        details["mtime"] = modified.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        folder, name = os.path.split(lock)
        known_as = os.path.join(os.path.realpath(folder), name)
        details["holder"] = find_holder(known_as, os.path.realpath(root))
    return GitFailure(
        "GIT_COMMIT_FAILED",
        f"another Git process holds {_SHOWN}; the commit follows when it is gone. If no Git "
        "command runs on this project any more, remove that file",
        details,
    )


def _content(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(256).decode("latin-1")


def _identity(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns
