import os
import stat
import threading

import pytest

from maadd.protocol.errors import MaadError
from maadd.protocol.messages import HistorySettings, WorkerSettings
from maadd_worker.history import CommitIdentity, CommitRequest, HistoryController
from maadd_worker.history import controller as controller_module
from maadd_worker.history.retry import LOCK_POLL_S


@pytest.fixture
def audit(project, journal):
    controller = project.controller("audit", journal)
    yield controller
    controller.close()


def run_out(controller: HistoryController) -> None:
    """Let the controller finish its group, as the writer thread does."""
    while (wait := controller.settle(idle=False)) is not None:
        threading.Event().wait(wait)


# Modes


@pytest.mark.parametrize("mode", ["audit", "batch", "snapshot"])
def test_git_modes_need_a_repository_at_the_root_itself(project, mode):
    inner = project.root / "inner"
    inner.mkdir()
    with pytest.raises(MaadError) as failure:
        HistoryController.open(
            str(inner), HistorySettings(mode, mode, "project"), WorkerSettings(), None
        )
    assert failure.value.code == "GIT_NOT_INITIALIZED"
    assert failure.value.details == {"historyMode": mode, "modeSource": "project"}


def test_audit_makes_one_commit_per_write_and_leaves_no_journal_entry(
    project, journal, audit, begun
):
    outcomes = []
    for text, action in (("1\n", "create"), ("2\n", "update"), (None, "delete")):
        outcomes += audit.commit([begun(journal, "ven-a", text, action=action)])
        run_out(audit)
        assert journal.pending() == []
    assert [outcome.outcome for outcome in outcomes] == ["committed"] * 3
    assert outcomes[2].sha == project.head()
    assert project.subjects()[-3:] == [
        "maad:create ven-a [vendor] — ven-a",
        "maad:update ven-a [vendor] — ven-a",
        "maad:delete ven-a [vendor] — ven-a",
    ]
    project.assert_sound()


def test_the_same_bytes_are_no_commit_and_no_failure(project, journal, audit, begun):
    audit.commit([begun(journal, "ven-a")])
    [outcome] = audit.commit([begun(journal, "ven-a", action="update")])
    assert (outcome.outcome, outcome.sha) == ("none", None)
    run_out(audit)
    assert journal.pending() == []


def test_ten_writes_of_a_group_are_ten_commits_in_order(project, journal, audit, begun):
    outcomes = audit.commit([begun(journal, f"ven-{number}") for number in range(10)])
    run_out(audit)
    shas = [outcome.sha for outcome in outcomes]
    assert project.git("rev-list", "--reverse", "HEAD~10..HEAD").split() == shas
    project.assert_sound()


def test_feed_never_touches_git(project, journal, begun):
    before = {path: path.stat().st_mtime_ns for path in (project.root / ".git").rglob("*")}
    feed = project.controller("feed", journal)
    [outcome] = feed.commit([begun(journal, "ven-a")])
    assert outcome.outcome == "none"
    assert feed.settle(idle=False) is None
    assert journal.pending() == []
    assert feed.flush().status == "noop"
    assert feed.close() is True
    after = {path: path.stat().st_mtime_ns for path in (project.root / ".git").rglob("*")}
    assert after == before


def test_feed_works_without_a_repository(bare_project):
    journal = bare_project.journal()
    feed = bare_project.controller("feed", journal)
    request = CommitRequest("create", "a", "v", "", "A", ("a.md",))
    assert feed.commit([request])[0].outcome == "none"
    health = feed.health()
    assert (health["gitAvailable"], health["gitClean"], health["repoSizeBytes"]) == (
        False,
        None,
        None,
    )
    journal.close()


def test_read_refuses_and_changes_nothing(project):
    before = {path: path.stat().st_mtime_ns for path in project.root.rglob("*")}
    read = project.controller("read")
    [outcome] = read.commit([CommitRequest("create", "a", "v", "", "A", ("a.md",))])
    assert outcome.outcome == "failed"
    assert outcome.failure is not None
    assert outcome.failure.code == "PROJECT_READ_ONLY"
    assert read.settle(idle=True) is None
    assert read.recover([]) == []
    assert read.flush().status == "noop"
    read.health()
    read.close()
    assert {path: path.stat().st_mtime_ns for path in project.root.rglob("*")} == before


