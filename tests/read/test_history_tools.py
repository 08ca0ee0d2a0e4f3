"""maad_history and maad_audit over real repositories (spec 02 §7)."""

from __future__ import annotations

import os

import pytest

from maadd.protocol.errors import MaadError
from maadd.protocol.messages import HistorySettings


def told(answer):
    return [f"{one['action']} {one['docId']} {one['detail']}" for one in answer.data]


@pytest.fixture
def yard(repository):
    """One order that was created, edited twice by the engine and once by hand."""
    project = repository
    path = project.record("work_order", "wo-1", title="A", status="open")
    project.commit("maad:create wo-1 [work_order] — A", path, date="2031-02-01T08:00:00+00:00")
    project.record("work_order", "wo-1", title="A", status="done")
    project.commit(
        "maad:update wo-1 [work_order] fields:status — status: open -> done\n\n"
        "role: writer\ntoken: tok-1\nagent: agt-2\n",
        path,
        author="Mara | Lind <m@example.org>",
        date="2031-02-02T23:30:00+00:00",
    )
    project.record("work_order", "wo-1", "by hand", title="A", status="done")
    project.commit("chore: tidy", path, date="2031-02-03T08:00:00+00:00")
    project.record("work_order", "wo-1", "appended", title="A", status="done")
    project.commit(
        "maad:update wo-1 [work_order] body:append — Body updated",
        path,
        date="2031-02-04T08:00:00+00:00",
    )
    project.reindex()
    return project


def test_history_lists_the_engines_commits_newest_first(yard):
    answer = yard.call("history", docId="wo-1")

    assert told(answer) == [
        "update wo-1 body:append", "update wo-1 fields:status", "create wo-1 ",
    ]  # fmt: skip
    assert answer.data[1] | {"sha": ""} == {
        "action": "update",
        "docId": "wo-1",
        "docType": "work_order",
        "detail": "fields:status",
        "summary": "status: open -> done",
        "sha": "",
        "author": "Mara | Lind",
        "timestamp": "2031-02-02T23:30:00+00:00",
        "identity": {"role": "writer", "tokenId": "tok-1", "agentId": "agt-2"},
    }
    assert answer.codes == []


def test_the_limit_counts_the_engines_commits_and_says_what_it_cut(yard):
    answer = yard.call("history", docId="wo-1", limit=2)
    assert len(answer.data) == 2
    assert answer.codes == ["RESULT_TRUNCATED"]


@pytest.mark.parametrize(
    ("since", "number"),
    [("2031-02-02", 2), ("2031-02-04T08:00:00Z", 1), ("2031-02-05", 0), ("2030-01-01", 3)],
)
def test_since_begins_at_midnight_of_a_bare_day(yard, since, number):
    assert len(yard.call("history", docId="wo-1", since=since).data) == number


def test_a_day_as_until_includes_the_whole_day(yard):
    data = yard.call("audit", since="2031-02-01", until="2031-02-02").data
    assert [(one["docId"], one["actions"]) for one in data] == [("wo-1", 2)]
    assert data[0]["lastSummary"] == "status: open -> done"


def test_a_moved_file_keeps_its_history(yard):
    yard.git("mv", "orders/wo-1.md", "orders/moved.md")
    yard.commit("tidy folders")
    yard.reindex()

    assert len(yard.call("history", docId="wo-1").data) == 3


def test_type_names_with_a_hyphen_are_read(repository):
    path = repository.record("note", "nte-1")
    repository.commit("maad:create nte-1 [case-note] — n", path)
    repository.reindex()

    assert repository.call("history", docId="nte-1").data[0]["docType"] == "case-note"
    assert repository.call("audit", docType="case-note").data[0]["docId"] == "nte-1"


