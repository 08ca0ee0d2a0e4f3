"""Putting files in place so that a reader sees the old or the new one, never half (01 §15.2).

All functions work through descriptors of the parent directories (`root`), so that a link
exchanged underway cannot lead a write out of the project. The name of a published file is
durable only after `fsync_dirs`, which a caller does once for a group of writes.
"""

from __future__ import annotations

import ctypes
import errno
import io
import os
import re
import stat
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.disk.paths import segments
from maadd_worker.disk.root import ProjectRoot, errno_name
from maadd_worker.failpoints import reach

_TEMP_NAME = re.compile(r".+\.maad-tmp-([0-9]+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
_RENAMEAT2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
_NO_RENAMEAT2 = (errno.ENOSYS, errno.EINVAL)
_SYNC_FILE_RANGE = getattr(ctypes.CDLL(None), "sync_file_range", None)
_START_WRITING = 2
_WHOLE_FILE = ctypes.c_int64(0)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)


class Staged(msgspec.Struct, frozen=True):
    """Bytes beside their target, in a temporary file that nobody reads: new ones not yet in
    place, or old ones kept until they are not needed any more.

    `file` is open until `sync_staged` or `discard`; None where nothing is to be synced.
    """

    temp: str
    path: str
    replaces: bool
    file: io.FileIO | None = None


def write_temp(root: ProjectRoot, rel: str, data: bytes, *, fsync: bool) -> str:
    """Write `data` beside `rel` and give the path of the temporary file.

    WRITE_ERROR (`{file, errno}`) leaves nothing behind.
    """
    staged = _stage(root, rel, data, fsync=fsync, mode=None, replaces=False)
    [failure] = sync_staged(root, (staged,))
    if failure is not None:
        discard(root, staged)
        raise failure
    return staged.temp


def stage_new(root: ProjectRoot, rel: str, data: bytes, *, fsync: bool) -> Staged:
    """Prepare a new file. Missing parent directories are made, and synced with `fsync`.

    The bytes themselves are on their way to the disk then; `sync_staged` waits for them.
    WRITE_ERROR, PATH_OUTSIDE_PROJECT.
    """
    ensure_dir(root, rel.rpartition("/")[0], fsync=fsync)
    return _stage(root, rel, data, fsync=fsync, mode=None, replaces=False)


def stage_replacement(root: ProjectRoot, rel: str, data: bytes, *, fsync: bool) -> Staged:
    """Prepare the new content of an existing file, with its mode bits.

    A link that stays inside the project is written through. As for the bytes with `fsync`, see
    `stage_new`. WRITE_ERROR, PATH_OUTSIDE_PROJECT.
    """
    with failing_as("WRITE_ERROR", rel):
        with root.parent(rel) as (directory, name):
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            rel = root.resolve(rel)
            with root.parent(rel) as (directory, name):
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
    mode = stat.S_IMODE(status.st_mode)
    return _stage(root, rel, data, fsync=fsync, mode=mode, replaces=True)


def sync_staged(root: ProjectRoot, staged: Sequence[Staged]) -> list[MaadError | None]:
    """Make the bytes of staged files durable; a WRITE_ERROR for each that cannot be.

    Several are synced at once, because a device flushes them together: fifty files in the
    time of a few.
    """
    return root.at_once(_sync, staged)


def exchange(root: ProjectRoot, staged: Staged) -> Staged | None:
    """`put_in_place` for new content, which keeps the old beside it: to be put back by
    `put_in_place`, without needing room on the disk, or dropped by `discard`. None where the
    system cannot exchange files."""
    with (
        _removing(root, staged.temp),
        failing_as("WRITE_ERROR", staged.path),
        root.parent(staged.path) as (directory, name),
    ):
        temp = staged.temp.rpartition("/")[2]
        if _renameat2(directory, temp, directory, name, _RENAME_EXCHANGE):
            return staged
    put_in_place(root, staged)
    return None


def set_aside(root: ProjectRoot, rel: str) -> Staged:
    """Take a file away, but keep it as `exchange` does. DELETE_ERROR as `unlink`."""
    temp = _temp_name(rel)
    with failing_as("DELETE_ERROR", rel), root.parent(rel) as (directory, name):
        aside = temp.rpartition("/")[2]
        os.rename(name, aside, src_dir_fd=directory, dst_dir_fd=directory)
    return Staged(temp, rel, replaces=False)


