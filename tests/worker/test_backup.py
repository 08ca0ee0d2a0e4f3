"""`maad_backup`: named recovery points through a real engine (spec 03 §10)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.history.backup import clean_label, tag_name

MOMENT = 1_927_857_906  # 2031-02-03T04:05:06Z


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout


def head(root: Path) -> str:
    return git(root, "rev-parse", "HEAD").strip()


def create(project: Any, name: str) -> Any:
    return project.ok("maad_create", docType="ship", fields={"name": name}, body="")


@pytest.mark.parametrize(
    ("label", "cleaned"),
    [
        ("Pre-Cleanup Wave", "pre-cleanup-wave"),
        ("", ""),
        (None, ""),
        ("  v1.0 / final!  ", "v1-0-final"),
        ("--a--b--", "a--b"),
        ("x" * 40, "x" * 32),
        ("x" * 31 + " yz", "x" * 31),
    ],
)
def test_labels(label: str | None, cleaned: str) -> None:
    assert clean_label(label) == cleaned


@pytest.mark.parametrize("label", ["!!! @@@", "  ", "東京"])
def test_a_label_without_a_usable_character(label: str) -> None:
    with pytest.raises(MaadError) as failure:
        clean_label(label)
    assert failure.value.code == "INVALID_FIELDS"


def test_the_names_of_tags() -> None:
    assert tag_name(MOMENT, "") == "maad-snapshot-2031-02-03-0405"
    assert tag_name(MOMENT, "pre-cleanup-wave") == "maad-snapshot-2031-02-03-0405-pre-cleanup-wave"
    assert tag_name(MOMENT, "", with_seconds=True) == "maad-snapshot-2031-02-03-040506"


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is always the same second for the tool."""
    monkeypatch.setattr("maadd_worker.history.backup.time.time", lambda: float(MOMENT))


def test_create_tags_head_and_is_remembered(open_project: Any) -> None:
    project = open_project("audit")
    create(project, "One")
    reply = project.reply("maad_backup")
    made = msgspec.json.decode(reply.body)
    sha = head(project.root)
    assert re.fullmatch(r"maad-snapshot-\d{4}-\d\d-\d\d-\d{4}", made["tag"])
    assert made["sha"] == sha
    assert made["message"] == f"MAADB snapshot at {sha} ('main')"
    assert (made["pendingWrites"], made["worktreeClean"]) == (0, True)
    assert (reply.audit["git_commit"], reply.audit["tag"]) == (sha, made["tag"])
    assert git(project.root, "cat-file", "-t", made["tag"]) == "tag\n"
    [listed] = project.ok("maad_backup", mode="list")
    assert listed == {name: made[name] for name in ("tag", "sha", "message", "createdAt")}
    assert project.ok("maad_health")["lastBackupTag"] == {
        name: made[name] for name in ("tag", "sha", "createdAt")
    }


def test_the_message_of_the_caller_may_have_many_lines(open_project: Any) -> None:
    project = open_project("audit")
    made = project.ok("maad_backup", message="before the cleanup\n\nall of it")
    assert made["message"] == "before the cleanup\n\nall of it"
    [listed] = project.ok("maad_backup", mode="list")
    assert listed["message"] == "before the cleanup"
    assert project.error("maad_backup", message="a\0b")["code"] == "INVALID_FIELDS"


def test_a_second_one_in_the_same_minute(open_project: Any, stopped_clock: None) -> None:
    project = open_project("audit")
    assert project.ok("maad_backup")["tag"] == "maad-snapshot-2031-02-03-0405"
    assert project.ok("maad_backup")["tag"] == "maad-snapshot-2031-02-03-040506"
    assert project.error("maad_backup")["code"] == "TAG_EXISTS"
    assert project.ok("maad_backup", label="x")["tag"] == "maad-snapshot-2031-02-03-0405-x"
    assert project.error("maad_backup", label="X")["code"] == "TAG_EXISTS"
    create(project, "One")
    assert project.error("maad_backup", label="x")["code"] == "TAG_EXISTS"


@pytest.mark.parametrize("mode", ["batch", "snapshot"])
def test_what_is_pending_is_committed_first(open_project: Any, mode: str) -> None:
    project = open_project(mode, history_fallback_delay_ms=0)
    create(project, "One")
    made = project.ok("maad_backup", label="x")
    assert (made["pendingWrites"], made["worktreeClean"]) == (0, True)
    assert git(project.root, "show", f"{made['tag']}:ships/shp-one.md").startswith("---")
    automatic = [tag for tag in project.ok("maad_backup", mode="list") if tag["tag"] != made["tag"]]
    assert [tag["sha"] for tag in automatic] == ([made["sha"]] if mode == "snapshot" else [])


