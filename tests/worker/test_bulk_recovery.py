"""A bulk call whose process dies: what the next start makes of it (spec 01 §15.1, 03 §7.6)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from maadd_worker.disk.journal import Journal
from maadd_worker.write import group, publication

KILLED = 9
NAMES = ("Ada", "Bo", "Cy", "Dee")
IDS = [f"shp-{name.lower()}" for name in NAMES]
CREATE = {"records": [{"docType": "ship", "fields": {"name": name}} for name in NAMES]}


def write_and_die(project: Any, tool: str, args: dict[str, Any], place: str) -> None:
    """Have another process own the project and die in the middle of a write.

    The place is `file:<n>` (before the n-th change of a file), `row:<n>` (inside the index
    transaction, after n rows), `history` (before the commit) or `reply` (after it).
    """
    project.close()
    child = os.fork()
    if child == 0:
        try:
            _write_to_death(project, tool, args, place)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == KILLED


def _write_to_death(project: Any, tool: str, args: dict[str, Any], place: str) -> None:
    project.engine = project.open()
    step, _, number = place.partition(":")
    if step == "file":
        publication._publish = _dying_after(int(number), publication._publish)
    elif step == "row":
        group._index = _dying_after(int(number), group._index)
    elif step == "history":
        project.engine._history.commit = _die
    project.deliveries(project.request(tool, args))
    if step == "reply":
        _die()


def _die(*_: Any) -> None:
    os._exit(KILLED)


def _dying_after(calls: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, but the call after so many others ends the process."""
    left = calls

    def stand_in(*args: Any, **more: Any) -> Any:
        nonlocal left
        if left == 0:
            _die()
        left -= 1
        return function(*args, **more)

    return stand_in


def restart(project: Any) -> None:
    project.engine = project.open()
    project._reader = project.engine.open_reader()


def found(project: Any) -> list[str]:
    """The live ids by the index, which must be those on the disk."""
    results = project.ok("maad_query", docType="ship")["results"]
    ids = sorted(one["docId"] for one in results)
    files = sorted(path.name for path in (project.root / "ships").glob("shp-*"))
    assert files == [f"{doc_id}.md" for doc_id in ids]
    return ids


def last_message(project: Any) -> str:
    return str(project.git("log", "-1", "--format=%B")).strip()


def assert_all_is_clean(project: Any) -> None:
    project.close()
    assert project.git("status", "--porcelain") == ""
    assert not list(project.root.rglob("*.maad-tmp-*"))
    project.git("fsck", "--strict")
    journal = Journal.open(str(project.root), fsync=False)
    assert journal.pending() == []
    journal.close()


@pytest.mark.parametrize(
    ("place", "kept"),
    [("file:0", 0), ("file:1", 1), ("file:3", 3), ("row:0", 4), ("row:2", 4), ("history", 4)],
)
def test_each_record_is_wholly_there_or_wholly_absent(
    open_project: Any, place: str, kept: int
) -> None:
    project = open_project()
    write_and_die(project, "maad_bulk_create", CREATE, place)
    restart(project)
    assert found(project) == IDS[:kept]
    subject, *trailers = last_message(project).splitlines()
    if kept:
        assert subject.startswith(f"maad:create shp-ada [ship] bulk:{kept} — ")
        assert [line.split()[2] for line in trailers if "Maad-Write" in line] == IDS[:kept]
    else:
        assert subject == "fixture"
    assert_all_is_clean(project)


@pytest.mark.parametrize(
    ("place", "kept"), [("file:0", 0), ("file:3", 0), ("row:0", 4), ("row:3", 4), ("reply", 4)]
)
def test_an_atomic_call_is_there_as_a_whole_or_not_at_all(
    open_project: Any, place: str, kept: int
) -> None:
    project = open_project()
    write_and_die(project, "maad_bulk_create", {**CREATE, "atomic": True}, place)
    restart(project)
    assert len(list(project.root.glob("ships/*.md"))) == kept
    assert project.ok("maad_summary")["totalDocuments"] == kept
    assert len(project.git("log", "--format=%h").split()) == (2 if kept else 1)
    assert_all_is_clean(project)


@pytest.mark.parametrize("mode", ["batch", "snapshot"])
def test_a_call_that_waits_for_its_batch_becomes_one_commit(open_project: Any, mode: str) -> None:
    project = open_project(mode)
    write_and_die(project, "maad_bulk_create", CREATE, "reply")
    restart(project)
    assert found(project) == IDS
    subject, *trailers = last_message(project).splitlines()
    assert subject == "maad:create shp-ada [ship] bulk:4 — 4 records created"
    assert [line.split()[2] for line in trailers if "Maad-Write" in line] == IDS
    assert_all_is_clean(project)


