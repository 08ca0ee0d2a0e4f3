"""Repositories in a state that a commit could stumble over: no write is lost, and a person's
work is left as it is (spec 03 §9.3)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from maadd.protocol.errors import MaadError

PERSON = ("git", "-c", "user.name=Someone", "-c", "user.email=someone@example.invalid")

EDITS_BY_HAND = """
set -e
mkdir -p notes
tries=0
again() {
    tries=$((tries + 1))
    sleep 0.05 # no person is faster
}
for number in 1 2 3 4 5 6 7 8; do
    echo "$number" > notes/$number.txt
    until git add -- notes/$number.txt 2>/dev/null; do again; done
    until git commit -q -m "by hand $number" -- notes/$number.txt 2>/dev/null; do again; done
done
echo $tries
"""

FEW_TRIES = 6
"""Failed ones for one edit, under writes without any pause; most succeed at once."""


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run([*PERSON, *arguments], cwd=root, check=True, capture_output=True)
    return done.stdout.decode()


def subjects(root: Path) -> list[str]:
    return git(root, "log", "--reverse", "--format=%s").splitlines()


def status(root: Path) -> str:
    return git(root, "status", "--porcelain", "--untracked-files=all")


def create(project: Any, name: str) -> Any:
    reply = project.reply("maad_create", docType="ship", fields={"name": name}, body="")
    assert reply.ok, reply.body
    return reply


def assert_sound(root: Path) -> None:
    done = subprocess.run(["git", "fsck", "--strict"], cwd=root, check=True, capture_output=True)
    assert b"missing" not in done.stdout
    assert b"error" not in done.stdout + done.stderr


# Locks


def test_a_lock_of_somebody_else_delays_commits_and_nothing_more(open_project: Any) -> None:
    project = open_project("audit")
    create(project, "Zero")
    project.settle()
    lock = project.root / ".git/index.lock"
    lock.write_text("theirs")
    os.utime(lock, (0, 0))
    reply = create(project, "One")
    failure = reply.meta["commit_failure"]
    assert reply.meta["write_durable"] is False
    assert reply.meta["history"] == {"mode": "audit", "outcome": "failed", "pendingWrites": 1}
    assert msgspec.json.decode(reply.body)["commitFailure"] == failure
    assert (failure["code"], failure["action"]) == ("GIT_COMMIT_FAILED", "create")
    details = failure["details"]
    assert (details["reason"], details["path"]) == ("index-lock", ".git/index.lock")
    assert details["mtime"].endswith("Z")
    assert set(details) == {"reason", "path", "mtime", "holder"}
    assert project.engine.poll_events()[-1].doc_id == "shp-zero"  # not yet durable
    assert project.ok("maad_get", docId="shp-one")["version"] == 1
    project.reply("maad_update", docId="shp-one", fields={"tonnage": 3})
    project.reply("maad_delete", docId="shp-zero", mode="hard")
    health = project.ok("maad_health")
    assert (health["commitFailuresTotal"], health["history"]["pendingWrites"]) == (3, 3)
    assert health["lastCommitFailureAction"] == "delete"
    assert lock.read_text() == "theirs"
    lock.unlink()
    project.settle()
    assert subjects(project.root)[2:] == [
        "maad:create shp-one [ship] — One",
        "maad:update shp-one [ship] fields:tonnage — tonnage: 3",
        "maad:delete shp-zero [ship] hard — hard delete of shp-zero",
    ]
    assert project.ok("maad_health")["history"]["pendingWrites"] == 0
    assert status(project.root) == ""
    assert_sound(project.root)


def test_a_held_lock_does_not_stop_a_start(open_project: Any) -> None:
    first = open_project("audit")
    lock = first.root / ".git/index.lock"
    lock.touch()
    create(first, "One")
    first.close()
    project = open_project("audit")
    assert project.engine.recovery_actions == ["history_recovery_failed:GIT_COMMIT_FAILED"]
    assert project.ok("maad_get", docId="shp-one")["version"] == 1
    create(project, "Two")
    lock.unlink()
    project.settle()
    assert subjects(project.root)[1:] == [
        "maad:create shp-one [ship] — One",
        "maad:create shp-two [ship] — Two",
    ]
    assert status(project.root) == ""


# Identity, HEAD, place


@pytest.mark.parametrize("mode", ["audit", "snapshot"])
def test_a_machine_without_a_git_identity(
    open_project: Any, mode: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: Any
) -> None:
    home = tmp_path_factory.mktemp("home")
    (home / ".gitconfig").write_text("[user]\n\tuseConfigOnly = true\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "EMAIL"):
        monkeypatch.delenv(name, raising=False)
    project = open_project(mode, max_writes=1)
    assert create(project, "One").meta["history"]["outcome"] == "committed"
    project.ok("maad_backup", label="x")
    assert git(project.root, "log", "-1", "--format=%an <%ae> %cn <%ce>") == (
        "maadb-engine <engine@maadb.local> maadb-engine <engine@maadb.local>\n"
    )


@pytest.mark.parametrize("mode", ["audit", "batch"])
def test_a_detached_head_moves_like_a_branch(open_project: Any, mode: str) -> None:
    project = open_project(mode, max_writes=1)
    git(project.root, "checkout", "-q", "--detach")
    before = git(project.root, "rev-parse", "main")
    reply = create(project, "One")
    project.settle()
    assert git(project.root, "rev-parse", "HEAD").strip() == reply.meta["history"]["sha"]
    assert git(project.root, "rev-parse", "HEAD~1", "main") == before * 2
    assert status(project.root) == ""


def test_an_unborn_branch_gets_its_first_commit(project: Path, open_project: Any) -> None:
    git(project, "checkout", "-q", "--orphan", "new")
    git(project, "rm", "-r", "-q", "--cached", ".")
    engine = open_project("audit")
    create(engine, "One")
    engine.settle()
    assert subjects(project) == ["maad:create shp-one [ship] — One"]
    assert git(project, "ls-files") == "ships/shp-one.md\n"


def test_a_project_inside_another_repository(project: Path, open_project: Any) -> None:
    parent = project.parent / f"{project.name}-parent"
    parent.mkdir()
    git(parent, "init", "-q", "-b", "main")
    (parent / "mine.txt").write_text("mine\n")
    git(parent, "add", "mine.txt")
    git(parent, "commit", "-q", "-m", "parent")
    inside = parent / "data"
    project.rename(inside)
    project.symlink_to(inside)
    engine = open_project("audit")
    create(engine, "One")
    engine.settle()
    engine.ok("maad_backup")
    assert subjects(inside)[-1] == "maad:create shp-one [ship] — One"
    assert subjects(parent) == ["parent"]
    assert git(parent, "tag", "--list") == ""
    assert status(parent) == "?? data/\n"
    engine.close()
    (inside / ".git").rename(parent / "away")
    with pytest.raises(MaadError) as failure:
        open_project("audit")
    assert failure.value.code == "GIT_NOT_INITIALIZED"
    feed = open_project("feed")
    create(feed, "Two")
    assert feed.error("maad_backup")["code"] == "GIT_NOT_INITIALIZED"
    assert feed.ok("maad_health")["gitAvailable"] is False
    assert subjects(parent) == ["parent"]


# A person at the same time


@pytest.mark.parametrize("mode", ["audit", "batch"])
def test_a_person_who_commits_at_the_same_time(open_project: Any, mode: str) -> None:
    project = open_project(mode, max_writes=5)
    root = project.root
    (root / "draft.txt").write_text("staged\n")
    git(root, "add", "draft.txt")
    (root / "draft.txt").write_text("staged and then changed\n")
    environment = os.environ | {
        "GIT_AUTHOR_NAME": "Someone",
        "GIT_AUTHOR_EMAIL": "someone@example.invalid",
        "GIT_COMMITTER_NAME": "Someone",
        "GIT_COMMITTER_EMAIL": "someone@example.invalid",
    }
    person = subprocess.Popen(
        ["sh", "-c", EDITS_BY_HAND], cwd=root, env=environment, stdout=subprocess.PIPE
    )
    written = 0
    while person.poll() is None or written < 20:
        create(project, f"N{written}")
        written += 1
        project.engine.settle(False)
    told, _ = person.communicate()
    assert person.returncode == 0
    # Git never waits for the lock of the index: it must be free more often than not.
    assert int(told) <= 8 * FEW_TRIES
    project.ok("maad_flush")
    project.settle()
    log = subjects(root)
    assert [line for line in log if line.startswith("by hand")] == [
        f"by hand {number}" for number in range(1, 9)
    ]
    tracked = set(git(root, "ls-tree", "-r", "--name-only", "HEAD").splitlines())
    assert {f"ships/shp-n{number}.md" for number in range(written)} <= tracked
    assert {f"notes/{number}.txt" for number in range(1, 9)} <= tracked
    assert "draft.txt" not in tracked
    assert status(root) == "AM draft.txt\n"
    assert git(root, "show", ":draft.txt") == "staged\n"
    assert_sound(root)


def test_staged_and_unstaged_work_on_other_files_stays(open_project: Any) -> None:
    project = open_project("batch", history_fallback_delay_ms=0)
    root = project.root
    (root / "staged.txt").write_text("staged\n")
    git(root, "add", "staged.txt")
    (root / ".gitignore").write_text("_backend/\n_import/\nmore/\n")
    git(root, "rm", "-q", "--cached", "_schema/voyage.v1.yaml")
    create(project, "One")
    before = status(root)
    project.ok("maad_flush")
    assert status(root) == before.replace("?? ships/shp-one.md\n", "")
    assert git(root, "show", "--format=", "--name-only", "HEAD") == "ships/shp-one.md\n"


def test_a_merge_of_a_person_is_waited_for(open_project: Any) -> None:
    project = open_project("audit")
    root = project.root
    git(root, "checkout", "-q", "-b", "side")
    (root / "x.txt").write_text("side\n")
    git(root, "add", "x.txt")
    git(root, "commit", "-q", "-m", "side")
    git(root, "checkout", "-q", "main")
    (root / "x.txt").write_text("main\n")
    git(root, "add", "x.txt")
    git(root, "commit", "-q", "-m", "main")
    subprocess.run([*PERSON, "merge", "-q", "side"], cwd=root, check=False, capture_output=True)
    reply = create(project, "One")
    assert reply.meta["write_durable"] is False
    assert reply.meta["commit_failure"]["details"]["reason"] == "merge"
    (root / "x.txt").write_text("both\n")
    git(root, "add", "x.txt")
    git(root, "commit", "-q", "-m", "merged")
    assert project.ok("maad_flush")["status"] == "committed"
    assert subjects(root)[-1] == "maad:create shp-one [ship] — One"
    assert status(root) == ""
