"""The answer of a change is never refused after the fact: it is cut (spec 03 §2.1, 04 §1.1)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from maadd.pipeline.envelope import FrontAnswer
from maadd.protocol.messages import Reply
from maadd.protocol.size import result_size

CAP = 4000
FINEST = 400
"""No list of these tests has an entry, nor three of them in a row, that takes more."""
CONFIRMED: dict[str, dict[str, Any]] = {
    "maad_bulk_create": {"records": []},
    "maad_bulk_update": {"updates": []},
    "maad_bulk_delete": {"docIds": ["a"], "confirm": True},
    "maad_delete_where": {"docType": "ship", "filters": {}, "confirm": True},
    "maad_purge_soft_deleted": {"confirm": True},
    "maad_repair_where": {
        "docType": "ship",
        "repairTypes": ["prune_orphan_refs"],
        "confirm": True,
    },
    "maad_create": {"docType": "ship", "fields": {}},
    "maad_update": {"docId": "shp-a", "fields": {}},
    "maad_delete": {"docId": "shp-a"},
    "maad_reindex": {},
    "maad_reload": {},
    "maad_flush": {},
    "maad_backup": {},
    "maad_instructions": {"action": "refresh", "dryRun": False},
}


def entries(name: str, number: int) -> list[dict[str, Any]]:
    return [
        {"docId": f"{name}-{n:05d}", "filePath": f"ships/{name}-{n:05d}.md"} for n in range(number)
    ]


def answered(bench: Any, tool: str, data: Any, meta: Any = None, **args: Any) -> Any:
    """The envelope of a call whose worker says `data`; it keeps the budget."""
    bench.worker.answers = [Reply("", ok=True, body=msgspec.json.encode(data), meta=meta)]
    result = asyncio.run(bench.pipeline.call(bench.session, tool, args))
    size = result_size(result.text)
    assert size <= CAP
    assert size > CAP - FINEST or b"truncated" not in result.text
    return msgspec.json.decode(result.text)


@pytest.mark.parametrize("tool", sorted(CONFIRMED))
def test_what_was_done_is_told_with_as_many_entries_as_fit(make_bench: Any, tool: str) -> None:
    bench = make_bench(response_max_bytes=CAP)
    data = {"succeeded": entries("ok", 900), "failed": [], "totalRequested": 900}
    meta = {"write_durable": True}
    answer = answered(bench, tool, {**data, "writeDurable": True}, meta, **CONFIRMED[tool])
    shown = answer["data"]["succeeded"]
    assert answer["ok"] is True
    assert 20 < len(shown) < 900
    assert shown == data["succeeded"][: len(shown)]
    assert answer["data"] == {**data, "succeeded": shown, "writeDurable": True}
    mark = answer["_meta"].pop("truncated")
    assert answer["_meta"] == meta
    assert mark.pop("rest").startswith("maad_")
    assert mark == {"lists": {"data.succeeded": {"shown": len(shown), "total": 900}}}


def test_the_preview_of_a_change_is_cut_like_the_change(make_bench: Any) -> None:
    bench = make_bench(response_max_bytes=CAP)
    data = {"dryRun": True, "totalAffected": 900, "affected": entries("a", 900), "missing": []}
    for tool, args in CONFIRMED.items():
        if args.get("confirm"):
            preview = {**args, "confirm": False}
            answer = answered(bench, tool, {**data, "previewToken": "t"}, None, **preview)
            mark = answer["_meta"]["truncated"]
            shown = len(answer["data"]["affected"])
            assert mark["lists"] == {"data.affected": {"shown": shown, "total": 900}}
            assert "previewToken" in mark["rest"]
            assert (answer["data"]["previewToken"], answer["data"]["totalAffected"]) == ("t", 900)


def test_a_list_that_was_a_part_already_keeps_its_true_total(make_bench: Any) -> None:
    bench = make_bench(response_max_bytes=CAP)
    data = {"scanned": 200, "errors": entries("bad", 100), "errorsTotal": 200}
    answer = answered(bench, "maad_reindex", data)
    shown = len(answer["data"]["errors"])
    mark = answer["_meta"]["truncated"]["lists"]
    assert mark == {"data.errors": {"shown": shown, "total": 200}}


def test_what_was_deleted_is_listed_where_deletions_are(make_bench: Any) -> None:
    bench = make_bench(response_max_bytes=CAP)
    for tool in ("maad_bulk_delete", "maad_delete_where", "maad_purge_soft_deleted"):
        data = {"succeeded": entries("ok", 900)}
        answer = answered(bench, tool, data, None, **CONFIRMED[tool])
        assert "includeDeletes: true" in answer["_meta"]["truncated"]["rest"]


def test_failures_stay_longest(make_bench: Any) -> None:
    bench = make_bench(response_max_bytes=CAP)
    data = {"succeeded": entries("ok", 500), "failed": entries("bad", 20)}
    answer = answered(bench, "maad_bulk_create", data, records=[])
    assert answer["data"]["failed"] == data["failed"]
    assert answer["_meta"]["truncated"]["lists"].keys() == {"data.succeeded"}
    data["failed"] = entries("bad", 300)
    answer = answered(bench, "maad_bulk_create", data, records=[])
    lists = answer["_meta"]["truncated"]["lists"]
    assert lists["data.succeeded"] == {"shown": 0, "total": 500}
    assert lists["data.failed"] == {"shown": len(answer["data"]["failed"]), "total": 300}
    assert len(answer["data"]["failed"]) > 10


def test_lists_within_lists_texts_and_warnings_are_cut_and_counted(make_bench: Any) -> None:
    bench = make_bench(response_max_bytes=CAP)
    names = [f"field_{n}" for n in range(100)]
    data = {"succeeded": [{"docId": f"s{n}", "changed": names} for n in range(3)]}
    warnings = [{"field": "f", "message": "é" * 3000, "code": "W"}]
    meta = {"warnings": warnings}
    answer = answered(bench, "maad_bulk_update", data, meta, updates=[])
    mark = answer["_meta"]["truncated"]
    assert mark["texts"] == 1
    shown = sum(len(one["changed"]) for one in answer["data"]["succeeded"])
    assert mark["lists"] == {"data.succeeded[].changed": {"shown": shown, "total": 300}}
    assert answer["_meta"]["warnings"][0]["message"].endswith("é…")


def test_an_answer_within_its_budget_is_left_alone(make_bench: Any) -> None:
    bench = make_bench(response_max_bytes=CAP)
    data = {"succeeded": entries("ok", 10), "text": "x" * 900}
    assert answered(bench, "maad_bulk_create", data, records=[]) == {"ok": True, "data": data}


def test_a_replayed_answer_is_cut_too(make_bench: Any) -> None:
    bench = make_bench(response_max_bytes=CAP)
    data = {"succeeded": entries("ok", 900)}
    args = {"records": [], "idempotencyKey": "k"}
    answer = answered(bench, "maad_bulk_create", data, {"replayed": True}, **args)
    assert answer["_meta"]["replayed"] is True
    assert answer["_meta"]["truncated"]["lists"]["data.succeeded"]["total"] == 900


def test_a_dry_run_shows_no_more_of_a_long_call_than_fits(make_bench: Any) -> None:
    bench = make_bench(dry_run=True, response_max_bytes=CAP)
    bench.worker.answers = [Reply("", ok=True, body=b"")]
    answer = bench.call("maad_create", docType="ship", fields={}, body="x" * 9000)
    assert answer["dryRun"] is True
    assert answer["wouldExecute"]["docType"] == "ship"
    assert answer["wouldExecute"]["body"].endswith("x…")


def test_a_token_is_never_lost_to_a_long_list_of_projects(make_bench: Any) -> None:
    bench = make_bench(response_max_bytes=CAP)
    data = {"token": "maad_pat_" + "0" * 32, "projects": [f"project-{n}" for n in range(900)]}

    async def issue(*_: object) -> FrontAnswer:
        return FrontAnswer(data)

    bench.engineless["maad_issue_token"] = issue
    args = {"name": "n", "role": "reader", "projects": [{"name": "fleet"}]}
    answer = bench.call("maad_issue_token", **args)
    assert answer["data"]["token"] == data["token"]
    assert answer["_meta"]["truncated"]["lists"]["data.projects"]["total"] == 900


@pytest.mark.parametrize("tool", ["maad_list_tokens", "maad_projects"])
def test_what_the_front_tells_is_cut_since_no_argument_makes_it_less(
    make_bench: Any, tool: str
) -> None:
    bench = make_bench(response_max_bytes=CAP)

    async def tell(*_: object) -> FrontAnswer:
        return FrontAnswer({"tokens": [{"id": f"tok-{n:012x}"} for n in range(900)], "total": 900})

    bench.engineless[tool] = tell
    answer = bench.call(tool)
    assert answer["data"]["total"] == 900
    assert answer["_meta"]["truncated"]["lists"]["data.tokens"]["total"] == 900
    assert answer["_meta"]["truncated"]["rest"]
    assert 10 < len(answer["data"]["tokens"]) < 900


def test_what_cannot_be_cut_is_still_refused(make_bench: Any) -> None:
    bench = make_bench(response_max_bytes=100)
    bench.worker.answers = [Reply("", ok=True, body=msgspec.json.encode({"docId": "a" * 200}))]
    error = bench.error("maad_create", docType="ship", fields={})
    assert error["code"] == "RESPONSE_TOO_LARGE"
    assert error["details"]["writeOutcome"] == "unknown_reconcile"
