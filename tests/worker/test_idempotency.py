"""Idempotency keys (spec 03 §8)."""

from __future__ import annotations

from typing import Any

import msgspec

from maadd.protocol.errors import MaadError
from maadd.protocol.messages import Identity

ARGS = {"docType": "ship", "fields": {"name": "One"}, "idempotencyKey": "k1"}


def test_a_repeated_call_replays_the_first_answer(open_project: Any) -> None:
    project = open_project()
    first = project.reply("maad_create", **ARGS)
    again = project.reply("maad_create", **ARGS)
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


def test_a_verdict_of_the_front_stops_a_call_that_is_no_replay(open_project: Any) -> None:
    project = open_project()
    verdict = MaadError("RATE_LIMITED", "too many", {"reason": "writes_per_sec"}).wire()
    (refused,) = project.group(project.request("maad_create", ARGS, verdict=verdict))
    assert refused.error_code == "RATE_LIMITED"
    project.ok("maad_create", **ARGS)
    (replayed,) = project.group(project.request("maad_create", ARGS, verdict=verdict))
    assert replayed.ok
