"""Versions and times after the loss of the index, told by Git (spec 01 §1)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import apsw
import pytest

from maadd_worker.history import lost_versions
from maadd_worker.index.layout import INDEX_PATH, LAYOUT_VERSION
from maadd_worker.index.store import Index

STAMPS = ("version", "createdAt", "updatedAt")
SHIP = "---\ndoc_id: {id}\ndoc_type: ship\nschema: ship.v1\nname: {name}\n---\n"


@pytest.fixture
def fleet(open_project: Any) -> Any:
    return open_project()


def lose_index(project: Any) -> Any:
    """Remove everything derived and index anew; the answer of that."""
    project.settle()
    project.close()
    shutil.rmtree(project.root / "_backend")
    project.reopen()
    return project.ok("maad_reindex")


def stamps(project: Any, doc_id: str) -> tuple[int, str, str]:
    found = project.ok("maad_get", docId=doc_id)
    return tuple(found[name] for name in STAMPS)


def is_reset(project: Any) -> bool:
    return project.ok("maad_health").get("versionsReset", False)


def write(project: Any, path: str, text: str) -> None:
    file = project.root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


PERSON = ("git", "-c", "user.name=A", "-c", "user.email=a@example.invalid")


def commit(project: Any, message: str, day: int) -> str:
    """A person's commit of everything, on a day of January 2020; its time."""
    moment = f"2020-01-{day:02}T10:00:00"
    project.catch_up()
    project.git("add", "-A")
    subprocess.run(
        [
            "git",
            "-c",
            "user.name=A",
            "-c",
            "user.email=a@example.invalid",
            "commit",
            "-qm",
            message,
        ],
        cwd=project.root,
        check=True,
        env={**os.environ, "GIT_COMMITTER_DATE": f"{moment}+00:00", "GIT_AUTHOR_DATE": moment},
    )
    return f"{moment}.000Z"


def commit_times(project: Any, *options: str) -> list[str]:
    """Committer's times, newest first, in the index's form."""
    listed = project.git("log", "--format=%cI", *options, "--date=iso")
    return [line[:19] + ".000Z" for line in listed.split()]


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")


def test_our_own_commits_tell_versions_and_times(fleet: Any) -> None:
    fleet.ok("maad_create", docType="ship", fields={"name": "Ada"})
    fleet.ok("maad_create", docType="ship", fields={"name": "Bo"})
    for tonnage in (1, 2):
        fleet.ok("maad_update", docId="shp-ada", fields={"tonnage": tonnage})
    last, _, _, first = commit_times(fleet, "--max-count=4")
    lose_index(fleet)
    assert stamps(fleet, "shp-ada") == (3, first, last)
    assert stamps(fleet, "shp-bo")[0] == 1
    assert not is_reset(fleet)
    # The recovered version is one to write against.
    assert fleet.ok("maad_update", docId="shp-ada", fields={"tonnage": 3}, expectedVersion=3)


def test_bulk_commits_tell_of_every_member(fleet: Any) -> None:
    records = [{"docType": "ship", "fields": {"name": name}} for name in ("Ada", "Bo")]
    fleet.ok("maad_bulk_create", records=records)
    updates = [{"docId": "shp-bo", "fields": {"tonnage": 1}}]
    fleet.ok("maad_bulk_update", updates=updates)
    lose_index(fleet)
    assert [stamps(fleet, f"shp-{name}")[0] for name in ("ada", "bo")] == [1, 2]
    assert not is_reset(fleet)


def test_commits_of_people_count_by_the_files_they_changed(fleet: Any) -> None:
    write(fleet, "ships/old/any-name.md", SHIP.format(id="shp-x", name="X"))
    write(fleet, "ships/shp-y.md", SHIP.format(id="shp-y", name="Y"))
    first = commit(fleet, "two ships", 1)
    write(fleet, "ships/old/any-name.md", SHIP.format(id="shp-x", name="X2"))
    commit(fleet, "one is renamed", 2)
    (fleet.root / "ships/3f").mkdir()
    (fleet.root / "ships/old/any-name.md").rename(fleet.root / "ships/3f/shp-x.md")
    moved = commit(fleet, "moved into a shard", 3)
    lose_index(fleet)
    assert stamps(fleet, "shp-x") == (2, first, moved)
    assert stamps(fleet, "shp-y") == (1, first, first)
    assert not is_reset(fleet)


