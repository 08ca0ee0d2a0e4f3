"""What surrounds the data of a read on its way out (spec 02 §1)."""

from __future__ import annotations

from typing import Any

import pytest

from maadd.protocol.messages import Reply
from maadd.protocol.size import result_size, success_text

ROWS = b'{"total":20,"results":["a\\"b","\xf0\x9f\x98\x80"]}'
SIZE = result_size(success_text(ROWS, source=None, meta=None))


def answered(bench: Any, **reply: Any) -> None:
    """Have the worker answer so next."""
    bench.worker.answers.append(Reply("", **{"ok": True, "body": ROWS, "rows": 20, **reply}))


@pytest.mark.parametrize(("cap", "fits"), [(SIZE - 1, False), (SIZE, True), (SIZE + 1, True)])
def test_an_answer_may_be_exactly_as_large_as_its_budget(
    make_bench: Any, cap: int, fits: bool
) -> None:
    bench = make_bench(response_max_bytes=cap)
    answered(bench)
    if fits:
        assert bench.call("maad_query", docType="ship")["data"]["total"] == 20
        return
    answer = bench.call("maad_query", docType="ship")
    assert list(answer) == ["ok", "errors"]
    error = answer["errors"][0]
    assert error["code"] == "RESPONSE_TOO_LARGE"
    hint = error["details"].pop("hint")
    assert "projection" in hint
    assert error["details"] == {
        "tool": "maad_query",
        "observedBytes": SIZE,
        "capBytes": cap,
        "accounting": "mcp-result-utf8",
        "writeOutcome": "read_only",
        "projectedBytes": SIZE,
        "rowCount": 20,
        "suggestedLimit": int(20 * cap / SIZE * 0.9),
    }


def test_a_tiny_budget_still_suggests_one_row(make_bench: Any) -> None:
    bench = make_bench(response_max_bytes=1)
    answered(bench)
    assert bench.error("maad_query", docType="ship")["details"]["suggestedLimit"] == 1


def test_the_walk_along_refs_has_a_hint_of_its_own_and_no_rows(make_bench: Any) -> None:
    bench = make_bench(response_max_bytes=1)
    answered(bench, rows=None)
    details = bench.error("maad_relationship_paths", startDocId="shp-1")["details"]
    assert details["hint"] == (
        "Reduce depth, node, edge, or path limits; or add field and extraction-kind filters"
    )
    assert not details.keys() & {"rowCount", "suggestedLimit"}


def test_a_failure_is_never_replaced_by_one_about_its_size(make_bench: Any) -> None:
    bench = make_bench(response_max_bytes=1)
    answered(bench, ok=False, body=b'[{"code":"FILE_NOT_FOUND","message":"no record"}]')
    assert bench.error("maad_get", docId="shp-1")["code"] == "FILE_NOT_FOUND"


@pytest.mark.parametrize(
    ("settings", "members"),
    [
        ({}, ["ok", "data"]),
        ({"provenance": "on"}, ["ok", "data", "_source"]),
        ({"provenance": "detail"}, ["ok", "data", "_source"]),
        ({"emit_request_id": True}, ["ok", "data", "_meta"]),
    ],
)
@pytest.mark.parametrize("tool", ["maad_summary", "maad_scan", "maad_history"])
def test_members_of_a_success_in_their_order(
    make_bench: Any, tool: str, settings: dict[str, Any], members: list[str]
) -> None:
    bench = make_bench(**settings)
    args = {"maad_scan": {"path": "x"}, "maad_history": {"docId": "shp-1"}}.get(tool, {})
    answer = bench.call(tool, **args)
    assert list(answer) == members
    assert answer.get("_source", tool) == tool
    answered(bench, ok=False, body=b'[{"code":"FILE_NOT_FOUND","message":"no"}]')
    assert "_source" not in bench.call(tool, **args)


def test_the_log_tells_how_bodies_were_searched_and_not_for_what(make_bench: Any) -> None:
    bench = make_bench()
    answered(bench, meta={"mode": "hybrid", "degraded": "no vectors"}, rows=3)
    bench.call("maad_semantic_search", query="secret", mode="hybrid", k=7, docType="ship")
    [line] = bench.logged
    assert line.items() >= {
        "event": "tool_call",
        "tool": "maad_semantic_search",
        "mode": "hybrid",
        "k": 7,
        "scoped": True,
        "degraded": "no vectors",
        "results": 3,
    }.items()  # fmt: skip
    assert "secret" not in str(line)

    answered(bench, ok=False, body=b'[{"code":"SEMANTIC_DISABLED","message":"off"}]')
    bench.call("maad_semantic_search", query="secret")
    line = bench.logged[-1]
    assert (line["mode"], line["k"], line["scoped"]) == ("exact", 10, False)
    bench.call("maad_get", docId="shp-1")
    assert "mode" not in bench.logged[-1]
