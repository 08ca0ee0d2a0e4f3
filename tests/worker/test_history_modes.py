"""History modes through a real engine: answers, commits, restarts (spec 03 §7)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from maadd.protocol.messages import Identity
from maadd_worker.disk.journal import Journal

NEVER = {"history_fallback_delay_ms": 0}
ONE = Identity("tok-1", "agent-one", None)
TWO = Identity("tok-2", "agent-two", "user-2")

KILLED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from conftest import Harness
harness = Harness(__import__("pathlib").Path({root!r}), {mode!r}, history_fallback_delay_ms=0)
{steps}
os.kill(os.getpid(), signal.SIGKILL)
"""


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout


def subjects(root: Path) -> list[str]:
    return git(root, "log", "--reverse", "--format=%s").splitlines()[1:]


def kill_after(root: Path, mode: str, *steps: str) -> None:
    """Perform calls in a process that dies right after them, like by a power switch."""
    script = KILLED.format(
        tests=str(Path(__file__).parent), root=str(root), mode=mode, steps="\n".join(steps)
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def history_of(reply: Any) -> dict[str, Any]:
    block: dict[str, Any] = reply.meta["history"]
    return block


def create(project: Any, name: str, **more: Any) -> Any:
    reply = project.reply("maad_create", docType="ship", fields={"name": name}, body="", **more)
    assert reply.ok, reply.body
    return reply


def wait_until(project: Any, done: Callable[[], bool]) -> None:
    """Let time pass for the engine, as its writer thread does."""
    while not done():
        wait = project.engine.settle(True)
        assert wait is not None
        threading.Event().wait(wait)


def journal_is_empty(root: Path) -> bool:
    journal = Journal.open(str(root), fsync=False)
    try:
        return journal.pending() == []
    finally:
        journal.close()


# Batch


def test_a_deferred_write_says_so_and_waits(open_project: Any) -> None:
    project = open_project("batch", **NEVER)
    reply = create(project, "One")
    assert history_of(reply) == {"mode": "batch", "outcome": "pending", "pendingWrites": 1}
    assert reply.meta["write_durable"] is True
    assert msgspec.json.decode(reply.body)["writeDurable"] is True
    assert [event.doc_id for event in project.engine.poll_events()] == ["shp-one"]
    project.settle()
    assert subjects(project.root) == []
    reply = project.reply("maad_history", docId="shp-one")
    assert [advice["code"] for advice in reply.meta["warnings"]] == ["HISTORY_PENDING"]


def test_a_flush_commits_the_batch_and_every_agent_is_found(open_project: Any) -> None:
    project = open_project("batch", **NEVER)
    create(project, "One", identity=ONE)
    create(project, "Two", identity=TWO)
    project.reply("maad_update", docId="shp-two", fields={"tonnage": 3}, identity=ONE)
    reply = project.reply("maad_flush")
    report = msgspec.json.decode(reply.body)
    assert report.pop("sha") == git(project.root, "rev-parse", "HEAD").strip()
    assert report == {
        "effectiveMode": "batch",
        "trigger": "explicit",
        "status": "committed",
        "pendingWrites": 0,
        "flushed": True,
    }
    assert reply.audit["git_commit"] == git(project.root, "rev-parse", "HEAD").strip()
    assert subjects(project.root) == ["maad:create shp-one [ship] batch:3 — Flushed 3 writes"]
    assert git(project.root, "status", "--porcelain") == ""
    found = {entry["docId"]: entry for entry in project.ok("maad_audit")}
    assert found["shp-one"]["identity"]["agentId"] == "agent-one"
    assert {found["shp-two"]["lastAction"], found["shp-two"]["identity"]["agentId"]} == {
        "update",
        "agent-one",
    }
    [entry] = project.ok("maad_history", docId="shp-one")
    assert (entry["bulk"], entry["bulkSize"]) == (True, 3)
    again = project.reply("maad_flush")
    assert msgspec.json.decode(again.body)["status"] == "noop"
    assert again.audit is None


def test_a_group_is_answered_as_its_writes_would_be_one_by_one(open_project: Any) -> None:
    project = open_project("batch", max_writes=2)
    calls = [
        project.request("maad_create", {"docType": "ship", "fields": {"name": name}, "body": ""})
        for name in ("A", "B", "C", "D", "E")
    ]
    outcomes = [history_of(reply)["outcome"] for reply in project.group(*calls)]
    assert outcomes == ["pending", "committed", "pending", "committed", "pending"]
    project.settle()
    assert subjects(project.root) == [
        "maad:create shp-a [ship] batch:2 — Flushed 2 writes",
        "maad:create shp-c [ship] batch:2 — Flushed 2 writes",
    ]


def test_the_delay_commits_by_itself(open_project: Any) -> None:
    project = open_project("batch", max_delay_ms=40)
    create(project, "One")
    wait_until(project, lambda: len(subjects(project.root)) == 1)
    project.settle()
    assert git(project.root, "status", "--porcelain") == ""


def test_flushes_that_wait_together_make_one_commit(open_project: Any) -> None:
    project = open_project("batch", **NEVER)
    create(project, "One")
    replies = project.group(*(project.request("maad_flush", {}) for _ in range(3)))
    assert [msgspec.json.decode(reply.body)["status"] for reply in replies] == [
        "committed",
        "noop",
        "noop",
    ]
    assert len(subjects(project.root)) == 1


def test_a_record_that_came_and_went_in_one_batch(open_project: Any) -> None:
    project = open_project("batch", **NEVER)
    create(project, "One")
    project.ok("maad_delete", docId="shp-one", mode="hard")
    assert project.ok("maad_flush")["status"] == "noop"
    create(project, "Two")
    assert project.ok("maad_flush")["status"] == "committed"
    project.close()
    assert journal_is_empty(project.root)


def test_a_reload_flushes(open_project: Any) -> None:
    project = open_project("batch", **NEVER)
    create(project, "One")
    assert project.ok("maad_reload")["reloaded"] is True
    assert subjects(project.root) == ["maad:create shp-one [ship] — One"]


def test_a_replay_tells_what_became_of_the_write(open_project: Any) -> None:
    project = open_project("batch", **NEVER)
    args = {"docType": "ship", "fields": {"name": "One"}, "body": "", "idempotencyKey": "k"}
    project.reply("maad_create", **args)
    assert history_of(project.reply("maad_create", **args))["outcome"] == "pending"
    project.ok("maad_flush")
    again = project.reply("maad_create", **args)
    assert (again.meta["replayed"], history_of(again)["outcome"]) == (True, "committed")


def test_a_failed_threshold_fails_one_call_and_a_replay_tries_again(open_project: Any) -> None:
    project = open_project("batch", max_writes=2)
    create(project, "One")
    lock = project.root / ".git/index.lock"
    lock.touch()
    args = {"docType": "ship", "fields": {"name": "Two"}, "body": "", "idempotencyKey": "k"}
    reply = project.reply("maad_create", **args)
    assert reply.ok
    assert reply.meta["write_durable"] is False
    assert reply.meta["commit_failure"]["details"]["reason"] == "index-lock"
    assert history_of(reply) == {"mode": "batch", "outcome": "failed", "pendingWrites": 2}
    assert project.ok("maad_health")["history"]["lastFlushError"]["trigger"] == "threshold"
    lock.unlink()
    again = project.reply("maad_create", **args)
    assert again.meta["write_durable"] is True
    assert history_of(again)["outcome"] == "committed"
    assert project.ok("maad_health")["history"]["lastFlushError"] is None


def test_the_close_commits_what_is_pending(open_project: Any) -> None:
    project = open_project("batch", **NEVER)
    create(project, "One")
    project.close()
    assert subjects(project.root) == ["maad:create shp-one [ship] — One"]
    assert git(project.root, "status", "--porcelain") == ""
    assert journal_is_empty(project.root)


# A process that dies


def test_one_deferred_write_survives_a_kill(project: Path, open_project: Any) -> None:
    kill_after(
        project,
        "batch",
        'harness.ok("maad_create", docType="ship", fields={"name": "One"}, body="")',
    )
    assert subjects(project) == []
    later = open_project("batch", **NEVER)
    assert later.ok("maad_health")["recoveryActions"][-1] == "history_recovery_completed:batch"
    assert subjects(project) == ["maad:create shp-one [ship] — One"]
    assert git(project, "status", "--porcelain") == ""
    assert later.ok("maad_get", docId="shp-one")["version"] == 1
    later.close()
    assert journal_is_empty(project)


CHAIN = (
    'harness.ok("maad_create", docType="ship", fields={"name": "One"}, body="")',
    'harness.ok("maad_create", docType="ship", fields={"name": "Two"}, body="")',
    'harness.ok("maad_update", docId="shp-two", fields={"tonnage": 3})',
    'harness.ok("maad_update", docId="shp-two", fields={"tonnage": None})',
    'harness.ok("maad_delete", docId="shp-one", mode="hard")',
)


def test_a_killed_batch_becomes_one_commit_that_names_every_write(
    project: Path, open_project: Any
) -> None:
    kill_after(project, "batch", *CHAIN)
    later = open_project("batch", **NEVER)
    assert subjects(project) == ["maad:create shp-one [ship] batch:5 — Flushed 5 writes"]
    trailers = git(project, "log", "-1", "--format=%b").strip().splitlines()
    assert [line.split()[1:3] for line in trailers] == [
        ["create", "shp-one"],
        ["create", "shp-two"],
        ["update", "shp-two"],
        ["update", "shp-two"],
        ["delete", "shp-one"],
    ]
    assert git(project, "ls-files", "ships") == "ships/shp-two.md\n"
    assert git(project, "status", "--porcelain") == ""
    later.close()
    assert journal_is_empty(project)


def test_a_killed_batch_opened_in_audit_mode_becomes_single_commits(
    project: Path, open_project: Any
) -> None:
    kill_after(project, "batch", *CHAIN[:2])
    later = open_project("audit")
    assert later.engine.recovery_actions[-1] == "history_recovery_completed:audit"
    assert subjects(project) == [
        "maad:create shp-one [ship] — One",
        "maad:create shp-two [ship] — Two",
    ]


def test_a_killed_batch_opened_in_feed_mode_is_let_go(project: Path, open_project: Any) -> None:
    kill_after(project, "batch", *CHAIN[:2])
    later = open_project("feed")
    assert later.engine.recovery_actions[-1] == "history_recovery_completed:feed"
    assert subjects(project) == []
    assert later.ok("maad_summary")["totalDocuments"] == 2
    later.close()
    assert journal_is_empty(project)


# Snapshot


def test_a_snapshot_boundary_is_tagged(open_project: Any) -> None:
    project = open_project("snapshot", max_writes=2)
    create(project, "One")
    reply = create(project, "Two")
    [tag] = git(project.root, "tag", "--list").split()
    target = git(project.root, "rev-parse", f"{tag}^{{commit}}").strip()
    assert history_of(reply)["sha"] == target
    assert "shp-two" in git(project.root, "ls-tree", "-r", "--name-only", tag)
    [listed] = project.ok("maad_backup", mode="list")
    assert (listed["tag"], listed["sha"]) == (tag, target)


def test_a_tag_that_failed_is_made_without_a_second_commit(open_project: Any) -> None:
    project = open_project("snapshot", **NEVER)
    create(project, "One")
    in_the_way = project.root / ".git/refs/tags"
    in_the_way.rmdir()
    in_the_way.write_text("")
    error = project.error("maad_flush")
    assert (error["code"], error["details"]["historyCode"]) == ("GIT_ERROR", "GIT_TAG_FAILED")
    assert error["details"]["pendingWrites"] == 1
    in_the_way.unlink()
    assert project.ok("maad_flush")["status"] == "committed"
    assert len(subjects(project.root)) == 1
    assert len(git(project.root, "tag", "--list").split()) == 1


# Flush in the other modes


def test_an_audit_flush_retries_failed_commits_one_by_one(open_project: Any) -> None:
    project = open_project("audit")
    assert project.ok("maad_flush")["status"] == "noop"
    lock = project.root / ".git/index.lock"
    lock.touch()
    create(project, "One")
    create(project, "Two")
    error = project.error("maad_flush")
    assert error["code"] == "GIT_ERROR"
    assert error["details"] | {"mtime": None} == {
        "historyCode": "GIT_COMMIT_FAILED",
        "effectiveMode": "audit",
        "trigger": "explicit",
        "pendingWrites": 2,
        "reason": "index-lock",
        "path": ".git/index.lock",
        "mtime": None,
        "holder": None,
    }
    lock.unlink()
    report = project.ok("maad_flush")
    assert (report["status"], report["pendingWrites"]) == ("committed", 0)
    assert subjects(project.root) == [
        "maad:create shp-one [ship] — One",
        "maad:create shp-two [ship] — Two",
    ]


def snapshot_of(root: Path) -> dict[str, tuple[int, bytes]]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_feed_leaves_git_alone(open_project: Any) -> None:
    project = open_project("feed")
    before = snapshot_of(project.root / ".git")
    create(project, "One")
    assert project.ok("maad_flush") == {
        "effectiveMode": "feed",
        "trigger": "explicit",
        "status": "noop",
        "pendingWrites": 0,
        "flushed": False,
    }
    project.close()
    assert snapshot_of(project.root / ".git") == before


def test_read_mode_serves_flush_and_the_list_of_backups(open_project: Any) -> None:
    writer = open_project("audit")
    create(writer, "One")
    writer.ok("maad_backup")
    writer.close()
    before = snapshot_of(writer.root)
    project = open_project("read")
    assert project.ok("maad_flush")["status"] == "noop"
    assert len(project.ok("maad_backup", mode="list")) == 1
    for args in ({}, {"mode": "delete", "tag": "maad-snapshot-x"}):
        assert project.error("maad_backup", **args)["code"] == "PROJECT_READ_ONLY"
    project.close()
    assert snapshot_of(writer.root) == before


def test_a_dry_run_flushes_nothing(open_project: Any) -> None:
    project = open_project("batch", **NEVER)
    create(project, "One")
    [reply] = project.group(project.request("maad_flush", {}, dry_run=True))
    assert (reply.ok, reply.body) == (True, b"")
    assert subjects(project.root) == []


# Health


def test_health_tells_of_the_batch(open_project: Any) -> None:
    project = open_project("batch", max_writes=9, max_delay_ms=60_000)
    create(project, "One")
    block = project.ok("maad_health")["history"]
    assert (block["effectiveMode"], block["pendingWrites"]) == ("batch", 1)
    assert block["oldestPendingAt"] < block["nextFlushAt"]
    assert (block["flushesTotal"], block["flushFailuresTotal"]) == (0, 0)
    assert block["lastSuccessfulFlush"] is None
    project.ok("maad_flush")
    block = project.ok("maad_health")["history"]
    assert (block["pendingWrites"], block["flushesTotal"]) == (0, 1)
    assert (block["oldestPendingAt"], block["nextFlushAt"]) == (None, None)
    assert block["lastSuccessfulFlush"] is not None


@pytest.mark.parametrize("mode", ["audit", "batch", "snapshot"])
def test_changes_by_hand_are_told_once_at_the_start_and_never_committed(
    open_project: Any, mode: str
) -> None:
    first = open_project(mode, **NEVER)
    create(first, "One")
    first.close()
    record = first.root / "ships/shp-one.md"
    record.write_text(record.read_text() + "by hand\n")
    (first.root / "elsewhere.md").write_text("not a record\n")
    commits = subjects(first.root)
    project = open_project(mode, **NEVER)
    project.settle()
    [advisory] = project.ok("maad_health")["history"]["advisories"]
    assert (advisory["code"], advisory["files"]) == ("HISTORY_WORKTREE_DIRTY", 1)
    project.close()
    assert subjects(first.root) == commits
    assert os.path.exists(record)


def test_commits_that_fail_reach_the_log_also_from_the_start(
    project: Path, open_project: Any
) -> None:
    kill_after(project, "batch", *CHAIN[:2])
    lock = project / ".git/index.lock"
    lock.touch()
    later = open_project("batch", **NEVER)
    assert later.engine.recovery_actions[-1] == "history_recovery_failed:GIT_COMMIT_FAILED"
    lines: list[tuple[str, dict[str, Any]]] = []
    later.engine.connect_log(lambda name, **members: lines.append((name, members)))
    [(name, members)] = lines
    assert (name, members["code"], members["file_count"]) == (
        "commit_failed",
        "GIT_COMMIT_FAILED",
        2,
    )
    lock.unlink()
    later.ok("maad_flush")
    assert len(subjects(project)) == 1