@pytest.fixture
def bulk(repository):
    """A bulk call of ours with trailers, and one of the reference without."""
    project = repository
    for number in range(3):
        project.record("vendor", f"ven-{number}", name="N")
    project.commit(
        "maad:create ven-0 [vendor] batch:3 — 3 writes\n\nrole: writer\ntoken: tok-a\n\n"
        "Maad-Write: create ven-0 [vendor] role=writer token=tok-a\n"
        "Maad-Write: create ven-1 [vendor] role=admin token=tok-b\n"
        "Maad-Write: create ven-2 [vendor]\n",
        date="2031-02-01T08:00:00+00:00",
    )
    for number in range(3):
        project.record("vendor", f"ven-{number}", name="M")
    project.commit(
        "maad:update ven-1 [vendor] bulk:3 — 3 updated\n\nrole: writer\nagent: agt-1\n",
        date="2031-02-02T08:00:00+00:00",
    )
    project.reindex()
    return project


def test_a_shared_commit_counts_for_every_record_it_wrote(bulk):
    update, create = bulk.call("history", docId="ven-2").data

    assert (update["docId"], update["action"], update["bulk"], update["bulkSize"]) == (
        "ven-2", "update", True, 3,
    )  # fmt: skip
    assert update["identity"] == {"role": "writer", "agentId": "agt-1"}
    assert (create["bulk"], create["bulkSize"], create["detail"]) == (True, 3, "")
    assert "identity" not in create


def test_each_write_of_a_batch_has_its_own_author(bulk):
    create = bulk.call("history", docId="ven-1").data[1]
    assert create["identity"] == {"role": "admin", "tokenId": "tok-b"}


def test_the_audit_expands_shared_commits(bulk):
    data = bulk.call("audit").data

    assert sorted((one["docId"], one["docType"], one["actions"]) for one in data) == [
        ("ven-0", "vendor", 2), ("ven-1", "vendor", 2), ("ven-2", "vendor", 2),
    ]  # fmt: skip
    assert {one["lastAction"] for one in data} == {"update"}


def test_a_batch_does_not_count_for_a_record_it_does_not_name(bulk):
    bulk.record("vendor", "ven-9", name="by hand")
    bulk.commit(
        "maad:update ven-0 [vendor] batch:2 — 2 writes\n\n"
        "Maad-Write: update ven-0 [vendor] fields:name\n"
        "Maad-Write: update ven-1 [vendor] fields:name\n"
    )
    bulk.reindex()

    assert bulk.call("history", docId="ven-9").data == []


def test_the_audit_lists_the_record_touched_last_first(yard):
    yard.record("vendor", "ven-1", name="N")
    yard.commit("maad:create ven-1 [vendor] — N", "vendors", date="2031-02-05T08:00:00+00:00")

    answer = yard.call("audit")

    assert answer.data[0] == {
        "docId": "ven-1",
        "docType": "vendor",
        "actions": 1,
        "lastAction": "create",
        "lastSummary": "N",
        "lastAuthor": "Ada",
        "lastTimestamp": "2031-02-05T08:00:00+00:00",
    }
    assert answer.data[1]["actions"] == 3
    assert [one["docId"] for one in yard.call("audit", docType="vendor").data] == ["ven-1"]
    assert [one["docId"] for one in yard.call("audit", offset=1).data] == ["wo-1"]
    cut = yard.call("audit", limit=1)
    assert [one["docId"] for one in cut.data] == ["ven-1"]
    assert cut.codes == ["RESULT_TRUNCATED"]


def test_a_soft_deleted_record_keeps_its_history(yard):
    yard.soft_delete("wo-1")
    yard.commit("maad:delete wo-1 [work_order] soft — soft delete of wo-1")

    assert told(yard.call("history", docId="wo-1"))[0] == "delete wo-1 soft"
    assert len(yard.call("history", docId="wo-1").data) == 4


def test_a_purged_record_keeps_its_history(yard):
    yard.soft_delete("wo-1")
    yard.commit("maad:delete wo-1 [work_order] soft — soft delete of wo-1")
    (yard.path / "orders/_deleted_wo-1.md").unlink()
    yard.commit("maad:delete wo-9 [work_order] purge:2 — 2 older than a month")
    with yard.index.writer().transaction():
        yard.index.writer().remove_document("wo-1")

    answer = yard.call("history", docId="wo-1")

    assert told(answer)[0] == "delete wo-1 purge:2"
    assert len(answer.data) == 5