def test_a_move_with_an_edit_is_followed(fleet: Any) -> None:
    text = SHIP.format(id="shp-x", name="X") + "A long story of a ship.\n" * 20
    write(fleet, "ships/a.md", text)
    first = commit(fleet, "a ship", 1)
    (fleet.root / "ships/a.md").unlink()
    write(fleet, "ships/b.md", text.replace("name: X", "name: Z"))
    last = commit(fleet, "moved and renamed", 2)
    lose_index(fleet)
    assert stamps(fleet, "shp-x") == (2, first, last)


def test_files_that_change_places_lose_no_versions(fleet: Any) -> None:
    for place, (name, lines) in enumerate((("x", "Long ago.\n"), ("y", "Far away.\n"))):
        text = SHIP.format(id=f"shp-{name}", name=name) + lines * 20
        write(fleet, f"ships/{name}.md", text)
        commit(fleet, f"ship {name}", place + 1)
    write(fleet, "ships/y.md", text + "More.\n")
    commit(fleet, "one more line", 3)
    folder = fleet.root / "ships"
    (folder / "x.md").rename(folder / "z")
    (folder / "y.md").rename(folder / "x.md")
    (folder / "z").rename(folder / "y.md")
    # Git sees two edits here unless renames break pairs; the ids tell the rest.
    commit(fleet, "they change places", 4)
    lose_index(fleet)
    assert not is_reset(fleet)
    assert min(stamps(fleet, f"shp-{name}")[0] for name in "xy") >= 2


def test_both_kinds_of_commits_add_up(fleet: Any) -> None:
    write(fleet, "ships/shp-x.md", SHIP.format(id="shp-x", name="X"))
    first = commit(fleet, "a ship", 1)
    fleet.ok("maad_reindex")
    fleet.ok("maad_update", docId="shp-x", fields={"tonnage": 5})
    last = commit_times(fleet, "--max-count=1")[0]
    lose_index(fleet)
    assert stamps(fleet, "shp-x") == (2, first, last)


def test_bulk_commits_of_the_reference_are_read_by_their_files(fleet: Any) -> None:
    for name in "xy":
        write(fleet, f"ships/shp-{name}.md", SHIP.format(id=f"shp-{name}", name=name))
    commit(fleet, "maad:create shp-x [ship] bulk:2 — 2 records", 1)
    for name in "xy":
        write(fleet, f"ships/shp-{name}.md", SHIP.format(id=f"shp-{name}", name=f"{name}2"))
    commit(fleet, "maad:update shp-x [ship] bulk:2 — 2 records", 2)
    lose_index(fleet)
    assert [stamps(fleet, f"shp-{name}")[0] for name in "xy"] == [2, 2]
    assert not is_reset(fleet)


def test_an_edit_without_a_commit_is_one_more_change_of_now(fleet: Any) -> None:
    write(fleet, "ships/shp-x.md", SHIP.format(id="shp-x", name="X"))
    first = commit(fleet, "a ship", 1)
    write(fleet, "ships/shp-x.md", SHIP.format(id="shp-x", name="Y"))
    lose_index(fleet)
    version, created, updated = stamps(fleet, "shp-x")
    assert (version, created) == (2, first)
    assert updated > first
    assert not is_reset(fleet)


def test_what_git_has_never_seen_starts_over_and_health_says_so(fleet: Any) -> None:
    write(fleet, "ships/shp-x.md", SHIP.format(id="shp-x", name="X"))
    lose_index(fleet)
    assert stamps(fleet, "shp-x")[0] == 1
    assert is_reset(fleet)
    fleet.reopen()
    assert is_reset(fleet)


def test_without_a_repository_versions_start_over(fleet: Any) -> None:
    fleet.ok("maad_create", docType="ship", fields={"name": "Ada"})
    fleet.settle()
    shutil.rmtree(fleet.root / ".git")
    fleet.mode = "feed"
    lose_index(fleet)
    assert stamps(fleet, "shp-ada")[0] == 1
    assert is_reset(fleet)


def test_a_record_that_came_again_has_its_second_life_only(fleet: Any) -> None:
    fleet.ok("maad_create", docType="ship", docId="shp-1", fields={"name": "Ada"})
    fleet.ok("maad_update", docId="shp-1", fields={"tonnage": 1})
    fleet.ok("maad_delete", docId="shp-1", mode="hard")
    fleet.ok("maad_create", docType="ship", docId="shp-1", fields={"name": "Bo"})
    lose_index(fleet)
    assert stamps(fleet, "shp-1")[0] == 1


