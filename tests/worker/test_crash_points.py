"""A worker that dies at each step of each kind of write: nothing that was answered is lost, and
nothing half-written stays."""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from crash_model import TOOLS, Script
from crash_random import no_atomic_rename, no_links_either, random_round
from crash_rounds import Base, Round

from maadd_worker import failpoints

MODES = ("audit", "batch", "snapshot", "feed")


@pytest.fixture
def new_round(crash_base: Base, tmp_path: Path, engine_class: Any) -> Callable[..., Round]:
    numbers = itertools.count()

    def make(mode: str, **settings: Any) -> Round:
        return Round(crash_base, tmp_path / str(next(numbers)), mode, engine_class, **settings)

    return make


class Scene(msgspec.Struct, frozen=True):
    """How to come to a failpoint: calls of `tools`, in this mode, with these settings.

    `failpoints` is what is armed, `<name>=kill` when it is None; `prepare` runs in the process
    that will die, `repository` on the copy of the project before.
    """

    mode: str = "audit"
    tools: tuple[str, ...] = ("update",)
    failpoints: str | None = None
    settings: dict[str, Any] = {}
    choice: dict[str, Any] = {}
    prepare: Callable[[], None] | None = None
    configuration: tuple[str, str] | None = None
    dies_again: bool = False
    together: bool = False
    """The calls wait as one group."""


SYNCED = {"fsync": True}
HOOKS = ("maad.hooks", "true")
AGAIN = "index.commit=kill"

AGAIN_AND_AGAIN = (("create", "update_new"), ("bulk_create", "update_new"))
"""The second write meets the record of the first, whose journal entry is still there."""

SCENES: dict[str, list[Scene]] = {
    "journal.begin": [Scene()],
    "journal.begun": [Scene(tools=("bulk_delete",))],
    "journal.mark": [Scene("batch"), Scene(tools=("bulk_create",), choice={"atomic": True})],
    "journal.boundary": [
        Scene("batch", ("create", "flush")),
        Scene("snapshot", ("update", "flush")),
    ],
    "journal.complete": [Scene(), Scene("feed"), Scene("snapshot", ("create", "flush"))],
    "journal.completed": [Scene(), Scene("feed", ("bulk_delete",))],
    "folder.made": [Scene(tools=("create",), choice={"doc_type": "port"}, settings=SYNCED)],
    "file.stage": [Scene()],
    "file.staged": [
        Scene(tools=("create",)),
        Scene(failpoints="file.staged=kill@3", tools=("bulk_update", "bulk_create")),
    ],
    "file.synced": [Scene(tools=("bulk_create",), settings=SYNCED)],
    "file.publish": [
        Scene(tools=("bulk_create",), failpoints="file.publish=kill@2", choice={"atomic": True}),
        Scene(tools=("bulk_update",), failpoints="file.publish=kill@2"),
        Scene(tools=("bulk_delete",), failpoints="file.publish=kill@2", choice={"mode": "soft"}),
        Scene(tools=("bulk_delete",), failpoints="file.publish=kill@2", choice={"mode": "hard"}),
        Scene(tools=("delete_where",), failpoints="file.publish=kill@3"),
        Scene(tools=("purge_soft_deleted",), failpoints="file.publish=kill@2"),
        Scene(
            tools=("repair_where",),
            failpoints="file.publish=kill@2",
            choice={"repair": "fix_schema_drift"},
        ),
        Scene(
            tools=("repair_where",),
            failpoints="file.publish=kill@2",
            choice={"repair": "prune_orphan_refs"},
        ),
    ],
    "file.published": [
        Scene(tools=("create",)),
        Scene(choice={"how": "append"}),
        Scene("batch", ("delete",), choice={"mode": "soft"}),
        Scene("feed", ("delete",), choice={"mode": "hard"}),
        Scene("snapshot", ("bulk_create",), choice={"atomic": True}),
    ],
    "file.linked": [
        Scene(tools=("create",), prepare=no_atomic_rename),
        Scene(tools=("delete",), choice={"mode": "soft"}, prepare=no_atomic_rename),
    ],
    "file.reserved": [
        Scene(tools=("create",), prepare=no_links_either),
        Scene(tools=("delete",), choice={"mode": "soft"}, prepare=no_links_either),
    ],
    "file.aside": [
        Scene(tools=("bulk_update",)),
        Scene("feed", ("delete",), choice={"mode": "hard"}),
    ],
    "file.withdraw": [
        Scene(tools=("bulk_update",), failpoints="index.commit=error:ENOSPC;file.withdraw=kill@2"),
        Scene(tools=("bulk_delete",), failpoints="index.commit=error:EIO;file.withdraw=kill@2"),
    ],
    "folder.synced": [Scene(settings=SYNCED)],
    "index.begun": [Scene(tools=("create",))],
    "index.member": [Scene("batch", ("bulk_update",)), Scene(tools=("repair_where",))],
    "index.commit": [Scene(tools=(tool,)) for tool in TOOLS[:-2]],
    "index.committed": [Scene(tools=("purge_soft_deleted",)), Scene("feed", ("create",))],
    "history.begin": [
        *(Scene(mode) for mode in MODES),
        *(Scene(tools=tools, failpoints="history.begin=kill@2") for tools in AGAIN_AND_AGAIN),
    ],
    "history.flush": [
        Scene("batch", settings={"max_writes": 1}),
        Scene("snapshot", ("create", "flush")),
    ],
    "git.lock": [Scene()],
    "git.locked": [Scene()],
    "git.objects": [Scene()],
    "git.object": [Scene(), Scene(failpoints="git.object=kill@2")],
    "git.blob": [Scene()],
    "git.tree": [Scene("batch", ("delete", "flush"))],
    "git.pack": [Scene(tools=("bulk_create",), choice={"count": 66})],
    "git.commit": [Scene(tools=("delete",))],
    "git.committed": [Scene("snapshot", ("create", "flush"))],
    "git.move": [Scene()],
    "git.ref.locked": [Scene(), Scene("batch", ("create", "flush"))],
    "git.ref.logged": [Scene()],
    "git.moved": [
        *(Scene(mode, ("create", "flush")) for mode in ("audit", "batch", "snapshot")),
        *(
            Scene(mode, ("create", "create", "create"), settings={"max_writes": 2}, together=True)
            for mode in ("batch", "snapshot")
        ),
    ],
    "git.index": [Scene()],
    "git.index.written": [Scene()],
    "git.indexed": [Scene(tools=("bulk_delete",))],
    "git.unlock": [Scene()],
    "git.unlocked": [Scene()],
    "git.tag": [Scene("snapshot", ("create", "flush")), Scene(tools=("create", "backup"))],
    "git.tagged": [Scene("snapshot", ("create", "flush")), Scene(tools=("create", "backup"))],
    "git.program.add": [Scene(tools=("create",), configuration=HOOKS)],
    "git.program.commit": [Scene(tools=("create",), configuration=HOOKS)],
    "git.program.committed": [Scene(tools=("delete",), configuration=HOOKS)],
    "reply.ready": [Scene(tools=(tool,)) for tool in ("create", "bulk_update", "delete_where")],
    "reply.sent": [Scene(mode) for mode in MODES],
    "recovery.undone": [Scene(tools=("bulk_create",), choice={"atomic": True}, dies_again=True)],
    "recovery.settled": [Scene(tools=("bulk_delete",), dies_again=True)],
    "recovery.history": [Scene("snapshot", ("repair_where",), dies_again=True)],
    "read.slow": [Scene(tools=("get",))],
}


