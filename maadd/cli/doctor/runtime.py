"""The runtime directory of a server: its place, its mode, and the length of socket paths."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping

from maadd.cli.doctor.check import Check, ok, problem, warning
from maadd.config.runtime_path import CONTROL_SOCKET, runtime_path
from maadd.pool.runtime_dir import MAX_SOCKET_PATH
from maadd.protocol.ownership import lock_holders

_LEAST_BYTES = 64 * 1024
"""A lock and a handful of sockets."""

_SHORTER = "set MAADD_RUNTIME_DIR to a shorter directory"


def checks(target: str, environ: Mapping[str, str]) -> Iterator[Check]:
    """What a server of `target` (project folder or instance file) will find."""
    path = runtime_path(target, environ)
    socket = os.path.join(path, CONTROL_SOCKET)
    # The sockets of the workers have the longest name.
    length = len(os.fsencode(os.path.join(path, "workers.sock")))
    if length > MAX_SOCKET_PATH:
        text = f"{path}: a socket there has {length} bytes, the system allows {MAX_SOCKET_PATH}"
        yield problem("socket path", text, _SHORTER)
    else:
        yield ok("socket path", f"{length} of {MAX_SOCKET_PATH} bytes")
    yield _directory(path)
    if os.path.exists(socket):
        yield _server(path)


def _directory(path: str) -> Check:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        parent = path
        while not os.path.isdir(parent):
            parent = os.path.dirname(parent)
        if not os.access(parent, os.W_OK | os.X_OK):
            advice = "set MAADD_RUNTIME_DIR to a directory of your own"
            return problem("runtime directory", f"{path} cannot be made in {parent}", advice)
        return _room(parent) or ok("runtime directory", f"{path}, made when a server starts")
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISDIR(found.st_mode):
        return problem("runtime directory", f"{path} is no directory", f"rm {path}")
    if found.st_uid != os.geteuid():
        text = f"{path} belongs to user {found.st_uid}"
        return problem("runtime directory", text, "run as that user, or set MAADD_RUNTIME_DIR")
    if mode & 0o077:
        text = f"{path} is open to other users (mode {mode:04o})"
        return problem("runtime directory", text, f"chmod 700 {path}")
    return _room(path) or ok("runtime directory", path)


def _room(path: str) -> Check | None:
    """What is wrong when lock and sockets find no room in this directory."""
    entries = os.statvfs(path)
    if entries.f_bavail * entries.f_frsize < _LEAST_BYTES:
        text = f"the file system of {path} is full"
    elif entries.f_files and not entries.f_favail:
        text = f"the file system of {path} has no free inodes"
    else:
        return None
    advice = "make room there, or set MAADD_RUNTIME_DIR to a directory on another one"
    return problem("runtime directory", text, advice)


def _server(path: str) -> Check:
    try:
        running = lock_holders(os.path.join(path, "lock"))
    except OSError:
        running = []
    if running:
        return ok("server", f"process {running[0]} serves")
    text = f"{path} has sockets of a server that no longer runs"
    return warning("server", text, "nothing to do: the next server removes them")
