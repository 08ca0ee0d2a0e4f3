"""Reindexes as background jobs: slices between the writes, joining, ending, going on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from maadd.protocol.errors import MaadError
from maadd.protocol.messages import CallProgress, Reply

FILES = 110
SLICE = 20


def ship(number: int, name: str = "Ship") -> str:
    return (
        f"---\ndoc_id: shp-{number:04d}\ndoc_type: ship\nschema: ship.v1\nname: {name}\n"
        "tonnage: 7\n---\n\nText.\n"
    )


@pytest.fixture
def fleet(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose reindex takes some slices."""
    monkeypatch.setattr("maadd_worker.index.full_pass._BATCH_FILES", SLICE)
    (project / "ships").mkdir()
    for number in range(FILES):
        (project / f"ships/shp-{number:04d}.md").write_text(ship(number))
    return project


class Replies:
    """What was delivered, by request."""

    def __init__(self) -> None:
        self.by_id: dict[str, Reply] = {}

    def __call__(self, reply: Reply) -> None:
        assert reply.request_id not in self.by_id
        self.by_id[reply.request_id] = reply

    def data(self, call: Any) -> Any:
        reply = self.by_id[call.request_id]
        assert reply.ok, reply.body
        return msgspec.json.decode(reply.body)

    def error(self, call: Any) -> Any:
        reply = self.by_id[call.request_id]
        assert not reply.ok
        return msgspec.json.decode(reply.body)[0]


@pytest.fixture
def replies() -> Replies:
    return Replies()


@pytest.fixture
def indexed(fleet: Path, open_project: Any) -> Any:
    opened = open_project("feed")
    opened.ok("maad_reindex")
    return opened


def begin(project: Any, replies: Replies, **args: Any) -> Any:
    call = project.request("maad_reindex", args)
    project.begin(replies, call)
    return call


def finish(project: Any) -> None:
    while project.engine.jobs.running:
        project.engine.settle(True)


