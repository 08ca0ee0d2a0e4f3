"""Files that people move or take away leave no second copy in Git (spec 01 §14.7, design §8)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from watched_project import Watched, ship

Opener = Callable[..., Watched]


def tracked(project: Any) -> set[str]:
    """The record files of HEAD."""
    return set(project.git("ls-tree", "-r", "--name-only", "HEAD", "ships").split())


def committed(opener: Opener, names: str = "abc", **options: Any) -> Watched:
    """A project with records by hand that a person has committed."""
    project = opener(**options)
    for name in names:
        project.write(f"ships/shp-{name}.md", ship(f"shp-{name}", name))
    project.harness.git("add", "ships")
    project.harness.git("commit", "-q", "-m", "mine")
    project.until(lambda: project.names() == set(names))
    edits = project.harness.engine._watching._edits
    if edits is not None:
        edits._due = 0.0
    project.harness.settle()
    assert project.harness.git("log", "-1", "--format=%s") == "mine\n"
    return project


def until_committed(project: Watched) -> None:
    project.until(lambda: project.harness.git("status", "--porcelain") == "")


def move(project: Watched, source: str, target: str) -> None:
    (project.root / target).parent.mkdir(parents=True, exist_ok=True)
    (project.root / source).rename(project.root / target)


def test_a_commit_of_edits_takes_the_old_paths_away(watched: Opener) -> None:
    project = committed(watched, "abcdefgh", external_edits="commit")
    move(project, "ships/shp-a.md", "ships/moved.md")
    move(project, "ships/shp-b.md", "ships/SHP-B.md")
    move(project, "ships/shp-c.md", "ships/x/shp-c.md")
    (project.root / "ships/shp-d.md").unlink()
    project.write("ships/shp-e.md", "---\ntitle: a: b\n---\n")
    move(project, "ships/shp-f.md", "ships/_deleted_shp-f.md")
    for source, target in (("shp-g.md", "third"), ("shp-h.md", "shp-g.md"), ("third", "shp-h.md")):
        move(project, f"ships/{source}", f"ships/{target}")
    project.until(lambda: project.row("shp-c").file_path == "ships/x/shp-c.md")
    (project.root / "ships/x").rename(project.root / "ships/y")
    (project.root / "ships/shp-e.md").unlink()
    until_committed(project)
    files = (project.root / "ships").rglob("*.md")
    assert tracked(project.harness) == {str(path.relative_to(project.root)) for path in files}
    log = project.harness.git("log", "-1", "--format=%B")
    assert "external" in log
    assert log.count("shp-c [ship]") == 1


def test_a_folder_that_moves_is_one_commit_without_the_old_one(watched: Opener) -> None:
    project = committed(watched, external_edits="commit", mode="batch", max_writes=1)
    for name in ("a", "b"):
        move(project, f"ships/shp-{name}.md", f"ships/old/shp-{name}.md")
    until_committed(project)
    (project.root / "ships/old").rename(project.root / "ships/new")
    until_committed(project)
    assert tracked(project.harness) == {
        "ships/new/shp-a.md", "ships/new/shp-b.md", "ships/shp-c.md",
    }  # fmt: skip


def test_a_move_and_an_update_through_a_tool_leave_one_file(watched: Opener) -> None:
    project = committed(watched, external_edits="commit")
    move(project, "ships/shp-a.md", "ships/moved1.md")
    project.until(lambda: project.row("shp-a").file_path == "ships/moved1.md")
    project.harness.ok("maad_update", docId="shp-a", fields={"name": "Ada"})
    until_committed(project)
    assert tracked(project.harness) == {"ships/moved1.md", "ships/shp-b.md", "ships/shp-c.md"}


def test_an_edit_met_by_a_write_that_fails_is_committed_all_the_same(watched: Opener) -> None:
    project = committed(watched, external_edits="commit")
    project.write("ships/shp-a.md", ship("shp-a", "by hand"))
    refused = project.harness.error(
        "maad_update", docId="shp-a", fields={"name": "x"}, expectedVersion=1
    )
    assert refused["code"] == "VERSION_CONFLICT"
    until_committed(project)
    assert "by hand" in project.harness.git("show", "HEAD:ships/shp-a.md")


@pytest.mark.parametrize("external_edits", ["index", "commit"])
@pytest.mark.parametrize(
    ("tool", "arguments", "left"),
    [
        ("maad_update", {"docId": "shp-a", "fields": {"name": "Ada"}}, {"ships/moved1.md"}),
        (
            "maad_bulk_update",
            {"updates": [{"docId": "shp-a", "fields": {"name": "Ada"}}]},
            {"ships/moved1.md"},
        ),
        ("maad_delete", {"docId": "shp-a", "mode": "hard"}, set()),
        ("maad_delete", {"docId": "shp-a", "mode": "soft"}, {"ships/_deleted_moved1.md"}),
    ],
)
def test_a_write_to_a_moved_record_commits_the_move(
    open_project: Any, external_edits: str, tool: str, arguments: Any, left: set[str]
) -> None:
    project = three_ships(open_project, external_edits=external_edits)
    (project.root / "ships/shp-a.md").rename(project.root / "ships/moved1.md")
    project.ok("maad_reindex")
    project.reopen()
    project.ok(tool, **arguments)
    project.catch_up()
    assert tracked(project) == {"ships/shp-b.md", "ships/shp-c.md"} | left
    assert project.git("status", "--porcelain") == ""


def three_ships(open_project: Any, mode: str = "audit", **options: Any) -> Any:
    project = open_project(mode, **options)
    for name in ("a", "b", "c"):
        project.ok("maad_create", docType="ship", docId=f"shp-{name}", fields={"name": name})
    project.catch_up()
    return project


def test_a_record_made_again_elsewhere_is_not_where_it_was_taken_away(open_project: Any) -> None:
    project = three_ships(open_project)
    (project.root / "ships/shp-a.md").rename(project.root / "ships/old.md")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "moved")
    project.ok("maad_reindex")
    (project.root / "ships/old.md").unlink()
    project.ok("maad_reindex")
    project.ok("maad_create", docType="ship", docId="shp-a", fields={"name": "again"})
    project.catch_up()
    assert tracked(project) == {"ships/shp-a.md", "ships/shp-b.md", "ships/shp-c.md"}


def test_a_move_that_waits_in_a_batch_is_committed_after_a_crash(open_project: Any) -> None:
    project = three_ships(open_project, "batch", max_writes=3)
    (project.root / "ships/shp-a.md").rename(project.root / "ships/moved1.md")
    project.ok("maad_reindex")
    project.ok("maad_update", docId="shp-a", fields={"name": "Ada"})
    project.engine._history._policy._deferred.clear()
    project.reopen()
    assert "history_recovery_completed:batch" in project.engine.recovery_actions
    assert tracked(project) == {"ships/moved1.md", "ships/shp-b.md", "ships/shp-c.md"}


def in_head(project: Any) -> list[str]:
    """The records of HEAD: each is to be there once."""
    return sorted(project.git("grep", "-h", "^doc_id", "HEAD", "--", "ships").split()[1::2])


@pytest.mark.parametrize("external_edits", ["index", "commit"])
@pytest.mark.parametrize("mode", ["audit", "batch"])
@pytest.mark.parametrize("tool", ["maad_update", "maad_delete", "maad_bulk_update"])
def test_a_write_amid_a_ring_of_names_keeps_every_record(
    open_project: Any, external_edits: str, mode: str, tool: str
) -> None:
    project = three_ships(open_project, mode, external_edits=external_edits, max_writes=10)
    if tool == "maad_bulk_update":
        project.git("config", "maad.hooks", "true")  # the git program makes the commits
    project.ok("maad_flush")
    ring = (("shp-a", "t"), ("shp-b", "shp-a"), ("shp-c", "shp-b"), ("t", "shp-c"))
    for source, target in ring:
        (project.root / f"ships/{source}.md").rename(project.root / f"ships/{target}.md")
    project.ok("maad_reindex")
    arguments: dict[str, Any] = {"docId": "shp-a"}
    if tool == "maad_update":
        arguments["fields"] = {"name": "Ada"}
    elif tool == "maad_bulk_update":
        arguments = {"updates": [{"docId": "shp-a", "fields": {"name": "Ada"}}]}
    project.ok(tool, **arguments)
    project.ok("maad_flush")
    assert in_head(project) == ["shp-a", "shp-b", "shp-c"]
    assert project.git("status", "--porcelain") == ""


def test_a_later_move_of_another_record_is_left_to_its_author(open_project: Any) -> None:
    project = three_ships(open_project)
    (project.root / "ships/shp-a.md").rename(project.root / "ships/x.md")
    project.ok("maad_reindex")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "moved")
    (project.root / "ships/shp-b.md").rename(project.root / "ships/shp-a.md")
    project.ok("maad_reindex")
    project.ok("maad_update", docId="shp-a", fields={"name": "Ada"})
    project.catch_up()
    status = project.git("status", "--porcelain").splitlines()
    assert status == [" D ships/shp-b.md", "?? ships/shp-a.md"]
    assert in_head(project) == ["shp-a", "shp-b", "shp-c"]


@pytest.mark.parametrize("mode", ["audit", "program", "snapshot"])
@pytest.mark.parametrize("content", ["---\ntitle: a: b\n---\n", "shp-b"])
def test_what_is_no_record_at_an_old_path_is_not_committed(
    project: Path, watched: Opener, mode: str, content: str
) -> None:
    if mode == "program":
        mode = "audit"
        subprocess.run(["git", "config", "maad.hooks", "true"], cwd=project, check=True)
    served = committed(watched, mode=mode, external_edits="commit", max_writes=1)
    move(served, "ships/shp-a.md", "ships/x/a.md")
    served.until(lambda: served.row("shp-a").file_path == "ships/x/a.md")
    served.write("ships/shp-a.md", ship("shp-b", "b") if content == "shp-b" else content)
    served.until(lambda: served.harness.engine._watching.findings.failures())
    served.until(lambda: "ships/x/a.md" in tracked(served.harness))
    assert in_head(served.harness) == ["shp-a", "shp-b", "shp-c"]
    served.until(lambda: served.harness.git("status", "--porcelain") == "?? ships/shp-a.md\n")
    (served.root / "ships/shp-a.md").unlink()
    until_committed(served)


def test_only_what_a_commit_changes_is_listed_in_it(watched: Opener) -> None:
    project = committed(watched, "abcde", external_edits="commit")
    for name in "abc":
        project.write(f"ships/shp-{name}.md", ship(f"shp-{name}", "edited"))
    project.write("ships/shp-new.md", ship("shp-new", "new"))
    project.harness.git("add", "ships/shp-b.md", "ships/shp-new.md")
    project.harness.git("commit", "-q", "-m", "mine", "ships/shp-b.md", "ships/shp-new.md")
    project.until(lambda: project.row("shp-new"))
    until_committed(project)
    subject, *body = project.harness.git("log", "-1", "--format=%B").strip().splitlines()
    assert subject == "maad:update shp-a [ship] external:2 — external edit of shp-a, shp-c"
    assert body[1:] == [f"Maad-Write: update shp-{name} [ship] external" for name in "ac"]


def test_what_stands_at_the_old_path_by_now_is_not_committed(open_project: Any) -> None:
    project = three_ships(open_project)
    os.rename(project.root / "ships/shp-a.md", project.root / "ships/moved1.md")
    project.ok("maad_reindex")
    (project.root / "ships/shp-a.md").write_text(ship("shp-new", "a person's own"))
    project.ok("maad_update", docId="shp-a", fields={"name": "Ada"})
    project.catch_up()
    assert in_head(project) == ["shp-a", "shp-b", "shp-c"]
    assert project.git("status", "--porcelain") == "?? ships/shp-a.md\n"


def test_a_move_back_and_forth_takes_nothing_away(open_project: Any, project: Path) -> None:
    served = three_ships(open_project)
    for source, target in (("shp-a", "x"), ("x", "shp-a")):
        (project / f"ships/{source}.md").rename(project / f"ships/{target}.md")
        served.ok("maad_reindex")
    served.ok("maad_update", docId="shp-a", fields={"name": "Ada"})
    served.catch_up()
    assert tracked(served) == {"ships/shp-a.md", "ships/shp-b.md", "ships/shp-c.md"}
    assert served.git("status", "--porcelain") == ""


def lose_the_commit(project: Watched) -> None:
    """The process dies before the quiet moment has come."""
    project.harness.engine._watching._edits._waiting.clear()
    project.harness.close()


def close_before_the_commit(project: Watched) -> None:
    project.harness.close()
    assert project.harness.git("status", "--porcelain") == " M ships/shp-e.md\n"


@pytest.mark.parametrize("end", [lose_the_commit, close_before_the_commit])
def test_edits_are_committed_although_the_server_stopped(watched: Opener, end: Any) -> None:
    project = committed(watched, "abcdef", external_edits="commit")
    spoiled = "---\ntitle: a: b\n---\n"
    project.write("ships/shp-a.md", ship("shp-a", "edited"))
    move(project, "ships/shp-b.md", "ships/moved.md")
    (project.root / "ships/shp-c.md").unlink()
    move(project, "ships/shp-d.md", "ships/_deleted_shp-d.md")
    project.write("ships/shp-e.md", spoiled)
    project.write("ships/shp-new.md", ship("shp-new", "new"))
    project.until(lambda: project.names() == {"edited", "b", "e", "f", "new"})
    project.until(lambda: project.row("shp-d") is None and project.row("shp-c") is None)
    project.until(lambda: project.harness.engine._watching.findings.failures())
    end(project)
    again = watched(external_edits="commit")
    again.until(lambda: again.harness.git("status", "--porcelain") == " M ships/shp-e.md\n")
    assert tracked(again.harness) == {
        "ships/shp-a.md", "ships/moved.md", "ships/_deleted_shp-d.md", "ships/shp-e.md",
        "ships/shp-f.md", "ships/shp-new.md",
    }  # fmt: skip
    [entry] = again.harness.ok("maad_history", docId="shp-c")
    assert entry["action"] == "delete"


def test_edits_wait_while_head_is_on_no_branch(watched: Opener) -> None:
    project = committed(watched, "ab", external_edits="commit")
    project.harness.git("checkout", "-q", "--detach")
    before = project.harness.git("rev-parse", "HEAD")
    project.write("ships/shp-a.md", ship("shp-a", "edited"))

    def told() -> Any:
        found = project.health()["advisories"]
        return [one for one in found if one["code"] == "HISTORY_EDITS_WAIT"]

    [advisory] = project.until(told)
    assert "HEAD is on no branch" in advisory["message"]
    assert project.harness.git("rev-parse", "HEAD") == before
    project.harness.git("checkout", "-q", "main")
    project.harness.engine._watching._edits._due = 0.0
    until_committed(project)
    assert "edited" in project.harness.git("show", "main:ships/shp-a.md")
    assert not told()


def test_edits_that_a_reindex_met_are_committed(open_project: Any) -> None:
    project = three_ships(open_project, external_edits="commit")
    (project.root / "ships/shp-a.md").write_text(ship("shp-a", "edited"))
    (project.root / "ships/shp-b.md").unlink()
    project.ok("maad_reindex")
    project.engine.settle(True)
    project.engine._watching._edits._due = 0.0
    project.settle()
    assert tracked(project) == {"ships/shp-a.md", "ships/shp-c.md"}
    assert project.git("status", "--porcelain") == ""
    assert "HISTORY_WORKTREE_DIRTY" not in str(project.ok("maad_health")["advisories"])
