"""What an operator sees of a running daemon: its metrics, and one id through all its logs
(spec 04 §9.9, §16)."""

from __future__ import annotations

import http.client
import json
import os
import signal
from pathlib import Path
from typing import Any

from daemon_bench import Client, Daemon, Instance, eventually, free_port
from prometheus_client.parser import text_string_to_metric_families


class Metrics:
    """The samples of one scrape, by name and labels."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._values: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self._values[sample.name, frozenset(sample.labels.items())] = sample.value

    def __call__(self, name: str, **labels: str) -> float | None:
        return self._values.get((name, frozenset(labels.items())))

    def labels(self, label: str) -> set[str]:
        return {value for _, labels in self._values for name, value in labels if name == label}


def scrape(port: int) -> Metrics:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    assert answer.status == 200
    text = answer.read().decode()
    connection.close()
    return Metrics(text)


def test_an_operator_sees_figures_and_follows_one_call(
    unindexed: Instance, start: Any, tmp_path: Path
) -> None:
    port, audit = free_port(), tmp_path / "audit.log"
    with unindexed.path.open("a") as file:
        file.write("  - name: idle\n    path: ./idle\n    role: reader\n")
    daemon = start(
        unindexed,
        MAAD_BOOT_REINDEX="1",
        MAADD_METRICS=str(port),
        MAAD_EMIT_REQUEST_ID="true",
        MAAD_LOG_LEVEL="debug",
        MAAD_AUDIT_PATH=str(audit),
    )
    client = daemon.client(unindexed.token)
    check_metrics(unindexed, daemon, client, port)
    ids = make_three_calls(client)
    write_in_every_way(client)
    write_under_an_edited_schema(unindexed, client)
    assert daemon.stop() == 0
    check_ids(ids, daemon, audit)
    check_audited_writes(audit)
    check_warnings(daemon)


def check_metrics(instance: Instance, daemon: Daemon, client: Client, port: int) -> None:
    before = scrape(port)
    # A scrape wakes nobody up.
    assert before("maadd_worker_state", project="main", state="absent") == 1
    assert before("maadd_worker_memory_bytes", project="main") is None
    assert before("maadd_sessions", transport="http") == 1

    client.ok("maad_use_project", name="main")
    client.ok("maad_subscribe")
    for _ in range(3):
        client.ok("maad_get", docId="nte-1")
    client.call("maad_get", docId="nte-none")
    client.call("maad_get_all", secret="Zanzibar")
    for number in range(20):
        client.call(f"made_up_{number}")
    connection = http.client.HTTPConnection("127.0.0.1", daemon.wait_until_listening())
    connection.request("POST", "/mcp", "{}", {"Authorization": "Bearer nonsense"})
    assert connection.getresponse().status == 401
    # With the first heartbeat, and once the watcher has compared files and index.
    assert eventually(lambda: scrape(port)("maadd_index_lag_files", project="main") == 0)

    after = scrape(port)
    assert after("maadd_calls_total", project="main", tool="maad_get", outcome="ok") == 3
    assert after("maadd_calls_total", project="main", tool="maad_get", outcome="error") == 1
    assert after("maadd_calls_total", project="", tool="unknown", outcome="error") == 21
    assert after("maadd_call_errors_total", project="main", code="FILE_NOT_FOUND", reason="") == 1
    assert after("maadd_project_call_seconds_count", project="main") == 4
    assert after("maadd_tool_call_seconds_bucket", tool="maad_get", le="+Inf") == 4
    assert after("maadd_worker_state", project="main", state="ready") == 1
    assert after("maadd_worker_state", project="idle", state="absent") == 1
    assert after("maadd_worker_queue_depth", project="main") == 0
    assert after("maadd_pending_history_writes", project="main") == 0
    assert (after("maadd_worker_memory_bytes", project="main") or 0) > 1_000_000
    assert after("maadd_http_refused_total", code="UNAUTHORIZED", reason="malformed") == 1
    assert after("maadd_subscriptions") == 1
    assert (after("process_open_fds") or 0) > 5
    assert after.labels("tool") == {"maad_use_project", "maad_subscribe", "maad_get", "unknown"}
    for hidden in (instance.token, str(instance.project), "nte-", "Zanzibar", "tok-"):
        assert hidden not in after.text

    os.kill(client.ok("maad_health")["worker"]["pid"], signal.SIGKILL)
    assert eventually(lambda: scrape(port)("maadd_worker_restarts_total", project="main") == 1)


def make_three_calls(client: Client) -> list[str]:
    """A write, a read that fails in the worker, a call that the front refuses; their ids."""
    client._headers["X-Request-Id"] = "forged"
    answers = (
        client.call("maad_create", docType="note", fields={"title": "Traced"}),
        client.call("maad_get", docId="nte-none"),
        client.call("maad_no_such_tool"),
    )
    return [answer["_meta"]["request_id"] for answer in answers]


def check_ids(ids: list[str], daemon: Daemon, audit: Path) -> None:
    assert len({*ids, "forged"}) == 4
    assert "forged" not in daemon.log
    told = [json.loads(line) for line in daemon.log.splitlines()]
    calls = [line for line in told if line["msg"] == "tool_call" and "result" in line]
    ended = {line["request_id"]: line for line in calls}
    assert [ended[one]["error_code"] for one in ids] == [None, "FILE_NOT_FOUND", "INVALID_ARGS"]
    received = {line["request_id"]: line for line in told if line["msg"] == "call_received"}
    assert set(ids[:2]) <= set(received)
    assert ids[2] not in received
    assert received[ids[0]]["pid"] != ended[ids[0]]["pid"]
    assert received[ids[0]]["session_id"] == ended[ids[0]]["session_id"]
    audited = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [line["request_id"] for line in audited if line["msg"] == "write"][:1] == ids[:1]


def write_in_every_way(client: Client) -> None:
    """After the record that is there already, `nte-traced`."""
    for tool, arguments in (
        ("maad_update", {"docId": "nte-traced", "fields": {"rank": 7}}),
        ("maad_bulk_create", {"records": [{"docType": "note", "fields": {"title": "One"}}]}),
        ("maad_bulk_update", {"updates": [{"docId": "nte-one", "fields": {"rank": 800}}]}),
        ("maad_delete", {"docId": "nte-traced"}),
        ("maad_delete_where", {"docType": "note", "filters": {"rank": 800}, "confirm": True}),
        ("maad_bulk_delete", {"docIds": ["nte-3"], "confirm": True}),
    ):
        client.ok(tool, **arguments)


def check_audited_writes(audit: Path) -> None:
    audited = [json.loads(line) for line in audit.read_text().splitlines()]
    writes = {line["tool"]: line for line in audited if line["msg"] == "write"}
    for line in writes.values():
        assert (line["channel"], line["level"], line["project"]) == ("audit", 30, "main")
        assert (line["agent_id"], line["role"], line["token_id"][:4]) == (
            "agt-test", "admin", "tok-",
        )  # fmt: skip
        assert len(line["git_commit"]) == 40
        assert line["session_id"]
        assert {"doc_id", "doc_type", "version_before", "version_after"} <= line.keys()
    updated, deleted = writes["maad_update"], writes["maad_delete"]
    assert (updated["version_before"], updated["version_after"]) == (1, 2)
    assert (updated["changed_fields"], updated["doc_type"]) == (["rank"], "note")
    assert (deleted["doc_id"], deleted["version_before"], deleted["version_after"]) == (
        "nte-traced", 2, None,
    )  # fmt: skip
    for tool, doc_id in (
        ("maad_bulk_create", "nte-one"),
        ("maad_bulk_update", "nte-one"),
        ("maad_delete_where", "nte-one"),
        ("maad_bulk_delete", "nte-3"),
    ):
        assert (writes[tool]["doc_id"], writes[tool]["doc_ids"]) == (None, [doc_id])


def write_under_an_edited_schema(instance: Instance, client: Client) -> None:
    """A write with a warning, by a field that somebody has just added."""
    schema = instance.project / "_schema/note.v1.yaml"
    schema.write_text(schema.read_text() + "  parent: {type: ref, target: note}\n")
    fields = {"title": "Child", "parent": "nte-Timbuktu"}
    written = client.call("maad_create", docType="note", fields=fields)
    assert [one["code"] for one in written["_meta"]["warnings"]] == ["REF_TARGET_MISSING"]


def check_warnings(daemon: Daemon) -> None:
    told = {line["msg"]: line for line in map(json.loads, daemon.log.splitlines())}
    stale = told["schema_cache_stale"]
    assert (stale["level"], stale["project"]) == (40, "main")
    assert stale["changed_files"] == ["_schema/note.v1.yaml"]
    assert "trigger_op" in stale
    warned = told["validation_warning"]
    assert (warned["level"], warned["tool"], warned["field"]) == (40, "maad_create", "parent")
    assert (warned["code"], warned["doc_id"]) == ("REF_TARGET_MISSING", "nte-child")
    assert warned["doc_type"] == "note"
    # The text of the warning quotes a value, and no log does.
    assert "Timbuktu" not in daemon.log