def put_in_place(root: ProjectRoot, staged: Staged) -> None:
    """Publish a staged file at once with all its bytes; of two racing creators one wins.

    The staged file is used up in any case. Raises DUPLICATE_DOC_ID when the name of a new file
    is taken, WRITE_ERROR, which leaves an original untouched, PATH_OUTSIDE_PROJECT.
    """
    with _removing(root, staged.temp), failing_as("WRITE_ERROR", staged.path):
        if staged.replaces:
            with root.parent(staged.path) as (directory, name):
                temp = staged.temp.rpartition("/")[2]
                os.rename(temp, name, src_dir_fd=directory, dst_dir_fd=directory)
            return
        try:
            _rename(root, staged.temp, staged.path)
        except FileExistsError:
            raise MaadError(
                "DUPLICATE_DOC_ID",
                f"{staged.path} exists already; choose another id or index the file",
                {"filePath": staged.path},
            ) from None


def discard(root: ProjectRoot, staged: Staged) -> None:
    """Remove a staged file that is not wanted any more; what cannot be removed now goes with
    the next sweep."""
    if staged.file is not None:
        staged.file.close()
    with suppress(MaadError):
        unlink(root, staged.temp)


def create_exclusive(root: ProjectRoot, rel: str, data: bytes, *, fsync: bool) -> None:
    """`stage_new`, sync and `put_in_place` for one file."""
    _publish_one(root, stage_new(root, rel, data, fsync=fsync))


def replace(root: ProjectRoot, rel: str, data: bytes, *, fsync: bool) -> None:
    """`stage_replacement`, sync and `put_in_place` for one file."""
    _publish_one(root, stage_replacement(root, rel, data, fsync=fsync))


def rename_no_replace(root: ProjectRoot, src: str, dst: str) -> None:
    """Rename a file of the project, never over another one.

    DELETE_ERROR (`{file, errno}`, `EEXIST` when `dst` is taken), PATH_OUTSIDE_PROJECT.
    """
    with failing_as("DELETE_ERROR", src):
        _rename(root, src, dst)


def unlink(root: ProjectRoot, rel: str) -> None:
    """Remove a file (a link itself, never its target).

    DELETE_ERROR (`{file, errno}`, `ENOENT` when it is gone already), PATH_OUTSIDE_PROJECT.
    """
    with failing_as("DELETE_ERROR", rel), root.parent(rel) as (directory, name):
        os.unlink(name, dir_fd=directory)


def ensure_dir(root: ProjectRoot, rel_dir: str, *, fsync: bool = True) -> None:
    """Create a directory and the missing ones above it; each new name is synced.

    Raises WRITE_ERROR, PATH_OUTSIDE_PROJECT.
    """
    names = segments(rel_dir)
    with failing_as("WRITE_ERROR", rel_dir):
        try:
            os.close(root.open_directory("/".join(names)))
            return
        except FileNotFoundError:
            pass
        for depth in range(1, len(names) + 1):
            path = "/".join(names[:depth])
            with root.parent(path) as (directory, name):
                try:
                    os.mkdir(name, dir_fd=directory)
                    reach("folder.made")
                except FileExistsError:
                    continue
            if fsync:
                _fsync_directory(root, "/".join(names[: depth - 1]))
        os.close(root.open_directory("/".join(names)))


def fsync_dirs(root: ProjectRoot, rel_files: Iterable[str]) -> None:
    """Make the names of files durable: each distinct parent is synced once; WRITE_ERROR."""
    parents = list(dict.fromkeys(rel.rpartition("/")[0] for rel in rel_files))

    def sync(parent: str) -> MaadError | None:
        try:
            with failing_as("WRITE_ERROR", parent or "."):
                _fsync_directory(root, parent)
                reach("folder.synced")
        except MaadError as failure:
            return failure
        return None

    for failure in root.at_once(sync, parents):
        if failure is not None:
            raise failure


def sweep_temp_files(root: ProjectRoot, rel_dirs: Iterable[str], *, deep: bool = True) -> list[str]:
    """Remove the temporary files that dead processes left in directories, and below when `deep`.

    Files of this process count as left behind: call it before the first write. A directory
    that is missing or unreadable is passed over, its files wait for the next sweep.
    """
    removed: list[str] = []
    pending = [rel.strip("/") for rel in rel_dirs]
    while pending:
        directory = pending.pop()
        with suppress(OSError):
            fd = root.open_directory(directory)
            try:
                with os.scandir(fd) as entries:
                    for entry in entries:
                        path = f"{directory}/{entry.name}" if directory else entry.name
                        if entry.is_dir(follow_symlinks=False):
                            if deep:
                                pending.append(path)
                        elif _is_left_behind(entry.name):
                            os.unlink(entry.name, dir_fd=fd)
                            removed.append(path)
            finally:
                os.close(fd)
    return sorted(removed)


