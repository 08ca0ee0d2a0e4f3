"""What an answer carries beside its data, and what logs are told of a call (spec 03 §1, §2.3,
§2.6)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from maadd.auth.record import ProjectGrant, TokenRecord
from maadd.protocol.messages import Reply
from maadd.protocol.roles import Role
from maadd.protocol.tools import ToolKind, ToolSpec
from maadd.sessions.session import Binding, BindingSource, Mode


def test_a_replay_and_whoever_asks_for_it_gets_the_request_id(make_bench: Any) -> None:
    replayed = Reply("", ok=True, body=b"{}", meta={"replayed": True, "original_request_id": "r0"})
    bench = make_bench()
    bench.worker.answers = [Reply("", ok=True, body=b"{}"), replayed]
    assert bench.call("maad_flush") == {"ok": True, "data": {}}
    answer = bench.call("maad_create", docType="ship", fields={}, idempotencyKey="k")
    assert answer["_meta"] == {
        "request_id": bench.worker.calls[-1].request_id,
        "replayed": True,
        "original_request_id": "r0",
    }
    asked = make_bench(emit_request_id=True)
    answer = asked.call("maad_flush")
    assert answer["_meta"] == {"request_id": asked.worker.calls[0].request_id}
    refused = asked.call("maad_get")
    assert refused["ok"] is False
    assert set(refused["_meta"]) == {"request_id"}


@pytest.mark.parametrize("mode", ["on", "detail"])
def test_answers_name_their_source_where_that_is_asked_for(make_bench: Any, mode: str) -> None:
    bench = make_bench(provenance=mode)
    assert bench.call("maad_flush") == {"ok": True, "data": {}, "_source": "maad_flush"}
    assert "_source" not in bench.call("maad_get")
    dry = make_bench(provenance=mode, dry_run=True)
    assert dry.call("maad_flush")["_source"] == "maad_flush"


def test_a_tool_without_a_kind_reaches_nobody(make_bench: Any, monkeypatch: Any) -> None:
    bench = make_bench()
    monkeypatch.setattr(ToolSpec, "kind_of", lambda *_: ToolKind.ENGINELESS)
    assert bench.error("maad_flush")["code"] == "MISSING_OPERATION_KIND"
    assert bench.worker.calls == []


def test_only_writes_are_logged_with_their_arguments_and_none_with_its_content(
    make_bench: Any, log_into: Any
) -> None:
    bench = make_bench()
    lines: list[dict[str, Any]] = []
    bench.pipeline._told._log = log_into(lines)
    bench.call("maad_get", docId="a")
    fields = {"title": "secret"}
    bench.call("maad_create", docType="ship", fields=fields, body="secret", docId="shp-a")
    bench.call("maad_delete_where", docType="ship", filters={"title": "secret"}, confirm=True)
    bench.call("maad_bulk_create", records=[{"docType": "ship", "fields": fields}])
    shown = [line["args"] for line in lines if "args" in line]
    assert shown == [
        {"docType": "ship", "docId": "shp-a", "fieldNames": ["title"], "bodyBytes": 6},
        {"docType": "ship", "filterFields": ["title"], "confirm_mode": "confirmed"},
        {"recordsCount": 1, "recordsBytes": 48},
    ]
    ended = [line for line in lines if "result" in line]
    assert len(ended) == 4
    assert {
        "request_id", "session_id", "project", "tool", "role", "payload_size", "latency_ms",
        "result", "error_code",
    } <= ended[0].keys()  # fmt: skip
    assert "secret" not in repr(lines)


def test_the_audit_line_of_a_write_says_who_did_what(make_bench: Any) -> None:
    bench = make_bench()
    written = {
        "doc_id": "shp-a", "doc_type": "ship", "version_before": 1, "version_after": 2,
        "changed_fields": ["a"], "git_commit": "c0",
    }  # fmt: skip
    bench.worker.answers = [Reply("", ok=True, body=b"{}", audit=written)]
    bench.call("maad_update", docId="shp-a", fields={"a": 1})
    assert bench.audited == [
        {
            "event": "write",
            "request_id": bench.worker.calls[0].request_id,
            "session_id": "s1",
            "project": "fleet",
            "tool": "maad_update",
            "role": "admin",
            **written,
        }
    ]


def test_with_a_token_the_audit_line_names_it_and_its_people(make_bench: Any) -> None:
    bench = make_bench()
    token = TokenRecord(
        "tok-1", "0" * 64, Role.WRITER, (ProjectGrant("fleet"),), "2031-01-01T00:00:00.000Z",
        agent_id="agt-1", user_id="usr-1",
    )  # fmt: skip
    bench.session = bench.open("s2", token)
    bench.session.binding = Binding(Mode.SINGLE, ("fleet",), Role.WRITER, BindingSource.CLIENT_TOOL)
    bench.worker.answers = [Reply("", ok=True, body=b"{}", audit={"doc_id": "shp-a"})]
    bench.call("maad_update", docId="shp-a")
    [line] = bench.audited
    assert {name: line.get(name) for name in ("token_id", "agent_id", "user_id", "role")} == {
        "token_id": "tok-1",
        "agent_id": "agt-1",
        "user_id": "usr-1",
        "role": "writer",
    }


def test_a_refusal_repeats_no_more_of_a_call_than_tells_what_it_is_about(make_bench: Any) -> None:
    bench = make_bench()
    answers = [
        bench.call("maad_get", docId="x", project="p" * 900_000),
        bench.call("maad_get", docId="x", **{f"unknown{n}": 1 for n in range(5_000)}),
        bench.call("t" * 900_000),
    ]
    for answer in answers:
        assert answer["ok"] is False
        assert len(json.dumps(answer)) < 40_000