def jobs(project: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = project.ok("maad_health")["jobs"]
    return found


@pytest.mark.parametrize("ending", ["done", "failed", "cancelled"])
def test_whoever_has_the_answer_finds_the_job_over(
    indexed: Any, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """No read after it is told that the index is still behind."""
    found: list[tuple[int, str]] = []

    def deliver(_reply: Reply) -> None:
        found.append((indexed.engine.jobs.running, indexed.engine.jobs.views[0].state))

    indexed.begin(deliver, indexed.request("maad_reindex", {"force": True}))
    indexed.engine.settle(True)
    if ending == "cancelled":
        indexed.ok("maad_reindex", cancelJob=indexed.engine.jobs.views[0].job_id)
    elif ending == "failed":

        def fail(*_: object) -> None:
            raise MaadError("BACKEND_ERROR", "the disk is gone")

        monkeypatch.setattr(indexed.engine.jobs._host, "job_outcome", fail)
    finish(indexed)
    assert found == [(0, ending)]


def test_a_call_that_does_not_wait_gets_the_id_of_a_job(indexed: Any, replies: Replies) -> None:
    call = begin(indexed, replies, wait=False, force=True)
    answer = replies.data(call)
    assert answer == {"jobId": answer["jobId"], "state": "running"}
    indexed.engine.settle(True)
    [job, earlier] = jobs(indexed)
    assert job["jobId"] == answer["jobId"]
    assert (job["kind"], job["state"], job["total"]) == ("reindex", "running", FILES)
    assert 0 < job["done"] < FILES
    finish(indexed)
    job = jobs(indexed)[0]
    assert (job["state"], job["done"], job["total"]) == ("done", FILES, FILES)
    assert job["result"]["indexed"] == FILES
    assert job["startedAt"] <= job["endedAt"]
    assert earlier["state"] == "done"


def test_writes_come_between_the_slices_and_nothing_of_them_is_lost(
    indexed: Any, replies: Replies
) -> None:
    reindex = begin(indexed, replies, force=True)
    steps = 0
    writes = [
        indexed.request(
            "maad_create", {"docType": "ship", "docId": "shp-new", "fields": {"name": "N"}}
        ),
        indexed.request("maad_update", {"docId": "shp-0001", "fields": {"name": "Early"}}),
        indexed.request("maad_update", {"docId": "shp-0100", "fields": {"name": "Late"}}),
        indexed.request("maad_delete", {"docId": "shp-0002", "mode": "hard"}),
        indexed.request("maad_delete", {"docId": "shp-0101", "mode": "soft"}),
    ]
    waiting = list(writes)
    while indexed.engine.jobs.running:
        indexed.engine.settle(False)
        steps += 1
        if waiting:
            call = waiting.pop(0)
            indexed.begin(replies, call)
            assert call.request_id in replies.by_id
            assert reindex.request_id not in replies.by_id
    assert steps > len(writes)
    for call in writes:
        replies.data(call)
    assert "pruned" not in replies.data(reindex)
    for doc_id, name in (("shp-new", "N"), ("shp-0001", "Early"), ("shp-0100", "Late")):
        assert indexed.ok("maad_get", docId=doc_id)["frontmatter"]["name"] == name
    assert indexed.ok("maad_summary")["totalDocuments"] == FILES + 1 - 2
    findings = indexed.ok("maad_verify", mode="integrity")["findings"]
    assert not any(findings.values())


def test_calls_that_ask_for_the_same_share_a_job_others_wait_their_turn(
    indexed: Any, replies: Replies
) -> None:
    first = begin(indexed, replies, force=True)
    indexed.engine.settle(True)
    same = begin(indexed, replies, force=True, wait=False)
    other = begin(indexed, replies, docType="voyage")
    assert replies.data(same)["state"] == "running"
    assert [job["state"] for job in jobs(indexed)] == ["running", "queued", "done"]
    joined = begin(indexed, replies, force=True)
    finish(indexed)
    assert replies.data(first) == replies.data(joined)
    assert replies.data(other)["scanned"] == 0


def test_no_more_than_a_few_jobs_wait(indexed: Any, replies: Replies) -> None:
    for number in range(8):
        begin(indexed, replies, path=f"ships/shp-{number:04d}.md")
    refused = begin(indexed, replies, path="ships/shp-0100.md")
    error = replies.error(refused)
    assert error["code"] == "OVERLOADED"
    assert error["details"] == {"reason": "worker_queue", "limit": 8, "retryAfterMs": 1000}
    finish(indexed)


def test_what_cannot_begin_is_refused_at_once(indexed: Any, replies: Replies) -> None:
    for args, code in (
        ({"docId": "shp-none"}, "FILE_NOT_FOUND"),
        ({"docType": "boat"}, "UNKNOWN_TYPE"),
        ({"path": "../x"}, "PATH_OUTSIDE_PROJECT"),
        ({"path": "_import"}, "INVALID_FIELDS"),
        ({"path": "_import/x.md"}, "INVALID_FIELDS"),
        ({"path": "elsewhere"}, "INVALID_FIELDS"),
        ({"path": "ships/_deleted_shp-a.md"}, "INVALID_FIELDS"),
        ({"docId": "shp-0001", "path": "ships"}, "INVALID_FIELDS"),
        ({"cancelJob": "job-none"}, "INVALID_FIELDS"),
    ):
        call = begin(indexed, replies, wait=False, **args)
        assert replies.error(call)["code"] == code
    assert indexed.engine.jobs.running == 0


def test_a_job_can_be_ended(indexed: Any, replies: Replies) -> None:
    waits = begin(indexed, replies, force=True)
    indexed.engine.settle(True)
    job_id = jobs(indexed)[0]["jobId"]
    cancel = begin(indexed, replies, cancelJob=job_id)
    assert replies.data(cancel) == {"jobId": job_id, "state": "cancelled"}
    assert replies.data(waits) == {"jobId": job_id, "state": "cancelled"}
    assert indexed.engine.jobs.running == 0
    assert jobs(indexed)[0]["state"] == "cancelled"
    again = begin(indexed, replies, cancelJob=job_id)
    assert replies.data(again)["state"] == "cancelled"
    assert indexed.ok("maad_summary")["totalDocuments"] == FILES


def test_a_job_ends_when_the_last_who_wants_it_leaves(indexed: Any, replies: Replies) -> None:
    first = begin(indexed, replies, force=True)
    second = begin(indexed, replies, force=True)
    leave = indexed.engine.jobs.leave
    for call in (first, second):
        assert indexed.engine.jobs.running == 1
        assert leave(call.request_id, expired=False) == jobs(indexed)[0]["jobId"]
        indexed.engine.settle(True)
    assert indexed.engine.jobs.running == 0
    assert replies.data(first)["state"] == replies.data(second)["state"] == "cancelled"
    assert leave("unknown", expired=False) is None


@pytest.mark.parametrize("wanted", ["by a call whose time is over", "by one that does not wait"])
def test_a_job_that_is_wanted_goes_on_without_anybody_waiting(
    indexed: Any, replies: Replies, wanted: str
) -> None:
    first = begin(indexed, replies, force=True)
    if wanted == "by one that does not wait":
        begin(indexed, replies, force=True, wait=False)
        second = begin(indexed, replies, force=True)
    else:
        second = begin(indexed, replies, force=True)
        indexed.engine.jobs.leave(second.request_id, expired=True)
    for call in (first, second):
        indexed.engine.jobs.leave(call.request_id, expired=False)
        indexed.engine.settle(True)
    assert indexed.engine.jobs.running == 1
    finish(indexed)
    assert jobs(indexed)[0]["state"] == "done"


@pytest.mark.parametrize("scope", [{}, {"docType": "ship"}])
def test_a_job_goes_on_after_a_restart_without_doing_things_twice(
    indexed: Any, replies: Replies, scope: dict[str, str]
) -> None:
    waits = begin(indexed, replies, force=True, **scope)
    for _ in range(3):
        indexed.engine.settle(True)
    done = jobs(indexed)[0]["done"]
    assert done
    indexed.engine.close()
    error = replies.error(waits)
    assert error["code"] == "SHUTTING_DOWN"
    job_id = error["details"]["jobId"]
    indexed.reopen()
    assert indexed.engine.jobs.running == 0
    indexed.engine.resume_jobs()
    assert indexed.engine.jobs.running == 1
    finish(indexed)
    job = jobs(indexed)[0]
    assert (job["jobId"], job["state"]) == (job_id, "done")
    assert job["result"]["indexed"] == FILES - done
    assert job["result"]["skipped"] == done
    indexed.reopen()
    indexed.engine.resume_jobs()
    assert indexed.engine.jobs.running == 0
    assert jobs(indexed)[0] == job


def test_how_a_job_ended_is_known_after_a_restart(indexed: Any, replies: Replies) -> None:
    ended = begin(indexed, replies, force=True, wait=False)
    job_id = replies.data(ended)["jobId"]
    finish(indexed)
    begin(indexed, replies, force=True)
    indexed.engine.settle(True)
    cancelled = jobs(indexed)[0]["jobId"]
    begin(indexed, replies, cancelJob=cancelled)
    before = jobs(indexed)
    assert [job["state"] for job in before] == ["cancelled", "done", "done"]
    for _ in range(2):
        indexed.reopen()
        indexed.engine.resume_jobs()
        assert jobs(indexed) == before
    again = begin(indexed, replies, cancelJob=job_id)
    assert replies.data(again) == {"jobId": job_id, "state": "done"}


def test_a_job_that_a_read_only_start_cannot_go_on_with_is_interrupted(
    indexed: Any, open_project: Any, replies: Replies
) -> None:
    answer = replies.data(begin(indexed, replies, force=True, wait=False))
    indexed.engine.settle(True)
    indexed.close()
    served = open_project("read")
    served.engine.resume_jobs()
    assert served.engine.jobs.running == 0
    job = jobs(served)[0]
    assert (job["jobId"], job["state"]) == (answer["jobId"], "interrupted")
    served.close()
    indexed = open_project("feed")
    indexed.engine.resume_jobs()
    finish(indexed)
    assert (jobs(indexed)[0]["jobId"], jobs(indexed)[0]["state"]) == (answer["jobId"], "done")


def test_a_job_that_kills_its_process_again_and_again_is_given_up(indexed: Any) -> None:
    note = {
        "job_id": "job-deadly",
        "args": {"force": True},
        "started_at": "2031-01-01T00:00:00.000Z",
        "made_since": "2031-01-01T00:00:00.000Z",
        "deaths": 2,
    }
    indexed.engine.jobs.resume(msgspec.json.encode([note]).decode(), None)
    assert indexed.engine.jobs.running == 0
    job = jobs(indexed)[0]
    assert (job["jobId"], job["state"]) == ("job-deadly", "failed")
    assert job["errors"][0]["code"] == "WORKER_LOST"
    indexed.reopen()
    indexed.engine.resume_jobs()
    assert jobs(indexed)[0] == job


def test_edited_schemas_make_the_run_start_over_under_them(indexed: Any, replies: Replies) -> None:
    reindex = begin(indexed, replies, force=True)
    for _ in range(3):
        indexed.engine.settle(True)
    schema = indexed.root / "_schema/ship.v1.yaml"
    schema.write_text(
        schema.read_text().replace(
            "  tonnage: {type: number, index: true}\n", "  tonnage: {type: number, index: false}\n"
        )
    )
    reload = indexed.request("maad_reload", {})
    indexed.begin(replies, reload)
    assert replies.data(reload)["indexStaleTypes"] == ["ship"]
    finish(indexed)
    assert replies.data(reindex)["scanned"] == FILES
    assert indexed.ok("maad_reload")["indexStaleTypes"] == []


def test_the_result_that_is_kept_is_short_and_names_no_place_of_the_machine(
    fleet: Path, open_project: Any
) -> None:
    for number in range(12):
        (fleet / f"ships/bad-{number}.md").write_text("---\ndoc_id: [\n---\n")
    project = open_project("feed")
    project.reply("maad_reindex", wait=False)
    result = jobs(project)[0]["result"]
    assert len(result["errors"]) == 5
    assert result["errorsTotal"] == 12
    assert str(fleet) not in msgspec.json.encode(jobs(project)).decode()
    for number in range(12):
        project.ok("maad_reindex", path=f"ships/shp-{number:04d}.md")
    assert len(jobs(project)) == 10


def test_an_empty_index_is_filled_by_a_job_while_other_calls_are_refused(
    fleet: Path, open_project: Any, replies: Replies
) -> None:
    open_project("feed").close()
    project = open_project("feed")
    assert project.engine.index_empty == FILES
    call = begin(project, replies, wait=False)
    replies.data(call)
    project.engine.settle(True)
    assert project.error("maad_summary")["code"] == "INDEX_EMPTY"
    write = project.request("maad_create", {"docType": "ship", "fields": {"name": "N"}})
    project.begin(replies, write)
    assert replies.error(write)["code"] == "INDEX_EMPTY"
    finish(project)
    assert project.ok("maad_summary")["totalDocuments"] == FILES


def test_who_waits_hears_how_far_the_job_is(indexed: Any, replies: Replies) -> None:
    heard: list[CallProgress] = []
    indexed.engine.connect_progress(heard.append)
    call = msgspec.structs.replace(
        indexed.request("maad_reindex", {"force": True}), wants_progress=True
    )
    indexed.begin(replies, call)
    finish(indexed)
    assert [one.done for one in heard] == sorted({one.done for one in heard})
    assert {one.total for one in heard} == {FILES}
    assert {one.request_id for one in heard} == {call.request_id}