def test_a_file_that_people_removed_and_wrote_again_is_new(fleet: Any) -> None:
    write(fleet, "ships/shp-x.md", SHIP.format(id="shp-x", name="X"))
    commit(fleet, "a ship", 1)
    (fleet.root / "ships/shp-x.md").unlink()
    commit(fleet, "gone", 2)
    write(fleet, "ships/shp-x.md", SHIP.format(id="shp-x", name="Other"))
    again = commit(fleet, "another ship", 3)
    lose_index(fleet)
    assert stamps(fleet, "shp-x") == (1, again, again)


def test_a_tombstone_keeps_its_version_and_a_revival_continues_it(fleet: Any) -> None:
    fleet.ok("maad_create", docType="ship", docId="shp-1", fields={"name": "Ada"})
    fleet.ok("maad_update", docId="shp-1", fields={"tonnage": 1})
    fleet.ok("maad_delete", docId="shp-1", mode="soft")
    deleted, _, created = commit_times(fleet, "--max-count=3")
    lose_index(fleet)
    row = fleet.engine._index.writer().find("shp-1", include_deleted=True)
    assert (row.deleted, row.version, row.created_at, row.updated_at) == (True, 2, created, deleted)
    assert not is_reset(fleet)
    (fleet.root / "ships/_deleted_shp-1.md").rename(fleet.root / "ships/shp-1.md")
    fleet.ok("maad_reindex")
    assert stamps(fleet, "shp-1")[:2] == (3, created)


def test_a_shallow_clone_knows_no_versions(fleet: Any, tmp_path: Path) -> None:
    for day in (1, 2):
        write(fleet, "ships/shp-x.md", SHIP.format(id="shp-x", name=f"X{day}"))
        last = commit(fleet, "a ship", day)
    fleet.settle()
    fleet.close()
    copy = tmp_path / "copy"
    fleet.git("clone", "-q", "--depth=1", f"file://{fleet.root}", str(copy))
    for entry in (".git", "_backend"):
        shutil.rmtree(fleet.root / entry)
    (copy / ".git").rename(fleet.root / ".git")
    fleet.reopen()
    fleet.ok("maad_reindex")
    assert stamps(fleet, "shp-x") == (1, last, last)
    assert is_reset(fleet)


def test_a_time_in_the_future_is_taken_for_now(fleet: Any) -> None:
    write(fleet, "ships/shp-x.md", SHIP.format(id="shp-x", name="X"))
    fleet.git("add", "-A")
    subprocess.run(
        [*PERSON, "commit", "-qm", "x"],
        cwd=fleet.root,
        check=True,
        env={**os.environ, "GIT_COMMITTER_DATE": "2090-01-01T00:00:00+00:00"},
    )
    lose_index(fleet)
    assert stamps(fleet, "shp-x")[2] < "2090"


