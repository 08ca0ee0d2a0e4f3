"""Idempotency keys (spec 03 §8)."""

from __future__ import annotations

from typing import Any

import msgspec

from maadd.protocol.errors import MaadError
from maadd.protocol.messages import Identity
from maadd_worker.write.idempotency import AnswerStore, KeyScope, StoredAnswer, key_scope

ARGS = {"docType": "ship", "fields": {"name": "One"}, "idempotencyKey": "k1"}


def test_a_repeated_call_replays_the_first_answer(open_project: Any) -> None:
    project = open_project()
    first = project.reply("maad_create", **ARGS)
    assert [event.doc_id for event in project.engine.poll_events()] == ["shp-one"]
    again = project.reply("maad_create", **ARGS)
    assert project.engine.poll_events() == []
    assert again.ok
    assert msgspec.json.decode(again.body) == msgspec.json.decode(first.body)
    assert again.meta["replayed"] is True
    assert again.meta["original_request_id"] == first.request_id
    assert again.meta["write_durable"] is True
    assert "replayed" not in first.meta
    assert again.audit is None
    assert project.ok("maad_summary")["totalDocuments"] == 1


def test_the_answer_survives_a_restart(open_project: Any) -> None:
    project = open_project()
    first = project.reply("maad_create", **ARGS)
    project.reopen()
    again = project.reply("maad_create", **ARGS)
    assert again.meta["original_request_id"] == first.request_id


def test_an_index_that_takes_no_write_keeps_no_answer_back(open_project: Any) -> None:
    project = open_project()
    first = project.reply("maad_create", **ARGS)
    project.index_trigger("BEFORE UPDATE ON idempotency BEGIN SELECT RAISE(ABORT, 'no room'); END")
    again = project.reply("maad_create", **ARGS)
    assert again.meta["original_request_id"] == first.request_id


def test_two_calls_that_wait_together_run_once(open_project: Any) -> None:
    project = open_project()
    first, second = project.group(
        project.request("maad_create", ARGS), project.request("maad_create", ARGS)
    )
    assert second.meta["original_request_id"] == first.request_id


def test_a_key_of_another_call_is_refused(open_project: Any) -> None:
    project = open_project()
    project.ok("maad_create", **ARGS)
    error = project.error("maad_create", **{**ARGS, "fields": {"name": "Two"}})
    assert error["code"] == "IDEMPOTENCY_KEY_REUSED"


def test_keys_belong_to_a_tool_and_a_principal(open_project: Any) -> None:
    project = open_project()
    project.ok("maad_create", **ARGS)
    other = project.reply("maad_create", Identity("tok-2"), **ARGS)
    assert other.error_code == "DUPLICATE_DOC_ID"
    updated = project.reply(
        "maad_update", docId="shp-one", fields={"tonnage": 1}, idempotencyKey="k1"
    )
    assert "replayed" not in updated.meta


def test_a_failure_is_not_kept(open_project: Any) -> None:
    project = open_project()
    bad = {"docType": "voyage", "fields": {}, "idempotencyKey": "k2"}
    assert project.error("maad_create", **bad)["code"] == "VALIDATION_FAILED"
    good = {**bad, "fields": {"ship": "shp-x"}}
    assert "replayed" not in project.reply("maad_create", **good).meta


def test_entries_end_with_their_time_and_the_oldest_go_first(open_project: Any) -> None:
    project = open_project(idempotency_max=3)
    for number in range(4):
        project.ok(
            "maad_create", docType="voyage", fields={"ship": "shp-x"}, idempotencyKey=f"k{number}"
        )
    repeated = {"docType": "voyage", "fields": {"ship": "shp-x"}}
    assert "replayed" not in project.reply("maad_create", **repeated, idempotencyKey="k0").meta
    assert "replayed" in project.reply("maad_create", **repeated, idempotencyKey="k3").meta
    project.close()
    short = open_project(idempotency_ttl_ms=1)
    assert "replayed" not in short.reply("maad_create", **repeated, idempotencyKey="k3").meta


def scope(key: str) -> KeyScope:
    return key_scope(None, "maad_create", key, {})


def keep(answers: AnswerStore, key: str, now_ms: int) -> None:
    answer = StoredAnswer(msgspec.Raw(b"{}"), [], [])
    answers.store(scope(key), f"r-{key}", now_ms, answer, [])


def kept(answers: AnswerStore, now_ms: int, *keys: str) -> list[str]:
    return [key for key in keys if answers.holds(scope(key), now_ms)]


def test_an_entry_lives_from_its_making_however_often_it_is_asked_for(shared: Any) -> None:
    answers = AnswerStore(shared.engine._index.writer(), 5_000, 100)
    keep(answers, "a", 1_000)
    found = answers.find(scope("a"), 5_999)
    assert found is not None
    assert (found.request_id, found.completed_at) == ("r-a", "1970-01-01T00:00:01.000Z")
    assert answers.find(scope("a"), 6_000) is None
    assert kept(answers, 6_000, "a") == []


def test_what_was_used_least_recently_goes_when_there_are_too_many(shared: Any) -> None:
    answers = AnswerStore(shared.engine._index.writer(), 10**12, 3)
    for number, key in enumerate("abc"):
        keep(answers, key, 2_000_000 + number)
    assert answers.find(scope("a"), 2_000_010) is not None
    keep(answers, "d", 2_000_020)
    assert kept(answers, 2_000_020, "a", "b", "c", "d") == ["a", "c", "d"]


def test_the_order_of_arguments_and_the_project_make_no_other_call() -> None:
    one = key_scope("tok", "maad_create", "k", {"docType": "a", "fields": {"x": 1, "y": 2}})
    same = {"fields": {"y": 2, "x": 1}, "docType": "a", "project": "p", "idempotencyKey": "k"}
    assert key_scope("tok", "maad_create", "k", same) == one
    for other in ({"docType": "a", "fields": {"x": 1}}, {**same, "confirm": True}):
        assert key_scope("tok", "maad_create", "k", other).fingerprint != one.fingerprint


def test_a_verdict_of_the_front_stops_a_call_that_is_no_replay(open_project: Any) -> None:
    project = open_project()
    verdict = MaadError("RATE_LIMITED", "too many", {"reason": "writes_per_sec"}).wire()
    (refused,) = project.group(project.request("maad_create", ARGS, verdict=verdict))
    assert refused.error_code == "RATE_LIMITED"
    project.ok("maad_create", **ARGS)
    (replayed,) = project.group(project.request("maad_create", ARGS, verdict=verdict))
    assert replayed.ok
