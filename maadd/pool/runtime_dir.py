"""The runtime directory of one front: its lock and its sockets (spec 04 §13)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Mapping, Sequence

from maadd.config.runtime_path import CONTROL_SOCKET, FRONTS_AT_MOST, runtime_path
from maadd.protocol.errors import MaadError

MAX_SOCKET_PATH = 107
"""Bytes that fit into a UNIX socket address on Linux."""

_LOCK = "lock"
_WORKERS = "workers.sock"
_SOCKET = ".sock"
_FORK_SERVER = "listener-"

_OTHER_PLACE = "see to its file system, or set MAADD_RUNTIME_DIR to a directory on another one"
_CREATE_PARENT = "create its parent or set MAADD_RUNTIME_DIR"


class RuntimeDir:
    """A runtime directory held by this process until `release`."""

    def __init__(
        self, path: str, folders: Sequence[str], lock_fd: int, target_fd: int | None
    ) -> None:
        self.path = path
        self._folders = folders
        """What it consists of, from above; the last one is `path`."""
        self._lock_fd: int | None = lock_fd
        self._target_fd = target_fd
        self._kept_fd = _keep_from_cleaners(path)
        self._restored = 0

    @classmethod
    def claim(cls, target: str, environ: Mapping[str, str], *, beside: bool = False) -> RuntimeDir:
        """Create, check and lock the directory of `target`, and sweep it.

        `beside`: where another front holds it, take a directory inside, as several stdio
        servers may share a project or an instance (spec 04 §10). A daemon shares with nobody.

        PROJECT_LOCKED `{scope, ownerPid}` when another front holds it,
        INSTANCE_CONFIG_INVALID when it cannot be used safely.
        """
        path = runtime_path(target, environ)
        _check_lengths(path)
        folders = [path] if environ.get("MAADD_RUNTIME_DIR") else [os.path.dirname(path), path]
        _make_all_private(folders)
        path, lock_fd = _claim_first(path, FRONTS_AT_MOST if beside else 1)
        if path != folders[-1]:
            folders.append(path)
        try:
            target_fd = _lock_target(target, shared=beside)
        except MaadError:
            os.close(lock_fd)
            raise
        claimed = cls(path, folders, lock_fd, target_fd)
        claimed._sweep()
        return claimed

    @property
    def workers_endpoint(self) -> str:
        """The ZeroMQ endpoint that workers connect to."""
        return "ipc://" + os.path.join(self.path, self._workers_name)

    @property
    def _workers_name(self) -> str:
        # ZeroMQ may yet remove the socket it bound before, by its name.
        return f"work-{self._restored % 100}.sock" if self._restored else _WORKERS

    @property
    def control_path(self) -> str:
        """The socket that takes commands of the command line."""
        return os.path.join(self.path, CONTROL_SOCKET)

    @contextlib.contextmanager
    def placing_sockets(self) -> Iterator[None]:
        """Inside, sockets are made in the directory; INSTANCE_CONFIG_INVALID when none can be."""
        try:
            yield
        except OSError as error:
            raise _unusable(
                f"no socket can be made in the runtime directory {self.path} ({error.strerror}); "
                f"{_OTHER_PLACE}"
            ) from error

    @property
    def is_intact(self) -> bool:
        """Whether lock and sockets are where others look for them."""
        names = (self._workers_name, CONTROL_SOCKET)
        return self._has_lock and all(
            os.path.exists(os.path.join(self.path, name)) for name in names
        )

    @property
    def _has_lock(self) -> bool:
        assert self._lock_fd is not None
        with contextlib.suppress(OSError):
            found = os.stat(os.path.join(self.path, _LOCK))
            return os.path.samestat(found, os.fstat(self._lock_fd))
        return False

    def restore(self) -> None:
        """Make the directory anew that somebody removed, or emptied. The sockets are to be bound
        again, the one for workers under a new name.

        The errors of `claim`; whatever another front has made there stays.
        """
        _make_all_private(self._folders)
        if not self._has_lock:
            lock_fd = _lock(os.path.join(self.path, _LOCK))
            assert self._lock_fd is not None
            os.close(self._lock_fd)
            self._lock_fd = lock_fd
        os.close(self._kept_fd)
        self._kept_fd = _keep_from_cleaners(self.path)
        self._restored += 1
        self._sweep()

    def release(self) -> None:
        """Remove the sockets and give the directory up; safe to call twice."""
        if self._lock_fd is None:
            return
        self._sweep()
        # The lock file stays: removing it would let two fronts lock two files of one name.
        os.ftruncate(self._lock_fd, 0)
        os.close(self._lock_fd)
        os.close(self._kept_fd)
        self._lock_fd = None
        if self._target_fd is not None:
            os.close(self._target_fd)

    def _sweep(self) -> None:
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return  # somebody cleaned up, and took the sockets too
        for name in names:
            # The fork server of a killed front leaves its socket behind, too.
            if name.endswith(_SOCKET) or name.startswith(_FORK_SERVER):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self.path, name))


def _claim_first(path: str, places: int) -> tuple[str, int]:
    """The first directory that no front holds, `path` itself or one inside, and its lock."""
    locked: MaadError | None = None
    for number in range(1, places + 1):
        candidate = path if number == 1 else os.path.join(path, str(number))
        _check_lengths(candidate)
        _make_private(candidate)
        try:
            return candidate, _lock(os.path.join(candidate, _LOCK))
        except MaadError as failure:
            if failure.code != "PROJECT_LOCKED":
                raise
            locked = locked or failure
    assert locked is not None
    raise locked


def _check_lengths(path: str) -> None:
    for name in (_WORKERS, CONTROL_SOCKET):
        socket = os.path.join(path, name)
        length = len(os.fsencode(socket))
        if length > MAX_SOCKET_PATH:
            raise _unusable(
                f"the socket path {socket} has {length} bytes, the system allows "
                f"{MAX_SOCKET_PATH}; set MAADD_RUNTIME_DIR to a shorter directory"
            )


def _keep_from_cleaners(path: str) -> int:
    """A descriptor whose lock keeps systemd-tmpfiles from taking the directory for forgotten."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return fd