def test_identity_settings(project, journal, begun):
    controller = project.controller(
        "audit",
        journal,
        commit_author_name="Archive <x>",
        commit_author_email="",
        commit_author_from_agent=True,
        commit_identity=False,
    )
    project.write("a.md")
    identity = CommitIdentity("writer", "tok", "agent 7", None)
    controller.commit([CommitRequest("create", "a", "v", "", "A", ("a.md",), identity)])
    controller.close()
    assert project.git("log", "-1", "--format=%an|%cn|%ce|%b") == (
        "agent 7|Archive x|engine@maadb.local|\n"
    )


# Locks


def test_a_foreign_lock_delays_the_commit_but_not_the_write(project, journal, audit, begun):
    project.lock.write_text("theirs")
    os.utime(project.lock, (0, 0))
    [outcome] = audit.commit([begun(journal, "ven-a")])
    assert outcome.outcome == "failed"
    failure = outcome.failure
    assert failure is not None
    assert (failure.code, failure.action) == ("GIT_COMMIT_FAILED", "create")
    assert failure.details is not None
    assert failure.details["reason"] == "index-lock"
    assert failure.details["path"] == ".git/index.lock"
    assert audit.settle(idle=False) == LOCK_POLL_S
    health = audit.health()
    assert health["commitFailuresTotal"] == 1
    assert health["lastCommitFailureDocId"] == "ven-a"
    assert health["history"]["pendingWrites"] == 1
    assert health["history"]["lastFlushError"]["trigger"] == "write"
    assert len(journal.pending()) == 1
    assert project.lock.read_text() == "theirs"

    project.lock.unlink()
    run_out(audit)
    assert project.subjects()[-1] == "maad:create ven-a [vendor] — ven-a"
    assert journal.pending() == []
    assert audit.health()["history"]["pendingWrites"] == 0
    assert audit.health()["history"]["lastFlushError"] is None
    project.assert_sound()


def test_what_waited_for_the_lock_goes_first_with_its_own_content(project, journal, audit, begun):
    project.lock.touch()
    audit.commit([begun(journal, "ven-a", "1\n")])
    audit.commit([begun(journal, "ven-a", "2\n", action="update"), begun(journal, "ven-b")])
    project.lock.unlink()
    [outcome] = audit.commit([begun(journal, "ven-a", "3\n", action="update")])
    run_out(audit)
    assert outcome.sha == project.head()
    assert project.subjects()[-4:] == [
        "maad:create ven-a [vendor] — ven-a",
        "maad:update ven-a [vendor] — ven-a",
        "maad:create ven-b [vendor] — ven-b",
        "maad:update ven-a [vendor] — ven-a",
    ]
    versions = [project.git("show", f"HEAD~{back}:vendors/ven-a.md") for back in (3, 2, 0)]
    assert versions == ["1\n", "2\n", "3\n"]
    assert journal.pending() == []
    project.assert_sound()


def test_a_hand_edit_made_while_waiting_is_neither_lost_nor_swept_in(
    project, journal, audit, begun
):
    project.lock.touch()
    audit.commit([begun(journal, "ven-a", "published\n")])
    project.write("vendors/ven-a.md", "by hand\n")
    project.lock.unlink()
    run_out(audit)
    assert project.committed("vendors/ven-a.md") == "published\n"
    assert project.status() == " M vendors/ven-a.md\n"


def test_flush_retries_what_is_pending(project, journal, audit, begun):
    project.lock.touch()
    audit.commit([begun(journal, "ven-a"), begun(journal, "ven-b")])
    with pytest.raises(MaadError) as failure:
        audit.flush()
    assert failure.value.code == "GIT_ERROR"
    assert failure.value.details is not None
    assert failure.value.details | {"mtime": 0} == {
        "historyCode": "GIT_COMMIT_FAILED",
        "effectiveMode": "audit",
        "trigger": "explicit",
        "pendingWrites": 2,
        "reason": "index-lock",
        "path": ".git/index.lock",
        "mtime": 0,
        "holder": None,
    }
    project.lock.unlink()
    report = audit.flush()
    assert (report.status, report.flushed, report.pending_writes) == ("committed", True, 0)
    assert report.sha == project.head()
    assert project.subjects()[-2:] == [
        "maad:create ven-a [vendor] — ven-a",
        "maad:create ven-b [vendor] — ven-b",
    ]
    assert journal.pending() == []
    again = audit.flush()
    assert (again.status, again.flushed, again.sha) == ("noop", False, None)
    project.assert_sound()


def test_closing_commits_what_can_be_committed(project, journal, begun):
    controller = project.controller("audit", journal)
    project.lock.touch()
    controller.commit([begun(journal, "ven-a")])
    project.lock.unlink()
    assert controller.close() is True
    assert journal.pending() == []
    project.assert_sound()


