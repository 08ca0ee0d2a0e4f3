"""Mode `batch`: when writes become commits, and what becomes of failures."""

import threading
from collections.abc import Callable

import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.disk.journal import new_entry_id
from maadd_worker.history import CommitIdentity, CommitRequest, HistoryController, LogicalWrite
from maadd_worker.history import controller as controller_module
from maadd_worker.history import retry as retry_module
from maadd_worker.history.message import parse_body

NEVER = {"history_fallback_delay_ms": 0}


def run_until(controller: HistoryController, done: Callable[[], bool]) -> None:
    """Let time pass for a controller, as its writer thread does."""
    while True:
        wait = controller.settle(idle=False)
        if done():
            return
        assert wait is not None
        threading.Event().wait(wait)


def history(controller):
    return controller.health()["history"]


# Thresholds and timers


def test_a_write_below_the_threshold_is_pending(project, journal, controller, begun):
    batch = controller(max_writes=3)
    head = project.head()
    outcomes = batch.commit([begun(journal, "ven-a"), begun(journal, "ven-b")])
    assert [outcome.outcome for outcome in outcomes] == ["pending", "pending"]
    assert batch.settle(idle=False) is None
    assert (batch.pending_writes, project.head()) == (2, head)
    assert [entry.status for entry in journal.pending()] == ["indexed", "indexed"]


def test_the_write_that_reaches_the_threshold_gets_the_commit(project, journal, controller, begun):
    batch = controller(max_writes=2)
    outcomes = batch.commit([begun(journal, f"ven-{number}") for number in range(5)])
    run_until(batch, lambda: len(journal.pending()) == 1)
    assert [outcome.outcome for outcome in outcomes] == [
        "pending",
        "committed",
        "pending",
        "committed",
        "pending",
    ]
    assert outcomes[3].sha == project.head()
    assert project.subjects()[-2:] == [
        "maad:create ven-0 [vendor] batch:2 — Flushed 2 writes",
        "maad:create ven-2 [vendor] batch:2 — Flushed 2 writes",
    ]
    assert project.status() == "?? vendors/ven-4.md\n"


def test_a_bulk_call_counts_each_of_its_writes(project, journal, controller):
    batch = controller(max_writes=20)
    ids = tuple(new_entry_id() for _ in range(12))
    paths = tuple(f"v/{number}.md" for number in range(12))
    for path in paths:
        project.write(path)
    batch.commit([CommitRequest("create", "0", "v", "bulk:12", "12 records", paths, None, ids)])
    assert batch.pending_writes == 12
    [outcome] = batch.commit(
        [CommitRequest("create", "x", "v", "bulk:8", "8 records", paths[:8], None, ids[:8])]
    )
    assert outcome.outcome == "committed"


def test_the_delay_counts_from_the_oldest_pending_write(project, journal, controller, begun):
    batch = controller(max_delay_ms=40)
    batch.commit([begun(journal, "ven-a")])
    due = batch._policy.next_attempt
    batch.commit([begun(journal, "ven-b")])
    assert batch._policy.next_attempt == due
    run_until(batch, lambda: batch.pending_writes == 0)
    run_until(batch, lambda: journal.pending() == [])
    assert project.subjects()[-1] == "maad:create ven-a [vendor] batch:2 — Flushed 2 writes"
    assert batch.settle(idle=False) is None
    project.assert_sound()


def test_a_threshold_that_was_reached_leaves_nothing_for_the_timer(
    project, journal, controller, begun
):
    batch = controller(max_writes=1, max_delay_ms=10)
    batch.commit([begun(journal, "ven-a")])
    head = project.head()
    run_until(batch, lambda: journal.pending() == [])
    assert batch.settle(idle=False) is None
    assert project.head() == head


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 5.0),
        ({"history_fallback_delay_ms": 700}, 0.7),
        ({"history_fallback_delay_ms": 0}, None),
        ({"max_writes": 9}, None),
        ({"max_writes": 9, "max_delay_ms": 300}, 0.3),
    ],
)
def test_when_a_pending_write_is_committed_by_itself(
    project, journal, controller, begun, options, expected
):
    batch = controller(**options)
    batch.commit([begun(journal, "ven-a")])
    wait = batch.settle(idle=False)
    if expected is None:
        assert wait is None
    else:
        assert wait is not None
        assert expected / 2 < wait <= expected


# What a shared commit says and holds


