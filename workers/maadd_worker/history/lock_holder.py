"""Finds the process that probably holds a lock file, to name it in a message."""

from __future__ import annotations

import contextlib
import os
from typing import Any

_PROC = "/proc"


def find_holder(lock: str, root: str) -> dict[str, Any] | None:
    """`{"pid", "name"}` of a process that has `lock` open, else of a `git` that works in
    `root`; None when there is none or the system does not tell."""
    candidate: dict[str, Any] | None = None
    try:
        names = [name for name in os.listdir(_PROC) if name.isdigit()]
    except OSError:
        return None
    for name in names:
        if int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            process = os.path.join(_PROC, name)
            if _has_open(process, lock):
                return {"pid": int(name), "name": _command(process)}
            if candidate is None and _command(process) == "git":
                directory = os.readlink(os.path.join(process, "cwd"))
                if directory == root or directory.startswith(root + os.sep):
                    candidate = {"pid": int(name), "name": "git"}
    return candidate


def _has_open(process: str, path: str) -> bool:
    descriptors = os.path.join(process, "fd")
    for number in os.listdir(descriptors):
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(os.path.join(descriptors, number)) == path:
                return True
    return False


def _command(process: str) -> str:
    with open(os.path.join(process, "comm"), encoding="utf-8", errors="replace") as file:
        return file.read().strip()