def _make_all_private(paths: Sequence[str]) -> None:
    for path in paths:
        _make_private(path)


def _make_private(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise _unusable(
            f"the runtime directory {path} cannot be created ({error.strerror}); "
            + (_OTHER_PLACE if error.errno == errno.ENOSPC else _CREATE_PARENT)
        ) from error
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise _unusable(
            f"the runtime directory {path} is a link, no directory or not readable "
            f"({error.strerror}); remove it or set MAADD_RUNTIME_DIR"
        ) from error
    try:
        found = os.fstat(fd)
    finally:
        os.close(fd)
    if found.st_uid != os.geteuid():
        raise _unusable(
            f"the runtime directory {path} belongs to user {found.st_uid}, not to this one "
            f"({os.geteuid()}); remove it or set MAADD_RUNTIME_DIR"
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        raise _unusable(
            f"the runtime directory {path} is open to other users (mode {mode:04o}); "
            f"run `chmod 700 {path}`"
        )


def _lock(path: str) -> int:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _unusable(
            f"the lock {path} cannot be opened ({error.strerror}); {_OTHER_PLACE}"
        ) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = _owner_pid(fd)
        os.close(fd)
        # Two instances may have been given one directory.
        raise _locked(
            owner,
            f"uses the runtime directory {os.path.dirname(path)}; stop it first, or set another "
            "MAADD_RUNTIME_DIR if it serves another instance",
        ) from error
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        os.close(fd)
        raise _unusable(
            f"the lock {path} cannot be written ({error.strerror}); {_OTHER_PLACE}"
        ) from error
    return fd


def _lock_target(target: str, *, shared: bool) -> int | None:
    """Lock the instance file itself: two fronts may have been given different runtime
    directories by their environments. `shared`: with others of the kind, or not at all."""
    try:
        fd = os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = _flock_holder(fd)
        os.close(fd)
        if shared:
            return None
        raise _locked(owner, "serves this instance; stop it first") from error
    except OSError:
        # A file system without flock: the runtime directory alone has to do.
        os.close(fd)
        return None
    return fd


def _flock_holder(fd: int) -> int | None:
    """The process that the kernel names for the lock of an open file, where it tells."""
    inode = os.fstat(fd).st_ino
    try:
        with open("/proc/locks", encoding="ascii") as table:
            rows = [line.split() for line in table]
    except OSError:
        return None
    for row in rows:
        if row[1] == "FLOCK" and row[5].endswith(f":{inode}"):
            return int(row[4])
    return None


def _locked(owner: int | None, what: str) -> MaadError:
    by = "another process" if owner is None else f"process {owner}"
    details = {"scope": "instance", "ownerPid": owner}
    return MaadError("PROJECT_LOCKED", f"{by} already {what}", details)


def _owner_pid(fd: int) -> int | None:
    text = os.pread(fd, 32, 0).strip()
    return int(text) if text.isdigit() else None


def _unusable(message: str) -> MaadError:
    return MaadError("INSTANCE_CONFIG_INVALID", message)
