"""Hard deletes and purges leave no copy of the text under `_backend` (known trap 19)."""

from __future__ import annotations

import shutil
import threading
from typing import Any

import pytest

from maadd_worker.index.store import Index

SECRET = "Xylophone secret"


def holders(project: Any) -> list[str]:
    """The files of the backend that hold the text."""
    return sorted(
        path.name
        for path in (project.root / "_backend").iterdir()
        if SECRET.encode() in path.read_bytes()
    )


@pytest.fixture(params=["audit", "feed"])
def project(request: pytest.FixtureRequest, open_project: Any) -> Any:
    project = open_project(request.param, purge_default_retention_days=0)
    project.ok(
        "maad_bulk_create",
        records=[{"docType": "ship", "fields": {"name": SECRET}, "docId": "shp-x"}],
        idempotencyKey="k1",
    )
    project.ok("maad_update", docId="shp-x", fields={"tonnage": 5}, idempotencyKey="k2")
    assert holders(project)
    return project


def test_a_hard_delete_is_forgotten_in_the_next_quiet_moment(project: Any) -> None:
    project.ok("maad_delete", docId="shp-x", mode="hard")
    project.settle()
    assert holders(project) == []


def test_a_start_after_a_crash_forgets_what_the_log_still_held(project: Any, tmp_path: Any) -> None:
    project.ok("maad_delete", docId="shp-x", mode="hard")
    crashed = tmp_path / "crashed"
    shutil.copytree(project.root / "_backend", crashed)
    assert SECRET.encode() in (crashed / "maad.db-wal").read_bytes()
    Index.open(str(crashed / "maad.db"), read_only=False).close()
    assert not [one for one in crashed.glob("maad.db*") if SECRET.encode() in one.read_bytes()]


def test_a_purge_is_forgotten_too(project: Any) -> None:
    project.ok("maad_delete", docId="shp-x")
    project.engine._index.writer().connection.execute(
        "UPDATE documents SET updated_at = '2020-01-01T00:00:00.000Z' WHERE deleted = 1"
    )
    assert len(project.ok("maad_purge_soft_deleted", confirm=True)["purged"]) == 1
    project.settle()
    assert holders(project) == []


def test_a_reader_only_delays_it(project: Any) -> None:
    project.ok("maad_delete", docId="shp-x", mode="hard")
    with project._reader.snapshot():
        project._reader.find("shp-x")
        assert project.engine.settle(True) is not None
    while (wait := project.engine.settle(True)) is not None and holders(project):
        threading.Event().wait(min(wait, 0.02))  # as the writer thread does
    assert holders(project) == []


def test_the_writer_asks_for_a_quiet_moment(project: Any) -> None:
    """Right after the delete, when more writes may wait, nothing is held up for it."""
    project.ok("maad_bulk_delete", docIds=["shp-x"], mode="hard", confirm=True)
    wait = project.engine.settle(False)
    assert wait is not None
    assert wait < 1
