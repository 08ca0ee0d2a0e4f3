"""Whether the system gives enough change events for the folders of a project."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from maadd.cli.doctor.check import Check, ok, warning
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.schema.model import Model
from maadd_worker.watch.places import watched_places

_LIMITS = "/proc/sys/fs/inotify"


def checks(folder: ProjectRoot, model: Model, mode: str) -> Iterator[Check]:
    """The inotify limits against what the project needs; `mode` is the setting MAAD_WATCH."""
    if mode != "auto":
        yield ok("inotify", f"not used: MAAD_WATCH={mode}")
        return
    try:
        watches, instances = _limit("max_user_watches"), _limit("max_user_instances")
    except OSError:
        yield warning("inotify", "this system has none", "set MAAD_WATCH=poll")
        return
    needed = sum(_folders(place.path) for place in watched_places(folder, model))
    used, open_instances = _in_use()
    text = f"{needed} watches needed, {used} of {watches} in use"
    if used + needed > watches:
        raised = max(524_288, 2 * (used + needed))
        advice = f"sysctl fs.inotify.max_user_watches={raised}; until then files are polled"
        yield warning("inotify", text, advice)
    elif open_instances >= instances:
        advice = f"sysctl fs.inotify.max_user_instances={max(1024, 2 * instances)}"
        yield warning("inotify", f"all {instances} instances are in use", advice)
    else:
        yield ok("inotify", text)


def _limit(name: str) -> int:
    with open(os.path.join(_LIMITS, name), encoding="ascii") as file:
        return int(file.read())


def _folders(path: str) -> int:
    return sum(1 for _ in os.walk(path))


def _in_use() -> tuple[int, int]:
    """Watches and instances of this user, as far as its processes can be looked into."""
    watches = instances = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
                continue
            for number in os.listdir(f"/proc/{pid}/fd"):
                # A file may be closed between the listing and the look.
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{number}") != "anon_inode:inotify":
                        continue
                    instances += 1
                    with open(f"/proc/{pid}/fdinfo/{number}", encoding="ascii") as info:
                        watches += sum(line.startswith("inotify ") for line in info)
    return watches, instances