def test_every_write_and_agent_is_named(project, journal, controller, begun):
    batch = controller(**NEVER)
    one = CommitIdentity("writer", "tok-1", "agent one", None)
    two = CommitIdentity("admin", "tok-2", None, "user-2")
    for name in ("a", "b", "c", "d"):
        project.write(f"v/{name}.md")
    batch.commit(
        [
            CommitRequest("create", "a", "v", "", "A", ("v/a.md",), one),
            CommitRequest("update", "b", "v", "fields:x,y", "x: 1", ("v/b.md",), two),
            CommitRequest(
                "create",
                "c",
                "v",
                "bulk:2",
                "2 records created",
                ("v/c.md", "v/d.md"),
                two,
                writes=(LogicalWrite("create", "c", "v"), LogicalWrite("create", "d", "v")),
            ),
        ]
    )
    assert batch.flush().sha == project.head()
    assert project.subjects()[-1] == "maad:create a [v] batch:4 — Flushed 4 writes"
    body = parse_body(project.git("log", "-1", "--format=%b"))
    assert body.identity == CommitIdentity("writer", "tok-1", "agent one", None)
    assert body.writes == (
        LogicalWrite("create", "a", "v", "", CommitIdentity("writer", "tok-1", "agent_one")),
        LogicalWrite("update", "b", "v", "fields:x,y", two),
        LogicalWrite("create", "c", "v", "", two),
        LogicalWrite("create", "d", "v", "", two),
    )
    project.assert_sound()


def test_a_single_write_keeps_its_own_message(project, journal, controller, begun):
    batch = controller(**NEVER)
    batch.commit([begun(journal, "ven-a")])
    batch.flush()
    assert project.git("log", "-1", "--format=%B").strip() == "maad:create ven-a [vendor] — ven-a"


def test_paths_that_came_and_went_are_no_obstacle(project, journal, controller, begun):
    batch = controller(**NEVER)
    batch.commit([begun(journal, "ven-a"), begun(journal, "ven-a", None, action="delete")])
    report = batch.flush()
    assert (report.status, report.pending_writes) == ("noop", 0)
    batch.commit([begun(journal, "ven-a"), begun(journal, "ven-a", None, action="delete")])
    batch.commit([begun(journal, "ven-b")])
    assert batch.flush().status == "committed"
    assert project.git("ls-tree", "--name-only", "HEAD", "vendors/") == "vendors/ven-b.md\n"
    assert journal.pending() == []
    project.assert_sound()


def test_a_delete_of_a_file_that_was_never_committed(project, journal, controller, begun):
    feed = project.controller("feed", journal)
    feed.commit([begun(journal, "ven-a")])
    feed.settle(False)
    batch = controller(**NEVER)
    batch.commit([begun(journal, "ven-a", None, action="delete")])
    assert batch.flush().status == "noop"
    assert journal.pending() == []


def test_the_newest_published_content_is_committed_and_no_hand_edit(
    project, journal, controller, begun
):
    batch = controller(**NEVER)
    batch.commit([begun(journal, "ven-a", "1\n"), begun(journal, "ven-a", "2\n", action="update")])
    project.write("vendors/ven-a.md", "by hand\n")
    batch.flush()
    assert project.committed("vendors/ven-a.md") == "2\n"
    assert project.status() == " M vendors/ven-a.md\n"


def test_an_ignored_path_is_left_out_and_told(project, journal, controller, begun):
    batch = controller(**NEVER)
    project.write("_backend/x.md")
    batch.commit([CommitRequest("create", "x", "v", "", "X", ("_backend/x.md",))])
    batch.commit([begun(journal, "ven-a")])
    assert batch.flush().status == "committed"
    [advisory] = history(batch)["advisories"]
    assert (advisory["code"], advisory["paths"]) == ("HISTORY_PATH_SKIPPED", ["_backend/x.md"])


def test_more_files_than_a_command_line_holds(project, journal, controller):
    project.git("config", "maad.hooks", "true")
    batch = controller(**NEVER)
    paths = tuple(f"v/{'x' * 60}-{number}.md" for number in range(2_500))
    (project.root / "v").mkdir()
    for path in paths:
        (project.root / path).write_text(path)
    batch.commit([CommitRequest("create", "x", "v", "bulk:2500", "many", paths)])
    assert batch.flush().status == "committed"
    assert history(batch)["gitPath"] == "program"
    assert len(project.git("ls-tree", "--name-only", "HEAD", "v/").split()) == 2_500
    project.assert_sound()


# Failures


