"""The lock of Git's index is held for the moment of a commit, never while something else is done
(design §7, spec 03 §9.3)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from watched_project import ship

from maadd_worker.history.snapshot import SnapshotTags
from maadd_worker.outcome import Outcome


class Spy:
    """Notes whether the lock is there whenever what it stands for is called."""

    def __init__(self, root: Path, really: Callable[..., Any] | None = None) -> None:
        self._lock = root / ".git/index.lock"
        self._really = really
        self.seen: list[bool] = []

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        self.seen.append(self._lock.exists())
        return None if self._really is None else self._really(*arguments, **more)


def hold_the_index_back(project: Any) -> None:
    """As in a large repository, where the index file is written for several groups at once."""
    store = project.engine._history._committer._store
    store._index_cost_s = 10.0
    store._indexed_at = float("inf")


def create(project: Any, name: str) -> Any:
    return project.request("maad_create", {"docType": "ship", "fields": {"name": name}})


@pytest.mark.parametrize("mode", ["audit", "batch", "snapshot"])
def test_edits_that_are_committed_leave_the_lock_free(watched: Any, mode: str) -> None:
    project = watched(mode, external_edits="commit", max_writes=1)
    project.write("ships/shp-a.md", ship("shp-a", "Ada"))
    project.until(lambda: project.names() == {"Ada"})
    project.harness.engine._watching._edits._due = 0.0
    project.harness.engine.settle(True)
    assert "external" in project.harness.git("log", "-1", "--format=%B")
    assert not (project.root / ".git/index.lock").exists()
    assert project.harness.git("status", "--porcelain") == ""


def test_a_tag_is_made_without_the_lock(open_project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    project = open_project("snapshot", max_writes=1)
    spy = Spy(project.root, SnapshotTags.attach)
    monkeypatch.setattr(SnapshotTags, "attach", lambda *arguments, **more: spy(*arguments, **more))
    project.ok("maad_create", docType="ship", fields={"name": "Ada"})
    assert spy.seen == [False]
    assert project.git("tag").startswith("maad-snapshot-")


def test_other_work_of_the_same_group_goes_on_without_the_lock(
    open_project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = open_project()
    project.ok("maad_create", docType="ship", fields={"name": "Ada"})
    hold_the_index_back(project)
    spy = Spy(project.root)
    monkeypatch.setattr(project.engine._maintenance, "answer", lambda call: spy() or Outcome({}))
    project.group(create(project, "Bo"), project.request("maad_reload", {}))
    assert spy.seen == [False]


def test_a_job_goes_on_without_the_lock(open_project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    project = open_project()
    project.ok("maad_create", docType="ship", fields={"name": "Ada"})
    spy = Spy(project.root, project.engine.jobs.step)
    monkeypatch.setattr(project.engine.jobs, "step", spy)
    project.begin(lambda reply: None, project.request("maad_reindex", {"wait": False}))
    hold_the_index_back(project)
    project.begin(lambda reply: None, create(project, "Bo"))
    assert (project.root / ".git/index.lock").exists()
    project.engine.settle(True)
    assert spy.seen == [False]
