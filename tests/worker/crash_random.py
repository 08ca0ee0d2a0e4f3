"""Rounds of crashes that a seed settles."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crash_model import RECORD_TOOLS, TOOLS, Op, Script
from crash_rounds import Base, Round

from maadd_worker.disk import publish
from maadd_worker.failpoints import NAMES


def no_atomic_rename() -> None:
    """As on a file system without `renameat2`."""
    publish._RENAMEAT2 = None


def no_links_either() -> None:
    """As on one without hard links too."""
    publish._RENAMEAT2 = None
    publish._link_and_unlink = lambda *_: False


def _likely(mode: str) -> list[str]:
    """The failpoints that calls in a mode may well come to."""
    rare = ("recovery.", "read.", "git.program.", "git.pack", "file.withdraw", "folder.made")
    if mode == "feed":
        rare += ("git.", "history.flush")
    return [name for name in sorted(NAMES) if not name.startswith(rare)]


def _add_more(groups: list[list[Op]], script: Script, rng: random.Random) -> None:
    """Writes that wait together with the last one, unless they meet it."""
    for _ in range(2):
        op = script.next(rng.choice(("create", "update")))
        if all(op.effects.keys().isdisjoint(other.effects) for other in groups[-1]):
            groups[-1].append(op)
        else:
            groups.append([op])


def random_round(base: Base, root: Path, new_engine: Callable[..., Any], seed: int) -> str:
    """One round that its seed settles but for the moment of a kill by time; what it was."""
    rng = random.Random(seed)
    mode = rng.choice(("audit", "audit", "batch", "snapshot", "feed"))
    settings: dict[str, Any] = {"fsync": rng.random() < 0.5}
    if mode in ("batch", "snapshot") and rng.random() < 0.6:
        settings["max_writes"] = rng.randint(1, 4)
    one = Round(base, root, mode, new_engine, **settings)
    if mode != "feed" and rng.random() < 0.15:
        one.git("config", "maad.hooks", "true")
    script = Script(one.sure, rng)
    groups: list[list[Op]] = []
    for _ in range(rng.randint(1, 5)):
        tool = rng.choice(TOOLS)
        groups.append([script.next(tool)])
        if tool in RECORD_TOOLS and rng.random() < 0.4:
            _add_more(groups, script, rng)
    how: dict[str, Any] = {"pauses": rng}
    if rng.random() < 0.15:
        how["before"] = rng.choice((no_atomic_rename, no_links_either))
    armed = ""
    if rng.random() < 0.3:
        how["kill_after_s"] = rng.uniform(0.0, 0.25)
    else:
        armed = f"{rng.choice(_likely(mode))}=kill@{rng.choice((1, 1, 1, 2, 3, 6))}"
    what = f"seed {seed}: {mode} {settings} {armed or how.get('kill_after_s')}"
    try:
        what += f" {one.run(groups, armed, **how).status}"
        if rng.random() < 0.25:
            again = rng.choice(sorted(NAMES))
            told = one.run([], f"{again}=kill@{rng.choice((1, 1, 2))}")
            what += f", then {again} {told.status}"
        one.check()
    except BaseException as failure:
        failure.add_note(what)
        raise
    shutil.rmtree(root)
    return what