def test_a_failed_threshold_keeps_everything_and_fails_that_call_only(
    project, journal, controller, begun
):
    batch = controller(max_writes=2)
    project.lock.write_text("theirs")
    first, second = batch.commit([begun(journal, "ven-a"), begun(journal, "ven-b")])
    assert first.outcome == "pending"
    assert second.failure is not None
    assert second.failure.details is not None
    assert (second.failure.code, second.failure.details["reason"]) == (
        "GIT_COMMIT_FAILED",
        "index-lock",
    )
    block = history(batch)
    assert block["pendingWrites"] == 2
    assert block["lastFlushError"]["trigger"] == "threshold"
    assert (block["flushesTotal"], block["flushFailuresTotal"]) == (0, 1)
    assert block["oldestPendingAt"] <= block["nextFlushAt"]
    assert len(journal.pending()) == 2
    project.lock.unlink()
    assert batch.flush().status == "committed"
    block = history(batch)
    assert (block["pendingWrites"], block["lastFlushError"]) == (0, None)
    assert (block["oldestPendingAt"], block["nextFlushAt"]) == (None, None)
    assert (block["flushesTotal"], block["flushFailuresTotal"]) == (1, 1)
    assert block["lastSuccessfulFlush"] is not None
    assert journal.pending() == []
    project.assert_sound()


def test_a_flush_that_a_lock_stopped_follows_when_it_is_gone(project, journal, controller, begun):
    batch = controller(**NEVER)
    batch.commit([begun(journal, "ven-a")])
    project.lock.touch()
    with pytest.raises(MaadError) as failure:
        batch.flush()
    assert failure.value.code == "GIT_ERROR"
    assert failure.value.details is not None
    assert failure.value.details["path"] == ".git/index.lock"
    assert failure.value.details["pendingWrites"] == 1
    assert batch.settle(idle=False) == retry_module.LOCK_POLL_S
    project.lock.unlink()
    run_until(batch, lambda: journal.pending() == [])
    assert project.subjects()[-1] == "maad:create ven-a [vendor] — ven-a"


def refuse_commits(project, command: str) -> None:
    project.git("config", "maad.hooks", "true")
    hook = project.root / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{command}\n")
    hook.chmod(0o755)


def test_the_timer_tries_again_until_it_succeeds(project, journal, controller, begun):
    refuse_commits(project, "exit 1")
    batch = controller(max_delay_ms=20)
    batch.commit([begun(journal, "ven-a")])
    run_until(batch, lambda: history(batch)["flushFailuresTotal"] == 3)
    assert batch.health()["commitFailuresTotal"] == 1
    assert history(batch)["lastFlushError"]["trigger"] == "timer"
    (project.root / ".git/hooks/pre-commit").unlink()
    run_until(batch, lambda: batch.pending_writes == 0)
    assert project.subjects()[-1] == "maad:create ven-a [vendor] — ven-a"


def test_writes_do_not_wait_again_for_a_git_that_hangs(
    project, journal, controller, begun, monkeypatch
):
    monkeypatch.setattr("maadd_worker.history.batch_policy.TIMEOUT_S", 0.5)
    refuse_commits(project, "exec sleep 1000")
    batch = controller(max_writes=1)
    outcomes = batch.commit([begun(journal, f"ven-{number}") for number in range(3)])
    assert [outcome.outcome for outcome in outcomes] == ["failed", "pending", "pending"]
    assert history(batch)["flushFailuresTotal"] == 1
    (project.root / ".git/hooks/pre-commit").unlink()
    assert batch.flush().status == "committed"
    project.assert_sound()


def test_an_unexpected_failure_keeps_the_writes(project, journal, controller, begun, monkeypatch):
    batch = controller(max_writes=1)

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr("maadd_worker.history.committer.change_of", broken)
        [outcome] = batch.commit([begun(journal, "ven-a")])
    assert outcome.failure is not None
    assert outcome.failure.code == "HISTORY_FLUSH_FAILED"
    assert batch.pending_writes == 1
    assert batch.flush().status == "committed"


def test_failed_commits_are_logged_once_for_each_kind_of_failure(
    project, journal, controller, begun
):
    lines: list[tuple[str, dict[str, object]]] = []
    batch = controller(max_writes=1)
    project.lock.touch()
    batch.commit([begun(journal, "ven-a")])  # before anybody listens
    batch.connect_log(lambda name, **members: lines.append((name, members)))
    batch.commit([begun(journal, "ven-b")])
    [(name, members)] = lines
    assert name == "commit_failed"
    assert str(members.pop("message")).startswith("another Git process holds")
    assert members == {
        "code": "GIT_COMMIT_FAILED",
        "action": "create",
        "doc_id": "ven-a",
        "doc_type": "vendor",
        "file_count": 1,
    }
    project.lock.unlink()
    batch.flush()
    project.lock.touch()
    batch.commit([begun(journal, "ven-c")])
    assert [members["doc_id"] for _, members in lines] == ["ven-a", "ven-c"]


# The close