def test_closing_with_a_held_lock_keeps_the_evidence(project, journal, begun):
    controller = project.controller("audit", journal)
    project.lock.touch()
    controller.commit([begun(journal, "ven-a")])
    assert controller.close() is False
    entries = journal.pending()
    assert len(entries) == 1
    later = project.controller("audit", journal)
    assert later.recover(entries) == ["history_recovery_failed:GIT_COMMIT_FAILED"]
    assert project.lock.exists()
    project.lock.unlink()
    run_out(later)
    assert journal.pending() == []
    later.close()
    project.assert_sound()


def test_a_hanging_git_does_not_hold_up_the_close(project, journal, begun, monkeypatch):
    monkeypatch.setattr(controller_module, "CLOSE_TIMEOUT_S", 1.0)
    project.git("config", "maad.hooks", "true")
    hook = project.root / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    controller = project.controller("audit", journal)
    controller.commit([begun(journal, "ven-a")])
    hook.write_text("#!/bin/sh\nexec sleep 1000\n")
    assert controller.close() is False
    assert controller.health()["history"]["lastFlushError"]["code"] == "HISTORY_FLUSH_TIMEOUT"
    assert len(journal.pending()) == 1
    assert not project.lock.exists()


def test_a_refusing_hook_does_not_stop_later_writes(project, journal, audit, begun):
    project.git("config", "maad.hooks", "true")
    hook = project.root / ".git/hooks/commit-msg"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text('#!/bin/sh\n! grep -q "maad:create" "$1"\n')
    hook.chmod(hook.stat().st_mode | stat.S_IXUSR)
    project.write("b.md")
    first, second = audit.commit(
        [begun(journal, "ven-a"), CommitRequest("update", "b", "v", "", "B", ("b.md",))]
    )
    assert first.failure is not None
    assert first.failure.details == {"reason": "hook"}
    assert second.outcome == "committed"
    assert audit.health()["history"]["pendingWrites"] == 1
    health = audit.health()["history"]
    assert health["gitPath"] == "program"
    assert [advisory["code"] for advisory in audit.health()["advisories"]] == ["GIT_PROGRAM_USED"]
    hook.unlink()
    assert audit.flush().status == "committed"
    project.assert_sound()


def test_a_repository_that_goes_away_and_comes_back(project, journal, audit, begun):
    (project.root / ".git").rename(project.root / "away")
    [outcome] = audit.commit([begun(journal, "ven-a")])
    assert outcome.failure is not None
    assert outcome.failure.code == "GIT_NOT_INITIALIZED"
    with pytest.raises(MaadError) as failure:
        audit.flush()
    assert failure.value.code == "GIT_NOT_INITIALIZED"
    (project.root / "away").rename(project.root / ".git")
    assert audit.flush().status == "committed"
    project.assert_sound()


# Recovery


def test_recovery_makes_one_commit_for_each_original_write(project, journal, begun):
    for name in ("ven-a", "ven-b"):
        begun(journal, name)
    controller = project.controller("audit", journal)
    assert controller.recover(journal.pending()) == ["history_recovery_completed:audit"]
    assert project.subjects()[-2:] == [
        "maad:create ven-a [vendor] — ven-a",
        "maad:create ven-b [vendor] — ven-b",
    ]
    assert journal.pending() == []
    assert controller.recover([]) == []
    controller.close()
    project.assert_sound()


def test_recovery_repeats_no_commit_that_is_in_head(project, journal, begun):
    controller = project.controller("audit", journal)
    request = begun(journal, "ven-a")
    controller.commit([request])
    head = project.head()
    controller._committer._store.close()  # the process ends here, the index never follows
    (project.root / ".git/index.lock").unlink(missing_ok=True)
    assert project.status() != ""
    later = project.controller("audit", journal)
    assert later.recover(journal.pending()) == ["history_recovery_completed:audit"]
    later.close()
    assert project.head() == head
    assert journal.pending() == []
    project.assert_sound()