def test_a_record_known_only_by_its_file_name_in_a_shared_commit_is_found(bulk):
    bulk.hard_delete("ven-2")
    bulk.commit("maad:delete ven-0 [vendor] bulk:hard:2 — 2 deleted")

    assert told(bulk.call("history", docId="ven-2"))[0] == "delete ven-2 bulk:hard:2"


@pytest.mark.parametrize("doc_id", ["wo-2", "wo", "-x", "../wo-1", "wo-1 [", ".*", ""])
def test_an_id_nobody_knows_is_not_found(yard, doc_id):
    with pytest.raises(MaadError, match="FILE_NOT_FOUND"):
        yard.call("history", docId=doc_id)


def test_a_record_without_commits_of_ours_has_an_empty_history(repository):
    path = repository.record("vendor", "ven-1", name="N")
    repository.commit("import", path)
    repository.reindex()

    assert repository.call("history", docId="ven-1").data == []


def test_a_repository_without_commits_has_no_history(project):
    project.git("init", "-q")
    project.record("vendor", "ven-1", name="N")
    project.reindex()

    assert project.call("history", docId="ven-1").data == []
    assert project.call("audit").data == []


@pytest.mark.parametrize("mode", ["feed", "read"])
def test_without_a_repository_these_modes_have_no_history(project, mode):
    project.history = HistorySettings(mode, None, "test")

    for tool, arguments in (("history", {"docId": "x"}), ("audit", {})):
        with pytest.raises(MaadError) as refusal:
            project.call(tool, **arguments)
        assert refusal.value.code == "HISTORY_DISABLED"
        assert refusal.value.details == {"historyMode": mode}


def test_a_repository_serves_its_history_in_every_mode(yard):
    yard.history = HistorySettings("feed", None, "test")
    assert len(yard.call("history", docId="wo-1").data) == 3


@pytest.mark.parametrize("tool", ["history", "audit"])
def test_a_missing_repository_is_an_error_where_the_mode_needs_one(project, tool):
    with pytest.raises(MaadError, match="GIT_NOT_INITIALIZED"):
        project.call(tool, **({"docId": "x"} if tool == "history" else {}))


@pytest.mark.parametrize("tool", ["history", "audit"])
def test_a_failure_of_git_is_an_error_not_an_empty_list(yard, tool):
    (yard.path / ".git/HEAD").write_text("broken")

    with pytest.raises(MaadError, match="GIT_ERROR"):
        yard.call(tool, **({"docId": "wo-1"} if tool == "history" else {}))


def test_a_parent_repository_does_not_count(project):
    (project.path.parent / ".git").mkdir()
    with pytest.raises(MaadError, match="GIT_NOT_INITIALIZED"):
        project.call("audit")


def test_pending_writes_are_announced(yard):
    yard.pending_writes = 2
    assert yard.call("history", docId="wo-1").codes == ["HISTORY_PENDING"]
    assert yard.call("audit").codes == ["HISTORY_PENDING"]


def test_git_is_ended_with_the_call(yard, monkeypatch):
    slow = yard.path / "slow"
    slow.mkdir()
    (slow / "git").write_text("#!/bin/sh\nexec sleep 30\n")
    (slow / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow}:/usr/bin:/bin")

    with pytest.raises(MaadError, match="REQUEST_TIMEOUT"), yard.reader.deadline(0.1):
        yard.call("audit")


def test_today_begins_at_midnight_and_lasts_to_the_end_of_the_day(repository):
    path = repository.record("note", "nte-1")
    repository.commit("maad:create nte-1 [note] — n", path)
    repository.reindex()

    assert len(repository.call("history", docId="nte-1", since="today").data) == 1
    assert len(repository.call("audit", since="Today", until="today").data) == 1
    assert repository.call("audit", until="yesterday").data == []
    assert len(repository.call("audit", since="2 weeks ago").data) == 1


def test_reads_of_the_history_leave_no_child_and_no_descriptor(yard):
    """Known trap 25."""

    def kept():
        with open(f"/proc/self/task/{os.getpid()}/children") as children:
            return len(os.listdir("/proc/self/fd")), children.read()

    yard.call("history", docId="wo-1")
    before = kept()
    for _ in range(5):
        yard.call("history", docId="wo-1", limit=1)
        yard.call("audit", docType="work_order")
    assert kept() == before
