"""Moves a branch, or a detached HEAD, by compare-and-swap (design §7).

Like Git: `<ref>.lock` is taken, the reflogs are written, and the lock, which holds the new id,
is renamed over the ref. Unlike that of libgit2 the lock can be proven ours when this process
dies in between: it is a hard link to a file of ours, so both are one inode.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator

import msgspec

from maadd_worker.disk.folders import make_folders
from maadd_worker.disk.publish import is_gone
from maadd_worker.failpoints import reach
from maadd_worker.history.git_dir import GitDir
from maadd_worker.history.left_behind import has_ended, mark_of_this_process
from maadd_worker.history.outcome import GitFailure
from maadd_worker.history.store import Person

PROOF_PREFIX = "maadd-ref."

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)


class BranchMoved(Exception):
    """Somebody else moved the branch while a commit was being built on it."""


class RefLog(msgspec.Struct, frozen=True):
    """The entry of a move; `names` are the refs whose logs get it, `always` also those that
    have none yet. `offset` is the distance to UTC in minutes."""

    names: tuple[str, ...]
    always: bool
    person: Person
    when: int
    offset: int
    message: str


def move_ref(
    git_dir: GitDir,
    name: str,
    old: str | None,
    new: str,
    log: RefLog,
    current: Callable[[], str | None],
) -> None:
    """Point the ref `name` at `new` if `current`, asked under its lock, still says `old`.

    Raises BranchMoved, GitFailure with `details.reason` `ref-lock`, OSError.
    """
    path = _path(git_dir, name)
    lock = f"{path}.lock"
    proof = os.path.join(_base(git_dir, name), f"{PROOF_PREFIX}{mark_of_this_process()}")
    make_folders(_base(git_dir, name), *name.split("/")[:-1])
    with _proof(proof, new):
        _take(proof, lock, new, name)
        try:
            reach("git.ref.locked")
            if current() != old:
                raise BranchMoved
            _write_logs(git_dir, old or "0" * len(new), new, log)
            reach("git.ref.logged")
            os.rename(lock, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(lock)
            raise


def reclaim_refs(git_dir: GitDir) -> bool:
    """Remove the locks of refs that dead processes of ours left; True when there was one.

    The caller owns the project, so no living process works on its HEAD for us.
    """
    reclaimed = False
    for base in {git_dir.path, git_dir.common}:
        for name in os.listdir(base):
            mark = name.removeprefix(PROOF_PREFIX)
            if mark == name or not _is_left_behind(mark):
                continue
            proof = os.path.join(base, name)
            status = os.lstat(proof)
            if status.st_nlink > 1:
                for lock in _locks(base):
                    if os.path.samestat(os.lstat(lock), status):
                        os.unlink(lock)
                        reclaimed = True
            os.unlink(proof)
    return reclaimed


def _is_left_behind(mark: str) -> bool:
    # This process counts as well: it moves no branch yet.
    if mark == mark_of_this_process() or has_ended(mark):
        return True
    return mark.isdecimal() and is_gone(int(mark))


def _base(git_dir: GitDir, name: str) -> str:
    return git_dir.common if name.startswith("refs/") else git_dir.path


def _path(git_dir: GitDir, name: str) -> str:
    return os.path.join(_base(git_dir, name), *name.split("/"))


def _locks(base: str) -> Iterator[str]:
    yield from (path for path in (os.path.join(base, "HEAD.lock"),) if os.path.lexists(path))
    for folder, _, files in os.walk(os.path.join(base, "refs")):
        yield from (os.path.join(folder, file) for file in files if file.endswith(".lock"))


@contextlib.contextmanager
def _proof(path: str, new: str) -> Iterator[None]:
    # Never written again in place: once the ref is moved, it is the same file.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with open(path, "x", encoding="ascii") as file:
        file.write(f"{new}\n")
    try:
        yield
    finally:
        os.unlink(path)


def _take(proof: str, lock: str, new: str, name: str) -> None:
    try:
        try:
            os.link(proof, lock)
        except OSError as failure:
            if failure.errno not in _NO_LINKS:
                raise
            with open(lock, "x", encoding="ascii") as file:
                file.write(f"{new}\n")
    except FileExistsError:
        raise GitFailure(
            "GIT_COMMIT_FAILED",
            f"another Git process holds the lock of {name}; the commit follows when it is gone. "
            f"If no Git command runs on this project any more, remove .git/{name}.lock",
            {"reason": "ref-lock", "path": f".git/{name}.lock"},
        ) from None


def _write_logs(git_dir: GitDir, old: str, new: str, log: RefLog) -> None:
    sign = "-" if log.offset < 0 else "+"
    zone = f"{sign}{abs(log.offset) // 60:02}{abs(log.offset) % 60:02}"
    who = f"{log.person.name} <{log.person.email}> {log.when} {zone}"
    entry = f"{old} {new} {who}\t{log.message}\n".encode("utf-8", "replace")
    for name in log.names:
        path = os.path.join(_base(git_dir, name), "logs", *name.split("/"))
        if log.always:
            make_folders(_base(git_dir, name), "logs", *name.split("/")[:-1])
        elif not os.path.exists(path):
            continue
        with open(path, "ab") as file:
            file.write(entry)