def test_recovery_of_a_bulk_call_and_of_entries_without_a_request(project, journal, begun):
    from maadd_worker.disk.journal import JournalEntry
    from maadd_worker.history import encode_request

    bulk = CommitRequest(
        "create",
        "a",
        "v",
        "bulk:2",
        "2 records",
        ("v/a.md", "v/b.md"),
    )
    for name in "abcd":
        project.write(f"v/{name}.md")
        stored = encode_request(bulk) if name in "ab" else None
        journal.begin(
            [
                JournalEntry(
                    name,
                    "create",
                    name,
                    "v",
                    f"v/{name}.md",
                    None,
                    None,
                    None,
                    None,
                    "indexed",
                    "",
                    stored,
                )
            ]
        )
    controller = project.controller("audit", journal)
    controller.recover(journal.pending())
    controller.close()
    assert project.subjects()[-2:] == [
        "maad:create a [v] bulk:2 — 2 records",
        "maad:create c [unknown] recovery:2 — Recovered 2 indexed writes",
    ]
    assert journal.pending() == []
    project.assert_sound()


def test_recovery_in_feed_drops_the_entries(project, journal, begun):
    begun(journal, "ven-a")
    head = project.head()
    feed = project.controller("feed", journal)
    assert feed.recover(journal.pending()) == ["history_recovery_completed:feed"]
    assert journal.pending() == []
    assert project.head() == head


# Health


def test_the_health_block(project, journal):
    controller = HistoryController.open(
        str(project.root), HistorySettings("audit", None, "inferred"), WorkerSettings(), journal
    )
    health = controller.health()
    assert health["gitAvailable"] is True
    assert health["gitClean"] is True
    assert health["repoSizeBytes"] > 1000
    assert health["commitFailuresTotal"] == 0
    assert health["lastCommitFailureAt"] is None
    history = health["history"]
    assert [advisory["code"] for advisory in history.pop("advisories")] == ["HISTORY_MODE_INFERRED"]
    assert history == {
        "effectiveMode": "audit",
        "configuredMode": None,
        "modeSource": "inferred",
        "pendingWrites": 0,
        "oldestPendingAt": None,
        "nextFlushAt": None,
        "lastSuccessfulFlush": None,
        "lastFlushError": None,
        "flushesTotal": 0,
        "flushFailuresTotal": 0,
        "gitPath": "libgit2",
    }
    controller.close()


def test_clean_is_remembered_for_a_while_and_looked_up_after_a_write(
    project, journal, audit, begun
):
    assert audit.health()["gitClean"] is True
    project.write("new.md")
    assert audit.health()["gitClean"] is True
    audit.commit([begun(journal, "ven-a")])
    assert audit.health()["gitClean"] is True
    run_out(audit)
    assert audit.health()["gitClean"] is False
    assert audit.health()["history"]["lastSuccessfulFlush"] is not None


def test_a_dirty_worktree_without_journal_evidence_is_told_and_left_alone(project, audit):
    project.write("vendors/by-hand.md")
    project.write("elsewhere/x.md")
    head = project.head()
    audit.inspect_worktree(["vendors"])
    [advisory] = audit.health()["history"]["advisories"]
    assert (advisory["code"], advisory["files"]) == ("HISTORY_WORKTREE_DIRTY", 1)
    assert project.head() == head
    project.git("add", "vendors")
    project.git("commit", "-q", "-m", "mine")
    audit._inspection.forget_state()
    assert audit.health()["history"]["advisories"] == []


def test_a_path_that_git_does_not_take_is_told(project, journal, audit):
    project.write("_backend/x.md")
    [outcome] = audit.commit([CommitRequest("create", "x", "v", "", "X", ("_backend/x.md",))])
    assert outcome.outcome == "none"
    assert outcome.skipped == (("_backend/x.md", "it is ignored by .gitignore"),)
    [advisory] = audit.health()["history"]["advisories"]
    assert advisory["code"] == "HISTORY_PATH_SKIPPED"
    assert advisory["paths"] == ["_backend/x.md"]


def test_housekeeping_starts_after_a_quiet_minute(project, journal, audit, begun, monkeypatch):
    audit.commit([begun(journal, "ven-a")])
    run_out(audit)
    assert audit.settle(idle=False) is None
    wait = audit.settle(idle=True)
    assert wait is not None
    assert 0 < wait <= controller_module.CHECKPOINT_IDLE_S
    monkeypatch.setattr(controller_module, "CHECKPOINT_IDLE_S", 0.0)
    wait = audit.settle(idle=True)
    assert wait is not None
    assert 50 < wait <= controller_module.MAINTENANCE_IDLE_S
    monkeypatch.setattr(controller_module, "MAINTENANCE_IDLE_S", 0.0)
    while audit.settle(idle=True) == controller_module.MAINTENANCE_POLL_S:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    assert (project.root / ".git/objects/info/commit-graph").exists()
    assert audit.settle(idle=True) is None
    project.assert_sound()
