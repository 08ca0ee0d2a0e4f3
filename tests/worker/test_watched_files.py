"""What others change on the disk reaches the index by itself (spec 01 §14.7)."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import Any

import pytest
from watched_project import ship

from maadd_worker.watch.survey import survey


def test_a_saved_file_is_found_with_a_new_version_and_an_external_event(watched: Any) -> None:
    project = watched()
    doc_id = project.harness.ok("maad_create", docType="ship", fields={"name": "Ada"})["docId"]
    path = project.root / f"ships/{doc_id}.md"
    project.write(f"ships/{doc_id}.md", path.read_text().replace("Ada", "Bo"))
    project.until(lambda: project.names() == {"Bo"})
    assert project.harness.ok("maad_get", docId=doc_id)["version"] == 2
    [event] = project.external()
    assert (event.action, event.doc_id) == ("update", doc_id)


@pytest.mark.parametrize("watch", ["auto", "poll"])
def test_files_that_come_and_go_are_rows_that_come_and_go(watched: Any, watch: str) -> None:
    project = watched(watch=watch)
    project.write("ships/shp-a.md", ship("shp-a", "Ada"))
    project.write("ships/shp-b.md", ship("shp-b", "Bo"))
    project.until(lambda: project.names() == {"Ada", "Bo"})
    (project.root / "ships/shp-a.md").unlink()
    project.until(lambda: project.names() == {"Bo"})
    assert [e.action for e in project.events if e.doc_id == "shp-a"] == ["create", "delete"]


def test_the_last_file_of_a_folder_deleted_by_hand_is_gone(watched: Any) -> None:
    project = watched()
    project.write("ships/shp-a.md", ship("shp-a", "Ada"))
    project.until(lambda: project.names() == {"Ada"})
    (project.root / "ships/shp-a.md").unlink()
    project.until(lambda: project.names() == set())


def test_what_changed_while_nobody_watched_is_found_at_the_start(watched: Any) -> None:
    project = watched(watch="off")
    project.harness.ok("maad_create", docType="ship", fields={"name": "Ada"})
    project.write("ships/shp-b.md", ship("shp-b", "Bo"))
    assert project.health()["watcher"]["mode"] == "off"
    project.harness.close()
    project = watched()
    project.until(lambda: project.names() == {"Ada", "Bo"})


def test_a_folder_and_a_file_in_it_made_at_once_are_both_seen(watched: Any) -> None:
    project = watched()
    project.write("ships/a/b/c/shp-a.md", ship("shp-a", "Ada"))
    elsewhere = project.root / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "shp-b.md").write_text(ship("shp-b", "Bo"))
    project.until(lambda: project.names() == {"Ada"})
    elsewhere.rename(project.root / "ships/moved")
    project.until(lambda: project.names() == {"Ada", "Bo"})
    shutil.move(project.root / "ships/moved", project.root / "elsewhere")
    project.until(lambda: project.names() == {"Ada"})


def test_a_moved_file_keeps_its_record(watched: Any) -> None:
    project = watched()
    project.write("ships/shp-a.md", ship("shp-a", "Ada"))
    project.until(lambda: project.names() == {"Ada"})
    (project.root / "ships/fleet").mkdir()
    (project.root / "ships/shp-a.md").rename(project.root / "ships/fleet/Shp-A.md")
    row = project.until(
        lambda: (row := project.row("shp-a")).file_path == "ships/fleet/Shp-A.md" and row
    )
    assert row.version == 1
    assert "delete" not in [event.action for event in project.events]


def test_two_files_that_change_places_are_both_served(watched: Any) -> None:
    project = watched()
    project.write("ships/a.md", ship("shp-a", "Ada"))
    project.write("ships/b.md", ship("shp-b", "Bo"))
    project.until(lambda: project.names() == {"Ada", "Bo"})
    (project.root / "ships/a.md").rename(project.root / "ships/t")
    (project.root / "ships/b.md").rename(project.root / "ships/a.md")
    (project.root / "ships/t").rename(project.root / "ships/b.md")

    project.until(
        lambda: (
            project.row("shp-a").file_path == "ships/b.md"
            and project.row("shp-b").file_path == "ships/a.md"
        )
    )
    project.until(lambda: not project.health()["watcher"]["pendingEvents"])
    assert project.names() == {"Ada", "Bo"}
    assert not [a for a in project.health()["advisories"] if a["code"] == "DUPLICATE_DOC_ID"]


def test_own_writes_never_come_back_as_edits(watched: Any) -> None:
    project = watched()
    for name in ("Ada", "Bo", "Cy"):
        doc_id = project.harness.ok("maad_create", docType="ship", fields={"name": name})["docId"]
    project.harness.ok("maad_update", docId=doc_id, fields={"name": "Dee"})
    project.harness.ok("maad_delete", docId=doc_id)
    # A foreign file behind them: once it is in, all earlier events are dealt with.
    project.write("ships/shp-z.md", ship("shp-z", "Zoe"))
    project.until(lambda: "Zoe" in project.names())
    assert [event.doc_id for event in project.external()] == ["shp-z"]


def test_a_broken_file_is_shown_with_its_place_until_it_is_mended(watched: Any) -> None:
    project = watched()
    project.write("ships/shp-a.md", ship("shp-a", "Ada"))
    project.until(lambda: project.names() == {"Ada"})
    project.write("ships/shp-a.md", "---\ndoc_id: shp-a\nname: [\n---\n")

    def complaints() -> list[Any]:
        return [one for one in project.health()["advisories"] if one.get("file")]

    [complaint] = project.until(complaints)
    assert complaint["file"] == "ships/shp-a.md"
    assert complaint["code"] == "PARSE_ERROR"
    assert project.names() == {"Ada"}, "the last good content stays"
    project.write("ships/shp-a.md", ship("shp-a", "Eve"))
    project.until(lambda: project.names() == {"Eve"})
    assert complaints() == []


def test_a_record_that_breaks_its_schema_is_served_as_invalid(watched: Any) -> None:
    project = watched()
    project.write("ships/shp-a.md", ship("shp-a", "Ada").replace("name", "tonnage: many\nname"))
    project.until(lambda: project.names() == {"Ada"})
    assert project.harness.ok("maad_summary")["warnings"]["validationErrors"] == 1


def test_a_second_file_with_the_same_id_is_reported_and_overwrites_nothing(watched: Any) -> None:
    project = watched()
    project.write("ships/shp-a.md", ship("shp-a", "Ada"))
    project.until(lambda: project.names() == {"Ada"})
    project.write("ships/copy.md", ship("shp-a", "Copy"))
    project.until(
        lambda: [a for a in project.health()["advisories"] if a["code"] == "DUPLICATE_DOC_ID"]
    )
    assert project.names() == {"Ada"}
    (project.root / "ships/shp-a.md").unlink()
    project.until(lambda: project.names() == {"Copy"})


def test_the_second_file_counts_once_a_tool_deletes_the_first(watched: Any) -> None:
    project = watched()
    project.write("ships/shp-a.md", ship("shp-a", "Ada"))
    project.until(lambda: project.names() == {"Ada"})
    project.write("ships/copy.md", ship("shp-a", "Copy"))
    project.until(
        lambda: [a for a in project.health()["advisories"] if a["code"] == "DUPLICATE_DOC_ID"]
    )
    project.harness.ok("maad_delete", docId="shp-a", mode="hard")
    project.until(lambda: project.names() == {"Copy"})


def test_a_schema_edit_reaches_the_rows_and_a_broken_one_is_shown(watched: Any) -> None:
    project = watched()
    project.write("ships/shp-a.md", ship("shp-a", "Ada").replace("name", "home: Kiel\nname"))
    project.until(lambda: project.names() == {"Ada"})
    schema = project.root / "_schema/ship.v1.yaml"
    good = schema.read_text()
    project.write(
        "_schema/ship.v1.yaml",
        good.replace("fields:", "fields:\n  home: {type: string, index: true}"),
    )

    def by_home() -> Any:
        reply = project.harness.reply("maad_query", docType="ship", filters={"home": "Kiel"})
        return reply.ok and b'"total":1' in reply.body

    project.until(by_home)
    project.write("_schema/ship.v1.yaml", "type: [")

    def complaints() -> list[Any]:
        return [one for one in project.health()["advisories"] if one.get("type") == "ship"]

    [complaint] = project.until(complaints)
    assert "_schema/ship.v1.yaml" in complaint["message"]
    assert by_home(), "the last good schema serves reads"
    project.write("_schema/ship.v1.yaml", good)
    project.until(lambda: not complaints())


@pytest.mark.parametrize("folder", ["_schema", "_registry"])
def test_a_model_folder_that_comes_back_is_noticed(watched: Any, folder: str) -> None:
    project = watched()

    def complaints() -> list[Any]:
        codes = ("SCHEMA_NOT_FOUND", "REGISTRY_NOT_FOUND")
        return [a for a in project.health()["advisories"] if a["code"] in codes]

    (project.root / folder).rename(project.root / "away")
    project.until(complaints)
    (project.root / "away").rename(project.root / folder)
    project.until(lambda: not complaints())
    project.harness.git("rm", "-q", "-r", folder)
    project.harness.git("commit", "-q", "-m", "gone")
    project.until(complaints)
    project.harness.git("checkout", "-q", "HEAD~1")
    project.until(lambda: not complaints())


def test_a_folder_that_vanished_as_a_whole_keeps_its_rows(watched: Any) -> None:
    project = watched()
    project.write("ships/shp-a.md", ship("shp-a", "Ada"))
    project.until(lambda: project.names() == {"Ada"})
    (project.root / "ships").rename(project.root / "away")
    project.until(lambda: [a for a in project.health()["advisories"] if a["code"] == "ROWS_KEPT"])
    assert project.harness.engine.documents == 1
    (project.root / "away").rename(project.root / "ships")
    project.write("ships/shp-b.md", ship("shp-b", "Bo"))
    project.until(lambda: project.names() == {"Ada", "Bo"})


def test_a_git_checkout_of_many_files_is_taken_over(watched: Any) -> None:
    project = watched("feed")
    project.harness.git("checkout", "-q", "-b", "many")
    for number in range(300):
        target = project.root / f"ships/shp-{number}.md"
        target.parent.mkdir(exist_ok=True)
        target.write_text(ship(f"shp-{number}", f"n{number}"))
    project.harness.git("add", "ships")
    project.harness.git("commit", "-q", "-m", "many")
    project.until(lambda: project.harness.engine.documents == 300)
    project.harness.git("checkout", "-q", "main")
    project.until(lambda: project.harness.engine.documents == 0)
    project.harness.git("checkout", "-q", "many")
    project.until(lambda: project.harness.engine.documents == 300)


def test_links_to_folders_are_not_followed(watched: Any, tmp_path_factory: Any) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "shp-x.md").write_text(ship("shp-x", "Xi"))
    project = watched()
    (project.root / "ships").mkdir()
    os.symlink(outside, project.root / "ships/link")
    project.write("ships/shp-a.md", ship("shp-a", "Ada"))
    project.until(lambda: project.names() == {"Ada"})
    (outside / "shp-x.md").write_text(ship("shp-x", "Xi again"))
    project.write("ships/deep/shp-b.md", ship("shp-b", "Bo"))
    project.until(lambda: project.names() == {"Ada", "Bo"})


def test_edits_are_left_to_their_author_unless_the_project_commits_them(watched: Any) -> None:
    project = watched()
    project.write("ships/shp-a.md", ship("shp-a", "Ada"))
    project.until(lambda: project.names() == {"Ada"})
    assert project.harness.git("status", "--porcelain") == "?? ships/\n"


@pytest.mark.parametrize("mode", ["audit", "batch"])
def test_a_group_of_edits_becomes_one_commit_that_lists_them(watched: Any, mode: str) -> None:
    project = watched(mode, external_edits="commit", max_writes=1)
    project.write("ships/shp-a.md", ship("shp-a", "Ada"))
    project.write("ships/shp-b.md", ship("shp-b", "Bo"))
    project.until(lambda: "external" in project.harness.git("log", "--format=%B", "-1"))
    assert project.harness.git("rev-list", "--count", "HEAD") == "2\n"
    project.until(lambda: project.harness.git("status", "--porcelain") == "")
    for doc_id in ("shp-a", "shp-b"):
        [entry] = project.harness.ok("maad_history", docId=doc_id)
        assert entry["action"] == "create"


def test_nothing_is_committed_in_the_middle_of_a_persons_merge(watched: Any) -> None:
    project = watched(external_edits="commit")
    head = project.harness.git("rev-parse", "HEAD")
    (project.root / ".git/MERGE_HEAD").write_text(head)
    project.write("ships/shp-a.md", ship("shp-a", "Ada"))
    project.until(lambda: project.names() == {"Ada"})
    edits = project.harness.engine._watching._edits
    edits._due = 0.0
    edits.settle()
    assert edits.next_wait() > 1
    assert project.harness.git("rev-parse", "HEAD") == head
    (project.root / ".git/MERGE_HEAD").unlink()
    edits._due = 0.0
    project.until(lambda: project.harness.git("rev-parse", "HEAD") != head)


def test_what_a_pull_brings_is_committed_already(watched: Any) -> None:
    project = watched(external_edits="commit")
    project.harness.git("checkout", "-q", "-b", "theirs")
    project.write("ships/shp-a.md", ship("shp-a", "Ada"))
    project.harness.git("add", "ships")
    project.harness.git("commit", "-q", "-m", "theirs")
    project.until(lambda: project.names() == {"Ada"})
    edits = project.harness.engine._watching._edits
    edits._due = 0.0
    project.harness.engine.settle(True)
    assert project.harness.git("log", "-1", "--format=%s") == "theirs\n"


def test_without_native_events_the_files_are_polled_and_one_advisory_says_so(
    watched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise OSError(28, "OS file watch limit reached")

    monkeypatch.setattr("maadd_worker.watch.watcher.RustNotify", refused)
    project = watched()
    project.write("ships/shp-a.md", ship("shp-a", "Ada"))
    project.until(lambda: project.names() == {"Ada"})
    assert project.health()["watcher"]["mode"] == "poll"
    codes = [one["code"] for one in project.health()["advisories"]]
    assert codes.count("WATCH_DEGRADED") == 1
    assert project.logged.count("watch_degraded") == 1


def test_a_watch_that_breaks_is_made_again(watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from maadd_worker.watch import watcher

    real = watcher.RustNotify
    broken = iter([True])

    class Breaking:
        def __init__(self, *arguments: Any) -> None:
            self._real = real(*arguments)

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: Any) -> None:
            self._real.close()

        def watch(self, *arguments: Any) -> Any:
            if next(broken, False):
                raise RuntimeError("lost")
            return self._real.watch(*arguments)

    monkeypatch.setattr(watcher, "RustNotify", Breaking)
    project = watched()
    project.write("ships/shp-a.md", ship("shp-a", "Ada"))
    project.until(lambda: project.names() == {"Ada"})
    assert project.logged == ["watch_lost"]


def test_answers_say_when_changed_files_are_not_indexed_yet(watched: Any) -> None:
    project = watched(watch="off")
    project.harness.engine._watching.findings.add(["ships/shp-a.md"], "seen")
    reply = project.harness.reply("maad_query", docType="ship")
    assert [one["code"] for one in reply.meta["warnings"]] == ["INDEX_BEHIND"]
    project.harness.settle()
    assert "warnings" not in (project.harness.reply("maad_query", docType="ship").meta or {})


def test_a_file_too_large_to_read_keeps_its_row_and_is_not_read_again_and_again(
    watched: Any,
) -> None:
    project = watched(max_doc_bytes=200)
    project.write("ships/shp-a.md", ship("shp-a", "Ada"))
    project.until(lambda: project.names() == {"Ada"})
    project.write("ships/shp-a.md", ship("shp-a", "Bo") + "x" * 300)
    project.until(
        lambda: [a for a in project.health()["advisories"] if a["code"] == "DOC_TOO_LARGE"]
    )
    assert project.names() == {"Ada"}
    old = project.root / "ships/shp-a.md"
    os.utime(old, (1_700_000_000, 1_700_000_000))
    project.until(lambda: project.harness.engine._watching.findings.failed("ships/shp-a.md").file)
    engine = project.harness.engine
    with contextlib.closing(engine.open_reader()) as reader:
        found = survey(
            reader, engine._root, engine._in_use.plans(), engine._watching.findings.failed
        )
    assert "ships/shp-a.md" not in found.changed


def test_a_record_that_git_takes_away_and_brings_back_keeps_its_version(watched: Any) -> None:
    project = watched("audit")
    git = project.harness.git
    git("branch", "old")
    project.harness.ok("maad_create", docType="ship", fields={"name": "Zoe"})
    project.until(lambda: project.harness.engine._watching._watcher.covers("ships/x.md"))
    doc_id = project.harness.ok("maad_create", docType="ship", fields={"name": "Ada"})["docId"]
    project.harness.ok("maad_update", docId=doc_id, fields={"name": "Bo"})
    project.harness.settle()
    created = project.row(doc_id).created_at
    git("checkout", "-q", "old")
    project.until(lambda: project.row(doc_id) is None)
    git("checkout", "-q", "-")
    project.until(lambda: project.row(doc_id) is not None)
    row = project.row(doc_id)
    assert (row.version, row.created_at) == (2, created)


def test_a_second_file_that_takes_an_id_over_is_a_newer_version_of_it(watched: Any) -> None:
    project = watched()
    doc_id = project.harness.ok("maad_create", docType="ship", fields={"name": "Ada"})["docId"]
    project.write("ships/other.md", ship(doc_id, "Copy"))
    project.until(
        lambda: [a for a in project.health()["advisories"] if a["code"] == "DUPLICATE_DOC_ID"]
    )
    (project.root / f"ships/{doc_id}.md").unlink()
    project.until(lambda: project.names() == {"Copy"})
    stale = project.harness.error(
        "maad_update", docId=doc_id, fields={"name": "x"}, expectedVersion=1
    )
    assert stale["code"] == "VERSION_CONFLICT"


def test_nothing_is_created_in_place_of_a_folder_that_vanished(watched: Any) -> None:
    project = watched()
    doc_id = project.harness.ok("maad_create", docType="ship", fields={"name": "Ada"})["docId"]
    (project.root / "ships").rename(project.root / "away")
    # The folder was made and taken away before anybody watched it.
    project.until(lambda: [a for a in project.health()["advisories"] if a["code"] == "ROWS_KEPT"])
    error = project.harness.error("maad_create", docType="ship", fields={"name": "Bo"})
    assert error["code"] == "WRITE_ERROR"
    assert "prune" in error["message"]
    twin = project.harness.error("maad_create", docType="ship", docId=doc_id, fields={"name": "B"})
    assert twin["code"] == "DUPLICATE_DOC_ID"
    assert "prune" in project.harness.error("maad_delete", docId=doc_id)["message"]
    (project.root / "away").rename(project.root / "ships")
    project.harness.ok("maad_create", docType="ship", fields={"name": "Bo"})
    project.until(lambda: project.names() == {"Ada", "Bo"})
    assert project.row(doc_id).version == 1


def test_a_record_whose_file_was_overwritten_with_another_is_gone_until_it_is_back(
    watched: Any,
) -> None:
    project = watched()
    for doc_id, name in (("shp-a", "Ada"), ("shp-b", "Bo")):
        project.write(f"ships/{doc_id}.md", ship(doc_id, name))
    project.until(lambda: project.names() == {"Ada", "Bo"})
    project.harness.ok("maad_update", docId="shp-b", fields={"name": "Bea"})
    before = (project.root / "ships/shp-b.md").read_bytes()
    shutil.copy(project.root / "ships/shp-a.md", project.root / "ships/shp-b.md")
    [twin] = project.until(
        lambda: [a for a in project.health()["advisories"] if a["code"] == "DUPLICATE_DOC_ID"]
    )
    assert twin["file"] == "ships/shp-b.md"
    assert "of ships/shp-a.md, which counts" in twin["message"]
    assert project.names() == {"Ada"}
    assert project.harness.error("maad_get", docId="shp-b", depth="hot")["code"] == "FILE_NOT_FOUND"
    (project.root / "ships/shp-b.md").rename(project.root / "ships/copy.md")
    project.until(
        lambda: [a.get("file") for a in project.health()["advisories"]] == ["ships/copy.md"]
    )
    (project.root / "ships/copy.md").unlink()
    project.until(lambda: project.health()["advisories"] == [])
    (project.root / "ships/shp-b.md").write_bytes(before)
    project.until(lambda: project.names() == {"Ada", "Bea"})
    assert project.harness.ok("maad_get", docId="shp-b")["version"] == 2
    assert [e.action for e in project.external() if e.doc_id == "shp-b"] == [
        "create", "delete", "create",
    ]  # fmt: skip
