"""Who else could read the token registry, or put another one in its place (spec 04 §7)."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

_MAX_LINKS = 40
"""As many as Linux follows."""


class _Step(NamedTuple):
    """An entry that decides where the registry lies: a link on the way, or the file itself."""

    folder: str
    name: str


def loose_permissions(path: str) -> list[str]:
    """What lets others than the owner at the registry: a text for `_auth/`, for the file, and for
    each folder in which somebody could change where a link on the way to it leads."""
    problems = []
    folder = os.path.dirname(path)
    for place, mode in ((folder, "700"), (path, "600")):
        try:
            bits = stat.S_IMODE(os.stat(place).st_mode)
        except OSError:
            continue  # absent, or reading it will say why it cannot be examined
        if bits & 0o077:
            name = os.path.relpath(place, os.path.dirname(folder))
            problems.append(f"{name} is open to others (mode {bits:o}); run 'chmod {mode}' on it")
    steps = list(_steps_to(path))
    if len(steps) > 1:
        owners = {0, os.geteuid(), *_owner_of(os.path.dirname(folder))}
        for step in dict.fromkeys(steps):
            problems += _changeable(step, owners, shared=step != steps[-1])
    return problems


def _changeable(step: _Step, owners: set[int], *, shared: bool) -> Iterator[str]:
    """Why others than `owners` could put something else in the place of the entry. `shared`: the
    folder may be one where everybody has files, and nobody those of others; not where the registry
    itself lies, whose lock anybody could hold."""
    try:
        folder = os.stat(step.folder)
        entry = _owner_of(os.path.join(step.folder, step.name))
    except OSError:
        return
    leads = f"from where the path of the token registry leads on ({step.name})"
    bits = stat.S_IMODE(folder.st_mode)
    if bits & 0o022 and not (shared and bits & stat.S_ISVTX):
        yield (
            f"others may write in the folder {step.folder} {leads} (mode {bits:o}); "
            "run 'chmod go-w' on it"
        )
    for what, owner in ((step.folder, {folder.st_uid}), (f"{step.folder}/{step.name}", entry)):
        if stranger := owner - owners:
            yield f"{what}, {leads}, belongs to user {stranger.pop()}; run 'chown' on it"


def _owner_of(path: str) -> set[int]:
    """The user of a file or link; nobody where nothing is."""
    with contextlib.suppress(OSError):
        return {os.lstat(path).st_uid}
    return set()


def _steps_to(path: str) -> Iterator[_Step]:
    """Every link that is followed on the way to `path`, and at last what it leads to."""
    rest = os.path.abspath(path).split("/")[::-1]
    here, followed = "/", 0
    lies = _Step("/", "")
    while rest:
        name = rest.pop()
        if name in ("", "."):
            continue
        if name == "..":
            here = os.path.dirname(here)
            continue
        lies = _Step(here, name)
        try:
            target = os.readlink(os.path.join(here, name))
        except OSError:  # no link
            here = os.path.join(here, name)
            continue
        followed += 1
        if followed > _MAX_LINKS:
            return
        yield lies
        if target.startswith("/"):
            here = "/"
        rest += target.split("/")[::-1]
    yield lies