def test_a_living_index_is_never_asked_about(fleet: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.ok("maad_create", docType="ship", fields={"name": "Ada"})
    fleet.ok("maad_reindex")

    def fail(_root: str) -> None:
        raise AssertionError("Git was asked")

    monkeypatch.setattr("maadd_worker.write.reindex.past_of", fail)
    write(fleet, "ships/shp-x.md", SHIP.format(id="shp-x", name="X"))
    fleet.ok("maad_reindex", force=True)
    assert stamps(fleet, "shp-x")[0] == 1
    assert not is_reset(fleet)


def test_a_branch_without_commits_knows_nothing(fleet: Any) -> None:
    write(fleet, "ships/shp-x.md", SHIP.format(id="shp-x", name="X"))
    fleet.settle()
    shutil.rmtree(fleet.root / ".git")
    fleet.git("init", "-q")
    report = lose_index(fleet)
    assert "warnings" not in report
    assert is_reset(fleet)


def test_a_history_that_cannot_be_read_is_a_warning(fleet: Any) -> None:
    write(fleet, "ships/shp-x.md", SHIP.format(id="shp-x", name="X"))
    commit(fleet, "a ship", 1)
    tree = fleet.git("rev-parse", "HEAD^{tree}").strip()
    fleet.settle()
    fleet.close()
    file = fleet.root / ".git/objects" / tree[:2] / tree[2:]
    file.chmod(0o600)
    file.unlink()
    shutil.rmtree(fleet.root / "_backend")
    fleet.reopen()
    report = fleet.ok("maad_reindex")
    assert re.match("versions and times of the lost index", report["warnings"][0])
    assert report["indexed"] == 1
    assert is_reset(fleet)


def test_a_silent_git_is_given_up(fleet: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_versions, "_SILENCE_S", 0.0)
    write(fleet, "ships/shp-x.md", SHIP.format(id="shp-x", name="X"))
    commit(fleet, "a ship", 1)
    report = lose_index(fleet)
    assert "did not end" in report["warnings"][0] or "said nothing" in report["warnings"][0]


def test_histories_longer_than_a_portion_are_read_whole(
    fleet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_versions, "_BATCH", 2)
    monkeypatch.setattr(lost_versions, "_CHUNK", 7)
    for day in range(1, 6):
        write(fleet, "ships/shp-ü x.md", SHIP.format(id="shp-x", name=f"Ü{day}"))
        last = commit(fleet, f"Tag {day} — größer\n\nBody\n\nwith paragraphs", day)
    lose_index(fleet)
    assert stamps(fleet, "shp-x") == (5, "2020-01-01T10:00:00.000Z", last)


def test_the_copy_of_an_earlier_index_goes_before_git_where_the_file_is_the_same(
    fleet: Any,
) -> None:
    for name in ("Ada", "Bo"):
        fleet.ok("maad_create", docType="ship", fields={"name": name})
    fleet.settle()
    fleet.close()
    backend = fleet.root / "_backend"
    shutil.copy(backend / "maad.db", backend / "maad.db.prev")
    fleet.reopen()
    for tonnage in (1, 2, 3):
        fleet.ok("maad_update", docId="shp-bo", fields={"tonnage": tonnage})
    fleet.ok("maad_create", docType="ship", fields={"name": "Cy"})
    precise = stamps(fleet, "shp-ada")
    fleet.settle()
    fleet.close()
    (backend / "maad.db").unlink()
    fleet.reopen()
    fleet.ok("maad_reindex")
    assert stamps(fleet, "shp-ada") == precise
    assert [stamps(fleet, f"shp-{name}")[0] for name in ("bo", "cy")] == [4, 1]
    assert not is_reset(fleet)


@pytest.mark.parametrize(("step", "maker"), [(-1, "an older program"), (1, "a newer program")])
def test_an_index_of_another_layout_is_made_anew_by_the_start(
    fleet: Any, step: int, maker: str
) -> None:
    for doc_id in ("shp-a", "shp-b", "shp-c"):
        fleet.ok("maad_create", docType="ship", docId=doc_id, fields={"name": "Ada"})
    fleet.ok("maad_update", docId="shp-a", fields={"name": "Bo"})
    fleet.ok("maad_delete", docId="shp-b", mode="hard")
    fleet.ok("maad_delete", docId="shp-c")
    before = stamps(fleet, "shp-a")
    changes = fleet.ok("maad_changes_since", includeDeletes=True)["changes"]
    fleet.settle()
    fleet.close()
    relabel_index(fleet.root, step)
    fleet.reopen()
    told: list[tuple[str, dict[str, Any]]] = []
    fleet.engine.connect_log(lambda event, **members: told.append((event, members)))
    layouts = {"former_layout": LAYOUT_VERSION + step, "layout": LAYOUT_VERSION}
    assert ("index_layout_changed", {**layouts, "made_by": maker}) in told
    assert stamps(fleet, "shp-a") == before
    assert fleet.ok("maad_changes_since", includeDeletes=True)["changes"] == changes
    assert not is_reset(fleet)


def test_a_start_goes_on_with_the_new_layout_that_another_did_not_finish(fleet: Any) -> None:
    fleet.ok("maad_create", docType="ship", docId="shp-a", fields={"name": "Ada"})
    fleet.close()
    relabel_index(fleet.root, -1)
    Index.open(str(fleet.root / INDEX_PATH), read_only=False).close()
    fleet.reopen()
    assert fleet.ok("maad_get", docId="shp-a")["version"] == 1


def relabel_index(root: Path, step: int) -> None:
    """Have the index pass for one of a program so many layouts ahead."""
    connection = apsw.Connection(str(root / INDEX_PATH))
    connection.pragma("user_version", LAYOUT_VERSION + step)
    connection.close()
