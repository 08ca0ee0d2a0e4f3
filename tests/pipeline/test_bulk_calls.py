"""Bulk calls in the front: size, cost, dry run (spec 03 §2.1, §2.4, 04 §12.1, §12.2)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from maadd.protocol.messages import Reply

ARGUMENTS = {"maad_bulk_create": "records", "maad_bulk_update": "updates"}


def items(tool: str, number: int) -> dict[str, Any]:
    if tool == "maad_bulk_create":
        return {
            "records": [{"docType": "ship", "fields": {"name": f"n{n}"}} for n in range(number)]
        }
    if tool == "maad_bulk_update":
        return {"updates": [{"docId": f"shp-{n}", "body": "x"} for n in range(number)]}
    return {"docIds": [f"shp-{n}" for n in range(number)]}


@pytest.mark.parametrize("tool", sorted(ARGUMENTS))
def test_more_records_than_the_cap_never_reach_the_worker(make_bench: Any, tool: str) -> None:
    bench = make_bench()
    assert bench.call(tool, **items(tool, 50))["ok"]
    error = bench.error(tool, **items(tool, 51))
    assert error["code"] == "BULK_LIMIT_EXCEEDED"
    assert error["details"] == {
        "tool": tool,
        "received": 51,
        "limit": 50,
        "suggestedChunkSize": 50,
    }
    assert len(bench.worker.calls) == 1


def test_the_cap_is_a_setting_and_cleanup_tools_have_their_own(make_bench: Any) -> None:
    bench = make_bench(bulk_max_items=2)
    assert bench.error("maad_bulk_create", **items("maad_bulk_create", 3))["details"]["limit"] == 2
    assert bench.call("maad_bulk_delete", **items("maad_bulk_delete", 3))["ok"]


def test_size_is_judged_before_the_rate(make_bench: Any) -> None:
    bench = make_bench(bulk_max_items=2, rl_writes_per_sec=1)
    for _ in range(3):
        error = bench.error("maad_bulk_create", **items("maad_bulk_create", 3))
        assert error["code"] == "BULK_LIMIT_EXCEEDED"
    assert bench.call("maad_bulk_create", **items("maad_bulk_create", 2))["ok"]


def test_with_a_key_the_verdict_travels_to_the_worker(make_bench: Any) -> None:
    bench = make_bench(bulk_max_items=2)
    bench.call("maad_bulk_create", **items("maad_bulk_create", 3), idempotencyKey="k")
    [call] = bench.worker.calls
    assert call.verdict is not None
    assert call.verdict.code == "BULK_LIMIT_EXCEEDED"


@pytest.mark.parametrize(
    ("tool", "number", "cost"),
    [
        ("maad_bulk_create", 0, 1),
        ("maad_bulk_create", 1, 1),
        ("maad_bulk_create", 10, 1),
        ("maad_bulk_create", 11, 2),
        ("maad_bulk_update", 50, 5),
        ("maad_bulk_delete", 21, 3),
    ],
)
def test_ten_records_cost_one_write(make_bench: Any, tool: str, number: int, cost: int) -> None:
    bench = make_bench(rl_writes_per_sec=cost + 1)
    assert bench.call(tool, **items(tool, number))["ok"]
    assert bench.call("maad_create", docType="ship", fields={})["ok"]
    error = bench.error("maad_create", docType="ship", fields={})
    assert error["details"]["reason"] == "writes_per_sec"


def test_a_replay_gives_back_what_it_had_paid(make_bench: Any) -> None:
    bench = make_bench(rl_writes_per_sec=5)
    bench.worker.answers = [Reply("", ok=True, body=b"{}", meta={"replayed": True})] * 3
    for _ in range(3):
        call = items("maad_bulk_create", 50)
        assert bench.call("maad_bulk_create", **call, idempotencyKey="k")["ok"]
    assert bench.call("maad_bulk_create", **items("maad_bulk_create", 50))["ok"]


@pytest.mark.parametrize(
    ("tool", "args", "shown"),
    [
        ("maad_create", {"docType": "ship", "fields": {"a": 1}}, None),
        ("maad_delete", {"docId": "shp-a"}, None),
        ("maad_bulk_create", items("maad_bulk_create", 3), {"count": 3}),
        ("maad_bulk_update", items("maad_bulk_update", 2), {"count": 2}),
        ("maad_bulk_delete", {"docIds": ["a"], "confirm": True}, {"count": 1}),
        ("maad_delete_where", {"docType": "ship", "filters": {}, "confirm": True}, None),
        ("maad_purge_soft_deleted", {"confirm": True}, None),
        ("maad_reindex", {"force": True}, None),
        ("maad_update", {"docId": "shp-a", "fields": {"a": 1}}, None),
        ("maad_repair_where", {"docType": "ship", "repairTypes": ["fix_schema_drift"],
                               "confirm": True}, None),
        ("maad_reload", {}, None),
        ("maad_flush", {}, None),
        ("maad_backup", {"label": "x"}, None),
        ("maad_instructions", {"action": "refresh", "dryRun": False}, None),
    ],
)  # fmt: skip
def test_a_server_in_dry_run_only_tells(
    make_bench: Any, tool: str, args: dict[str, Any], shown: dict[str, Any] | None
) -> None:
    bench = make_bench(dry_run=True)
    bench.worker.answers = [Reply("", ok=True, body=b"")]
    answer = bench.call(tool, **args)
    assert bench.worker.calls[0].dry_run is True
    assert answer == {
        "ok": True,
        "dryRun": True,
        "tool": tool,
        "wouldExecute": args if shown is None else shown,
    }


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("maad_bulk_delete", {"docIds": ["a"]}),
        ("maad_delete_where", {"docType": "ship", "confirm": "true"}),
        ("maad_purge_soft_deleted", {}),
        ("maad_repair_where", {"docType": "ship", "repairTypes": ["fix_schema_drift"]}),
        ("maad_get", {"docId": "a"}),
    ],
)
def test_what_changes_nothing_runs_normally(
    make_bench: Any, tool: str, args: dict[str, Any]
) -> None:
    bench = make_bench(dry_run=True)
    bench.worker.answers = [Reply("", ok=True, body=b'{"dryRun":true}')]
    assert bench.call(tool, **args) == {"ok": True, "data": {"dryRun": True}}
    assert bench.worker.calls[0].dry_run is False


def test_a_dry_run_is_judged_and_charged_like_a_write(make_bench: Any) -> None:
    bench = make_bench(dry_run=True, bulk_max_items=2, rl_writes_per_sec=1)
    error = bench.error("maad_bulk_create", **items("maad_bulk_create", 3))
    assert error["code"] == "BULK_LIMIT_EXCEEDED"
    assert bench.call("maad_delete", docId="shp-a")["dryRun"] is True
    assert bench.error("maad_delete", docId="shp-a")["details"]["reason"] == "writes_per_sec"


def test_a_replay_is_a_replay_also_in_dry_run(make_bench: Any) -> None:
    bench = make_bench(dry_run=True)
    meta = {"replayed": True, "original_request_id": "r0"}
    bench.worker.answers = [Reply("", ok=True, body=b'{"docId":"shp-a"}', meta=meta)]
    answer = bench.call("maad_create", docType="ship", fields={}, idempotencyKey="k")
    assert answer["data"] == {"docId": "shp-a"}
    assert answer["_meta"]["replayed"] is True


def test_a_preview_that_cannot_be_cut_has_written_nothing(make_bench: Any) -> None:
    bench = make_bench(response_max_bytes=200)
    body = msgspec.json.encode({"affected": ["x" * 100] * 100, "previewToken": "t" * 200})
    bench.worker.answers = [Reply("", ok=True, body=body, rows=100)]
    preview = bench.error("maad_delete_where", docType="ship", filters={})
    assert (preview["code"], preview["details"]["writeOutcome"]) == (
        "RESPONSE_TOO_LARGE",
        "read_only",
    )
    assert "suggestedLimit" not in preview["details"]
    assert preview["details"]["hint"] == "Nothing was written; narrow the scope of the call"
