"""Reading one bounded file so that nothing can be exchanged meanwhile (spec 05 §5.4).

Every component is opened from the descriptor of the one before it, without following links;
what was read counts only if the same walk afterwards ends at the same file, untouched.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator

from maadd.protocol.errors import MaadError
from maadd_worker.disk.paths import outside_project, segments
from maadd_worker.disk.root import FileContent, ProjectRoot

MAX_FILE_BYTES = 262_144

Check = Callable[[], None]
"""Called between steps; raises when nobody waits for the result any more."""

_WALK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK = 65_536
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def read_bounded(root: ProjectRoot, rel: str, check: Check) -> FileContent:
    """The bytes of a regular file of at most 256 KiB.

    Raises PATH_OUTSIDE_PROJECT (by text, or a link anywhere on the way),
    RECEIPT_CONTENT_INVALID (not a regular file), RESPONSE_TOO_LARGE,
    RECEIPT_OBSERVATION_CHANGED and what `check` raises. OSError passes: missing, denied, broken.
    """
    check()
    with _parent(root, rel) as (directory, name):
        seen = _regular(directory, name, rel)
        check()
        try:
            fd = os.open(name, _READ, dir_fd=directory)
        except OSError as failure:
            if failure.errno in _GONE:
                raise _changed(rel) from None
            raise
        try:
            data = _read(fd, seen, rel, check)
        finally:
            os.close(fd)
    _compare_again(root, rel, seen)
    return FileContent(data, seen.st_mtime_ns, seen.st_size, seen.st_ino)


def refuse_obstructed(root: ProjectRoot, rel: str) -> None:
    """PATH_OUTSIDE_PROJECT unless every component of a folder that exists is a real directory.

    Missing ones are fine and are not made. OSError passes.
    """
    with contextlib.ExitStack() as open_fds:
        directory = root.open_directory("")
        open_fds.callback(os.close, directory)
        for name in segments(rel):
            try:
                directory = _enter(directory, name, rel)
            except FileNotFoundError:
                return
            except NotADirectoryError:
                raise MaadError(
                    "PATH_OUTSIDE_PROJECT", f"{rel}: {name} is not a directory"
                ) from None
            open_fds.callback(os.close, directory)


@contextlib.contextmanager
def _parent(root: ProjectRoot, rel: str) -> Iterator[tuple[int, str]]:
    """A descriptor of the directory a path stands in, and its last name."""
    names = segments(rel)
    if not names:
        raise outside_project(rel)
    with contextlib.ExitStack() as open_fds:
        directory = root.open_directory("")
        open_fds.callback(os.close, directory)
        for name in names[:-1]:
            directory = _enter(directory, name, rel)
            open_fds.callback(os.close, directory)
        yield directory, names[-1]


def _enter(directory: int, name: str, rel: str) -> int:
    try:
        return os.open(name, _WALK, dir_fd=directory)
    except OSError as failure:
        if failure.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(directory, name):
            raise outside_project(rel) from None
        raise


def _is_link(directory: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _regular(directory: int, name: str, rel: str) -> os.stat_result:
    """The state of a regular file that may be opened."""
    seen = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISLNK(seen.st_mode):
        raise outside_project(rel)
    if not stat.S_ISREG(seen.st_mode):
        raise MaadError(
            "RECEIPT_CONTENT_INVALID", f"{rel} is not a regular file", {"cause": "not-regular"}
        )
    return seen


def _read(fd: int, seen: os.stat_result, rel: str, check: Check) -> bytes:
    if _identity(os.fstat(fd)) != _identity(seen):
        raise _changed(rel)
    size = seen.st_size
    if size > MAX_FILE_BYTES:
        raise MaadError(
            "RESPONSE_TOO_LARGE",
            f"{rel} has {size} bytes, at most {MAX_FILE_BYTES} are read",
            {"observedBytes": size, "capBytes": MAX_FILE_BYTES},
        )
    data = bytearray()
    # One byte more than the file has shows that it grew.
    while len(data) <= size:
        check()
        chunk = os.read(fd, min(_CHUNK, size + 1 - len(data)))
        if not chunk:
            break
        data += chunk
    if len(data) != size or _identity(os.fstat(fd)) != _identity(seen):
        raise _changed(rel)
    return bytes(data)


def _compare_again(root: ProjectRoot, rel: str, seen: os.stat_result) -> None:
    """The path must still lead to the very file that was read."""
    try:
        with _parent(root, rel) as (directory, name):
            now = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except (OSError, MaadError):
        raise _changed(rel) from None
    if _identity(now) != _identity(seen):
        raise _changed(rel)


def _identity(state: os.stat_result) -> tuple[int, ...]:
    return (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


def _changed(rel: str) -> MaadError:
    return MaadError(
        "RECEIPT_OBSERVATION_CHANGED", f"{rel} changed while it was read; ask again", {"file": rel}
    )
