"""How much memory this process and its control group use, and may use (spec 04 §12.5)."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable

import msgspec

MIB = 1_048_576

_NO_LIMIT = 1 << 60
"""Version 1 writes a limit close to 2^63 where there is none."""

_FRESH_S = 0.1
"""So old a look at the control group still counts: it takes two files a level, and every heavy
call asks."""

_PAGE_BYTES = os.sysconf("SC_PAGESIZE")


class CgroupLevel(msgspec.Struct, frozen=True):
    """The two files of one group: what is used, and what may be."""

    current: str
    limit: str


class CgroupMemory(msgspec.Struct, frozen=True):
    """Bytes; `limit` None where nothing limits."""

    current: int
    limit: int | None


def cgroup_levels(
    membership: str = "/proc/self/cgroup", mount: str = "/sys/fs/cgroup"
) -> tuple[CgroupLevel, ...]:
    """The group of this process and those around it, innermost first; empty without any.

    A limit may stand at any level, so all of them count.
    """
    try:
        with open(membership) as file:
            lines = file.read().splitlines()
    except OSError:
        return ()
    groups = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    for _, controllers, path in groups:
        if "memory" in controllers.split(","):
            names = "memory.usage_in_bytes", "memory.limit_in_bytes"
            return _levels(os.path.join(mount, "memory"), path, *names)
    for number, controllers, path in groups:
        if number == "0" and not controllers:
            return _levels(mount, path, "memory.current", "memory.max")
    return ()


def cgroup_memory(levels: tuple[CgroupLevel, ...]) -> CgroupMemory | None:
    """The level with the least to spare, or the innermost where nothing limits; None when
    nothing can be read."""
    found = [memory for level in levels if (memory := _read(level)) is not None]
    limited = [memory for memory in found if memory.limit is not None]
    if limited:
        return min(limited, key=lambda memory: (memory.limit or 0) - memory.current)
    return found[0] if found else None


def cgroup_reader(
    levels: tuple[CgroupLevel, ...], clock: Callable[[], float] = time.monotonic
) -> Callable[[], CgroupMemory | None]:
    """`cgroup_memory` for callers that ask often: it reads the files ten times a second at most.

    `clock` is monotonic seconds.
    """
    last: CgroupMemory | None = None
    looked = -math.inf

    def read() -> CgroupMemory | None:
        nonlocal last, looked
        now = clock()
        if now - looked > _FRESH_S:
            last, looked = cgroup_memory(levels), now
        return last

    return read


def resident_bytes() -> int | None:
    """What of this process lies in memory; None where the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None


def _levels(mount: str, path: str, current: str, limit: str) -> tuple[CgroupLevel, ...]:
    parts = [part for part in path.split("/") if part and part != ".."]
    folders = [os.path.join(mount, *parts[:depth]) for depth in range(len(parts), -1, -1)]
    return tuple(
        CgroupLevel(os.path.join(folder, current), os.path.join(folder, limit))
        for folder in folders
        if os.path.exists(os.path.join(folder, current))
    )


def _read(level: CgroupLevel) -> CgroupMemory | None:
    try:
        with open(level.current) as file:
            current = int(file.read())
        with open(level.limit) as file:
            text = file.read().strip()
        limit = None if text == "max" else int(text)
    except (OSError, ValueError):
        return None
    return CgroupMemory(current, None if limit is None or limit >= _NO_LIMIT else limit)