def test_the_close_flushes(project, journal, controller, begun):
    batch = controller(**NEVER)
    batch.commit([begun(journal, "ven-a"), begun(journal, "ven-b")])
    assert batch.close() is True
    assert project.subjects()[-1] == "maad:create ven-a [vendor] batch:2 — Flushed 2 writes"
    assert journal.pending() == []
    project.assert_sound()


def test_a_hanging_git_does_not_hold_up_the_close(project, journal, controller, begun, monkeypatch):
    monkeypatch.setattr(controller_module, "CLOSE_TIMEOUT_S", 0.7)
    refuse_commits(project, "exec sleep 1000")
    batch = controller(**NEVER)
    batch.commit([begun(journal, "ven-a")])
    assert batch.close() is False
    error = history(batch)["lastFlushError"]
    assert (error["code"], error["trigger"]) == ("HISTORY_FLUSH_TIMEOUT", "shutdown")
    assert [entry.status for entry in journal.pending()] == ["indexed"]
    assert not project.lock.exists()
    (project.root / ".git/hooks/pre-commit").unlink()
    later = controller(**NEVER)
    assert later.recover(journal.pending()) == ["history_recovery_completed:batch"]
    project.assert_sound()


def test_a_refusing_hook_at_the_close_is_no_timeout(project, journal, controller, begun):
    refuse_commits(project, "exit 1")
    batch = controller(**NEVER)
    batch.commit([begun(journal, "ven-a")])
    assert batch.close() is False
    assert history(batch)["lastFlushError"]["code"] == "GIT_COMMIT_FAILED"


# Recovery


def test_recovery_makes_one_commit_of_everything(project, journal, controller, begun):
    controller(**NEVER).commit([begun(journal, "ven-a"), begun(journal, "ven-b")])
    later = controller(**NEVER)
    assert later.recover(journal.pending()) == ["history_recovery_completed:batch"]
    assert project.subjects()[-1] == "maad:create ven-a [vendor] batch:2 — Flushed 2 writes"
    assert journal.pending() == []
    project.assert_sound()


def test_recovery_names_writes_that_later_ones_have_undone(project, journal, controller, begun):
    controller(**NEVER).commit(
        [
            begun(journal, "ven-a"),
            begun(journal, "ven-b"),
            begun(journal, "ven-a", None, action="delete"),
        ]
    )
    later = controller(**NEVER)
    # The create of ven-a has no file any more: what looks at the disk drops it.
    later.recover(journal.pending()[1:])
    writes = parse_body(project.git("log", "-1", "--format=%b")).writes
    assert [(write.action, write.doc_id) for write in writes] == [
        ("create", "ven-a"),
        ("create", "ven-b"),
        ("delete", "ven-a"),
    ]


def test_equal_updates_of_a_record_are_recovered_as_separate_writes(
    project, journal, controller, begun
):
    batch = controller(**NEVER)
    for text in ("1\n", "2\n", "3\n"):
        batch.commit([begun(journal, "ven-a", text, action="update")])
    later = controller(**NEVER)
    later.recover(journal.pending())
    assert project.subjects()[-1] == "maad:update ven-a [vendor] batch:3 — Flushed 3 writes"


def test_recovery_repeats_no_commit_that_was_made(project, journal, controller, begun):
    batch = controller(**NEVER)
    batch.commit([begun(journal, "ven-a")])
    batch._policy.flush("explicit", patient=False)
    head = project.head()
    batch._committer._store.close()  # the process ends here, the index never follows
    assert project.status() != ""
    later = controller(**NEVER)
    later.commit([begun(journal, "ven-b")])
    again = controller(**NEVER)
    assert again.recover(journal.pending()) == ["history_recovery_completed:batch"]
    assert project.git("rev-parse", "HEAD~1").strip() == head
    assert project.subjects()[-1] == "maad:create ven-b [vendor] — ven-b"
    assert journal.pending() == []
    project.assert_sound()


def test_recovery_that_fails_keeps_the_evidence(project, journal, controller, begun):
    controller(**NEVER).commit([begun(journal, "ven-a")])
    project.lock.touch()
    later = controller(**NEVER)
    assert later.recover(journal.pending()) == ["history_recovery_failed:GIT_COMMIT_FAILED"]
    assert later.pending_writes == 1
    project.lock.unlink()
    run_until(later, lambda: journal.pending() == [])
    project.assert_sound()


def test_a_batch_that_is_opened_in_audit_mode_becomes_single_commits(
    project, journal, controller, begun
):
    controller(**NEVER).commit([begun(journal, "ven-a"), begun(journal, "ven-b")])
    audit = controller("audit")
    assert audit.recover(journal.pending()) == ["history_recovery_completed:audit"]
    assert project.subjects()[-2:] == [
        "maad:create ven-a [vendor] — ven-a",
        "maad:create ven-b [vendor] — ven-b",
    ]
