"""Who holds a project, and locks of Git that somebody left behind.

The owner lock is never taken here, not for a moment: the kernel's table says who has it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from maadd.cli.doctor.check import Check, ok, problem, warning
from maadd.protocol.ownership import LOCK_PATH, last_owner, lock_holders
from maadd.protocol.process_identity import is_stopped
from maadd_worker.history.git_dir import locate
from maadd_worker.history.lock_holder import find_holder
from maadd_worker.history.outcome import GitFailure

_YOUNG_S = 10.0
_GIT_LOCKS = ("index.lock", "HEAD.lock", "config.lock", "packed-refs.lock", "shallow.lock")


def checks(root: str) -> Iterator[Check]:
    """The owner lock, then the locks of the repository."""
    yield _owner(root)
    yield from _git_locks(root)


def is_owned(root: str) -> bool:
    """Whether a process has the project open."""
    try:
        return bool(lock_holders(os.path.join(root, LOCK_PATH)))
    except OSError:
        return False


def _owner(root: str) -> Check:
    path = os.path.join(root, LOCK_PATH)
    try:
        holders = lock_holders(path)
    except FileNotFoundError:
        return ok("owner", "no process has the project open")
    owner = last_owner(root)
    if not holders:
        return ok("owner", "no process has the project open")
    pid = holders[0] or owner.pid
    name = "" if pid is None else _command(pid)
    by = f"process {pid}{f' ({name})' if name else ''}"
    if owner.pid == pid and owner.server is not None:
        by = f"{by} of {owner.server}, which serves {owner.server.serves},"
    if owner.pid == pid and owner.is_abandoned:
        advice = "nothing to do: whoever opens the project next ends it"
        return warning("owner", f"{by} has it open, but its server is gone", advice)
    stopped = [one for one in (owner.server_pid, pid) if one is not None and is_stopped(one)]
    if stopped:
        text = f"{by} has it open, and process {stopped[0]} is stopped: commands wait in vain"
        return problem("owner", text, f"kill -CONT {stopped[0]}")
    if owner.endpoint is not None and not os.path.exists(owner.endpoint):
        advice = (
            f"end process {owner.server_pid} when it no longer answers; commands cannot reach it"
        )
        return warning("owner", f"{by} has it open, but its socket is gone", advice)
    return ok("owner", f"{by} has the project open")


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _git_locks(root: str) -> Iterator[Check]:
    try:
        git = locate(root)
    except GitFailure as failure:
        yield problem("git locks", failure.message, "repair or remove the entry .git")
        return
    if git is None:
        return
    there = [
        path
        for folder in dict.fromkeys((git.path, git.common))
        for name in _GIT_LOCKS
        if os.path.lexists(path := os.path.join(folder, name))
    ]
    for path in there:
        holder = find_holder(path, root)
        if holder is not None:
            text = f"{path} is held by {holder['name']} (process {holder['pid']})"
            yield warning("git locks", text, "commits wait until it is gone")
        elif time.time() - os.lstat(path).st_mtime < _YOUNG_S:
            text = f"{path} was made a moment ago"
            yield warning("git locks", text, "look again: a server holds it for moments only")
        else:
            text = f"{path} is there, and no process has it open"
            yield problem("git locks", text, f"when no git command runs: rm {path}")
    if not there:
        yield ok("git locks", "none")