def test_every_failpoint_has_a_scene() -> None:
    assert SCENES.keys() == failpoints.NAMES


@pytest.mark.parametrize(
    ("name", "scene"), [(name, scene) for name, scenes in SCENES.items() for scene in scenes]
)
def test_a_worker_that_dies_at_a_step(
    new_round: Callable[..., Round], name: str, scene: Scene
) -> None:
    one = new_round(scene.mode, **scene.settings)
    if scene.configuration is not None:
        one.git("config", *scene.configuration)
    script = Script(one.sure, random.Random(name))
    ops = [
        script.next(tool, **(scene.choice if not n else {})) for n, tool in enumerate(scene.tools)
    ]
    armed = AGAIN if scene.dies_again else scene.failpoints or f"{name}=kill"
    groups = [ops] if scene.together else [[op] for op in ops]
    told = one.run(groups, armed, before=scene.prepare)
    assert told.was_killed
    if scene.dies_again:
        assert one.run([], f"{name}=kill").was_killed
    one.check()


@pytest.mark.parametrize("seed", range(24))
def test_a_random_round(crash_base: Base, tmp_path: Path, engine_class: Any, seed: int) -> None:
    random_round(crash_base, tmp_path / "round", engine_class, seed)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_random_rounds(
    crash_base: Base, tmp_path: Path, engine_class: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """At least `MAADD_CRASH_ROUNDS` rounds, and more until `MAADD_CRASH_S` seconds are over. A
    failed round is done again by `MAADD_CRASH_SEED` with the seed that it names."""
    first = int(os.environ.get("MAADD_CRASH_SEED", time.time_ns() % 10**9))
    rounds = int(os.environ.get("MAADD_CRASH_ROUNDS", "500"))
    until = time.monotonic() + float(os.environ.get("MAADD_CRASH_S", "0"))
    number = 0
    killed = 0
    with capsys.disabled():
        print(f"\nMAADD_CRASH_SEED={first}")
    while number < rounds or time.monotonic() < until:
        what = random_round(crash_base, tmp_path / "round", engine_class, first + number)
        killed += " -9" in what
        number += 1
    with capsys.disabled():
        print(f"{number} rounds, {killed} of them with a process killed")