def _publish_one(root: ProjectRoot, staged: Staged) -> None:
    [failure] = sync_staged(root, (staged,))
    if failure is not None:
        discard(root, staged)
        raise failure
    put_in_place(root, staged)


def _sync(staged: Staged) -> MaadError | None:
    if staged.file is None:
        return None
    try:
        with failing_as("WRITE_ERROR", staged.path), staged.file:
            os.fsync(staged.file.fileno())
            reach("file.synced")
    except MaadError as failure:
        return failure
    return None


def _stage(
    root: ProjectRoot, rel: str, data: bytes, *, fsync: bool, mode: int | None, replaces: bool
) -> Staged:
    temp = _temp_name(rel)
    with failing_as("WRITE_ERROR", rel), root.parent(temp) as (directory, name):
        reach("file.stage")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        file = io.FileIO(os.open(name, flags, 0o666, dir_fd=directory), "wb")
        try:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(file.fileno(), rest) :]
            reach("file.staged")
            if not fsync:
                file.close()
                return Staged(temp, rel, replaces)
            if _SYNC_FILE_RANGE is not None:
                # Only to begin early: `_sync` waits, and sees what goes wrong.
                _SYNC_FILE_RANGE(file.fileno(), _WHOLE_FILE, _WHOLE_FILE, _START_WRITING)
        except BaseException:
            file.close()
            with suppress(OSError):
                os.unlink(name, dir_fd=directory)
            raise
    return Staged(temp, rel, replaces, file)


def _temp_name(rel: str) -> str:
    return f"{rel}.maad-tmp-{os.getpid()}-{uuid.uuid4()}"


def _rename(root: ProjectRoot, src: str, dst: str) -> None:
    with root.parent(src) as source, root.parent(dst) as target:
        for attempt in (_rename_atomically, _link_and_unlink, _reserve_and_rename):
            if attempt(*source, *target):
                return


def _rename_atomically(src_dir: int, src: str, dst_dir: int, dst: str) -> bool:
    return _renameat2(src_dir, src, dst_dir, dst, _RENAME_NOREPLACE)


def _renameat2(src_dir: int, src: str, dst_dir: int, dst: str, flag: int) -> bool:
    """False where the kernel, the library or the file system lacks it."""
    if _RENAMEAT2 is None:
        return False
    if _RENAMEAT2(src_dir, os.fsencode(src), dst_dir, os.fsencode(dst), flag) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NO_RENAMEAT2:
        return False
    raise OSError(code, os.strerror(code))


def _link_and_unlink(src_dir: int, src: str, dst_dir: int, dst: str) -> bool:
    """A second name, then the first one away; False where links are not supported."""
    try:
        os.link(src, dst, src_dir_fd=src_dir, dst_dir_fd=dst_dir, follow_symlinks=False)
    except OSError as failure:
        if failure.errno in _NO_LINKS:
            return False
        raise
    reach("file.linked")
    os.unlink(src, dir_fd=src_dir)
    return True


def _reserve_and_rename(src_dir: int, src: str, dst_dir: int, dst: str) -> bool:
    """Take the name with an empty file, then rename over it; readers may meet it empty."""
    os.close(os.open(dst, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=dst_dir))
    try:
        reach("file.reserved")
        os.rename(src, dst, src_dir_fd=src_dir, dst_dir_fd=dst_dir)
    except BaseException:
        os.unlink(dst, dir_fd=dst_dir)
        raise
    return True


def _fsync_directory(root: ProjectRoot, rel: str) -> None:
    fd = root.open_directory(rel)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _is_left_behind(name: str) -> bool:
    match = _TEMP_NAME.fullmatch(name)
    if match is None:
        return False
    return is_gone(int(match[1]))


def is_gone(pid: int) -> bool:
    """Whether a process that left files behind is dead; this one, which is new, counts too."""
    if pid == os.getpid():
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False


@contextmanager
def _removing(root: ProjectRoot, temp: str) -> Iterator[None]:
    """Remove a temporary file when the step that should have used it up fails."""
    try:
        yield
    except BaseException:
        with suppress(MaadError):
            unlink(root, temp)
        raise


@contextmanager
def failing_as(code: str, rel: str) -> Iterator[None]:
    """WRITE_ERROR or DELETE_ERROR (`{file, errno}`) in place of an OSError."""
    try:
        yield
    except OSError as failure:
        raise MaadError(
            code,
            f"{rel} could not be {'written' if code == 'WRITE_ERROR' else 'moved or removed'}: "
            f"{os.strerror(failure.errno or 0)}",
            {"file": rel, "errno": errno_name(failure)},
        ) from None