def test_a_new_file_that_somebody_changed_is_never_undone(open_project: Any) -> None:
    project = open_project()
    write_and_die(project, "maad_bulk_create", {**CREATE, "atomic": True}, "file:2")
    path = project.root / "ships/shp-ada.md"
    path.write_text(path.read_text() + "mine\n")
    restart(project)
    assert found(project) == ["shp-ada"]
    assert path.read_text().endswith("mine\n")


def test_an_acknowledged_atomic_call_survives_a_later_delete(open_project: Any) -> None:
    """The journal may still hold both when the process dies."""
    project = open_project()
    project.ok("maad_bulk_create", **CREATE, atomic=True)
    project.ok("maad_delete", docId="shp-bo", mode="hard")
    entries = project.engine._journal.pending()
    assert len(entries) == 5
    project.close()
    journal = Journal.open(str(project.root), fsync=False)
    journal.begin(entries)
    journal.close()
    restart(project)
    assert found(project) == ["shp-ada", "shp-cy", "shp-dee"]
    assert_all_is_clean(project)


@pytest.mark.parametrize("place", ["file:2", "row:1", "history"])
@pytest.mark.parametrize("mode", ["soft", "hard"])
def test_deletes_are_finished(open_project: Any, mode: str, place: str) -> None:
    project = open_project()
    project.ok("maad_bulk_create", **CREATE)
    args = {"docIds": IDS[:3], "mode": mode, "confirm": True}
    write_and_die(project, "maad_bulk_delete", args, place)
    restart(project)
    gone = 2 if place == "file:2" else 3
    assert found(project) == IDS[gone:]
    assert len(list(project.root.glob("ships/_deleted_*"))) == (gone if mode == "soft" else 0)
    assert last_message(project).startswith(
        f"maad:delete shp-ada [ship] bulk:{mode}:{gone} — {gone} records deleted"
    )
    assert_all_is_clean(project)


@pytest.mark.parametrize(("place", "gone"), [("file:1", 1), ("row:1", 2), ("history", 2)])
def test_a_purge_is_finished(open_project: Any, place: str, gone: int) -> None:
    project = open_project()
    project.ok("maad_bulk_create", **CREATE)
    project.ok("maad_bulk_delete", docIds=IDS[:2], confirm=True)
    project.engine._index.writer().connection.execute(
        "UPDATE documents SET updated_at = '2020-01-01T00:00:00.000Z' WHERE deleted = 1"
    )
    args = {"olderThan": "2021-01-01", "confirm": True}
    write_and_die(project, "maad_purge_soft_deleted", args, place)
    restart(project)
    assert len(list(project.root.glob("ships/_deleted_*"))) == 2 - gone
    assert project.ok("maad_purge_soft_deleted", olderThan="2021-01-01")["scanned"] == 2 - gone
    assert last_message(project).startswith(f"maad:delete shp-ada [ship] purge:{gone} — ")
    assert_all_is_clean(project)


@pytest.mark.parametrize(("place", "changed"), [("file:2", 2), ("row:1", 3), ("history", 3)])
def test_updates_are_finished(open_project: Any, place: str, changed: int) -> None:
    project = open_project()
    project.ok("maad_bulk_create", **CREATE)
    updates = [{"docId": doc_id, "fields": {"tonnage": 7}} for doc_id in IDS[:3]]
    write_and_die(project, "maad_bulk_update", {"updates": updates}, place)
    restart(project)
    versions = [project.ok("maad_get", docId=doc_id)["version"] for doc_id in IDS[:3]]
    assert versions == [2] * changed + [1] * (3 - changed)
    assert last_message(project).startswith(f"maad:update shp-ada [ship] bulk:{changed} — ")
    assert "fields:tonnage" in last_message(project)
    assert_all_is_clean(project)


def test_an_answer_that_was_indexed_is_replayed_after_the_death(open_project: Any) -> None:
    project = open_project()
    call = {**CREATE, "idempotencyKey": "k"}
    write_and_die(project, "maad_bulk_create", call, "history")
    restart(project)
    reply = project.reply("maad_bulk_create", **call)
    assert reply.meta["replayed"] is True
    assert reply.meta["write_durable"] is True
    assert len(json.loads(reply.body)["succeeded"]) == 4
    assert project.ok("maad_summary")["totalDocuments"] == 4
