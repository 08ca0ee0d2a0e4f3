"""tokens.yaml on disk: change stamps, permissions, the lock, atomic replacement (spec 04 §7)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import time
from collections.abc import Iterator

import msgspec

from maadd.auth.tokens_document import (
    EMPTY_DOCUMENT,
    TokensDocument,
    dump_tokens,
    parse_tokens,
    tokens_invalid,
)
from maadd.protocol.errors import MaadError
from maadd.protocol.regular_file import read_regular_file

LOCK_WAIT_S = 5.0
"""How long a change waits for another process's change."""

_LOCK_POLL_S = 0.01


class FileStamp(msgspec.Struct, frozen=True):
    """What tells one state of the file from the next; `mode` so that a chmod is noticed too."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    mode: int


UNREADABLE = FileStamp(-1, -1, -1, -1, -1)
"""The stamp of a file that is there but cannot be examined."""


class StoredTokens(msgspec.Struct, frozen=True):
    """The file's content with its stamp; None means that there is no file."""

    document: TokensDocument
    stamp: FileStamp | None


def file_stamp(path: str) -> FileStamp | None:
    """The stamp of what is at `path` now; None when nothing is."""
    try:
        return _stamp(os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return UNREADABLE


def read_tokens(path: str) -> StoredTokens:
    """The registry at `path`, an empty one when it is absent. Raises TOKENS_FILE_INVALID."""
    try:
        data, status = read_regular_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return StoredTokens(EMPTY_DOCUMENT, None)
    except OSError as error:
        raise _unusable("read", error) from None
    return StoredTokens(parse_tokens(data), _stamp(status))


@contextlib.contextmanager
def registry_lock(path: str, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
    """Holds `tokens.lock` beside the registry, so that one process at a time changes it, by
    whichever link it was found.

    Creates `_auth/` when it is missing. Raises TOKENS_FILE_BUSY after `wait_s` seconds and
    TOKENS_FILE_INVALID when the lock file cannot be made.
    """
    folder = os.path.dirname(os.path.realpath(path))
    try:
        _ensure_folder(folder)
        descriptor = _open_lock(os.path.join(folder, "tokens.lock"), os.path.dirname(path))
    except OSError as error:
        raise _unusable("locked", error) from None
    try:
        deadline = time.monotonic() + wait_s
        while not _try_lock(descriptor):
            if time.monotonic() >= deadline:
                raise MaadError(
                    "TOKENS_FILE_BUSY",
                    f"another process has been changing the token registry for {wait_s:g} s; "
                    "try again",
                )
            time.sleep(_LOCK_POLL_S)  # flock has no timed form
        yield
    finally:
        os.close(descriptor)


def write_tokens(path: str, document: TokensDocument) -> FileStamp:
    """Replaces the file in one step, durably; call it under `registry_lock`.

    A link stays one: what it leads to is replaced. Raises TOKENS_FILE_INVALID; the old file is
    then still there.
    """
    owned_by = os.path.dirname(path)
    path = os.path.realpath(path)
    folder = os.path.dirname(path)
    temporary = f"{path}.{os.getpid()}.{secrets.token_hex(6)}.tmp"
    try:
        _sweep(path)
        stamp = _write_durably(temporary, dump_tokens(document), owner=os.stat(owned_by))
        os.rename(temporary, path)
        _sync_folder(folder)
    except OSError as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise _unusable("written", error) from None
    return stamp


def _unusable(action: str, error: OSError) -> MaadError:
    """TOKENS_FILE_INVALID `{errno}`, with what to do."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            hint = "free some space on the disk of the instance"
        case errno.EROFS:
            hint = "mount the file system of the instance for writing"
        case errno.EACCES | errno.EPERM:
            hint = "run this as the owner of _auth/"
        case _:
            hint = "check _auth/ and the disk"
    problem = tokens_invalid(f"cannot be {action}: {error.strerror}; {hint}")
    name = errno.errorcode.get(error.errno or 0, "EIO")
    return MaadError(problem.code, problem.message, {"errno": name})


def _stamp(status: os.stat_result) -> FileStamp:
    return FileStamp(
        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode
    )


def _open_lock(path: str, owned_by: str) -> int:
    """Never by a link, which its folder's owner may have put there for root to follow; only what
    is made here gets that owner."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(path, flags)
    _keep_owner(descriptor, os.stat(owned_by))
    return descriptor


def _ensure_folder(folder: str) -> None:
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        return
    parent = os.path.dirname(folder)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder, flags)
    try:
        _keep_owner(descriptor, os.stat(parent))
    finally:
        os.close(descriptor)
    _sync_folder(parent)


def _keep_owner(descriptor: int, owner: os.stat_result) -> None:
    """Gives what root makes to the owner of the folder around it, whose server must read it."""
    if os.geteuid() == 0:
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sweep(path: str) -> None:
    """Removes what writers left that died; under the lock no living one has a file here."""
    folder, name = os.path.split(path)
    for entry in os.listdir(folder):
        if entry.startswith(f"{name}.") and entry.endswith(".tmp"):
            os.unlink(os.path.join(folder, entry))


def _write_durably(path: str, data: bytes, owner: os.stat_result) -> FileStamp:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb") as file:
        _keep_owner(file.fileno(), owner)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        return _stamp(os.fstat(file.fileno()))


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