@pytest.mark.parametrize("mode", ["audit", "batch"])
def test_no_tag_is_made_that_would_miss_a_pending_write(open_project: Any, mode: str) -> None:
    project = open_project(mode, history_fallback_delay_ms=0)
    lock = project.root / ".git/index.lock"
    lock.touch()
    create(project, "One")
    error = project.error("maad_backup")
    assert error["code"] == "GIT_ERROR"
    assert (error["details"]["reason"], error["details"]["trigger"]) == ("index-lock", "snapshot")
    assert git(project.root, "tag", "--list") == ""
    lock.unlink()
    assert project.ok("maad_backup")["worktreeClean"] is True


def test_a_dirty_worktree_is_refused_unless_allowed(open_project: Any) -> None:
    project = open_project("audit")
    create(project, "One")
    (project.root / "notes.txt").write_text("not under a registered path\n")
    assert project.ok("maad_backup", label="a")["worktreeClean"] is True
    (project.root / "ships/by-hand.md").write_text("x\n")
    error = project.error("maad_backup", label="b")
    assert error["code"] == "GIT_ERROR"
    assert error["details"] == {
        "reason": "worktree-dirty",
        "files": 1,
        "pendingWrites": 0,
        "worktreeClean": False,
    }
    made = project.ok("maad_backup", label="b", allowDirty=True)
    assert made["worktreeClean"] is False


def test_feed_mode_with_a_repository(open_project: Any) -> None:
    project = open_project("feed")
    create(project, "One")
    assert project.error("maad_backup")["details"]["reason"] == "worktree-dirty"
    assert project.ok("maad_backup", allowDirty=True)["sha"] == head(project.root)


def test_the_list_is_newest_first_and_can_be_narrowed(
    open_project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = open_project("audit")
    for number in range(4):
        monkeypatch.setattr(
            "maadd_worker.history.backup.time.time", lambda at=MOMENT + 60 * number: float(at)
        )
        project.ok("maad_backup", label=f"n{number}")
    git(project.root, "tag", "v1.0")

    def labels(**args: Any) -> list[str]:
        return [one["tag"][-2:] for one in project.ok("maad_backup", mode="list", **args)]

    assert labels() == ["n3", "n2", "n1", "n0"]
    assert labels(since="2031-02-03T04:07:06Z") == ["n3", "n2"]
    assert labels(since="2031-02-03T05:07:06+01:00") == ["n3", "n2"]
    assert labels(since="2031-02-04") == []
    reply = project.reply("maad_backup", mode="list", limit=1)
    assert [one["tag"][-2:] for one in msgspec.json.decode(reply.body)] == ["n3"]
    assert [advice["code"] for advice in reply.meta["warnings"]] == ["RESULT_TRUNCATED"]
    assert project.error("maad_backup", mode="list", since="someday")["code"] == "INVALID_FIELDS"


def test_delete_takes_the_tag_and_leaves_the_commit(open_project: Any) -> None:
    project = open_project("audit")
    made = project.ok("maad_backup")
    git(project.root, "tag", "v1.0")
    assert project.error("maad_backup", mode="delete")["code"] == "INVALID_ARGS"
    assert project.error("maad_backup", mode="delete", tag="v1.0")["code"] == "INVALID_FIELDS"
    for unknown in ("maad-snapshot-x", "maad-snapshot-*", f"{made['tag']}~0"):
        assert project.error("maad_backup", mode="delete", tag=unknown)["code"] == "TAG_NOT_FOUND"
    assert project.ok("maad_backup", mode="delete", tag=made["tag"]) == {"removed": made["tag"]}
    assert git(project.root, "tag", "--list") == "v1.0\n"
    assert head(project.root) == made["sha"]


def test_a_detached_head_and_a_repository_without_a_commit(open_project: Any) -> None:
    project = open_project("feed")
    git(project.root, "checkout", "-q", "--detach")
    assert project.ok("maad_backup")["message"].endswith("('HEAD')")
    git(project.root, "checkout", "-q", "--orphan", "empty")
    assert project.error("maad_backup")["code"] == "NO_HEAD_COMMIT"


def test_without_a_repository(project: Path, open_project: Any) -> None:
    (project / ".git").rename(project / "away")
    feed = open_project("feed")
    for args in ({}, {"mode": "delete", "tag": "maad-snapshot-x"}):
        error = feed.error("maad_backup", **args)
        assert error["code"] == "GIT_NOT_INITIALIZED"
        assert error["details"] == {"historyMode": "feed", "modeSource": "project"}
    assert feed.ok("maad_backup", mode="list") == []


def test_a_dry_run_lists_and_changes_nothing(open_project: Any) -> None:
    project = open_project("audit")
    made = project.ok("maad_backup")
    removal = {"mode": "delete", "tag": made["tag"]}
    for args in ({}, removal):
        [reply] = project.group(project.request("maad_backup", args, dry_run=True))
        assert (reply.ok, reply.body) == (True, b"")
    [reply] = project.group(project.request("maad_backup", {"mode": "list"}, dry_run=True))
    assert [one["tag"] for one in msgspec.json.decode(reply.body)] == [made["tag"]]
