"""The daemon as its operator and its clients meet it (traps 22, 33, 34, 37)."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from daemon_bench import BIN, ENVIRONMENT, Client, Instance, eventually, is_alive, run


def worker_pid(client: Client) -> int:
    pid = client.ok("maad_health")["worker"]["pid"]
    assert isinstance(pid, int)
    return pid


def test_a_client_binds_writes_queries_and_reads(instance: Instance, start: Any) -> None:
    client = start(instance).client(instance.token)
    assert client.call("maad_summary")["errors"][0]["code"] == "SESSION_UNBOUND"
    assert client.ok("maad_use_project", name="main")["effectiveRole"] == "admin"
    assert client.ok("maad_summary")["totalDocuments"] == 20
    created = client.call("maad_create", docType="note", fields={"title": "New", "rank": 99})
    assert created["data"]["docId"] == "nte-new"
    assert created["_meta"]["history"]["outcome"] == "committed"
    rows = client.ok("maad_query", docType="note", filters={"rank": {"op": "gte", "value": 18}})
    assert {row["docId"] for row in rows["results"]} == {"nte-18", "nte-19", "nte-new"}
    assert client.ok("maad_get", docId="nte-new")["frontmatter"]["rank"] == 99
    body = run("git", "log", "-1", "--format=%b", cwd=instance.project)
    assert body.splitlines()[:1] == ["role: admin"]
    assert "agent: agt-test" in body


def test_no_acknowledged_create_is_lost_when_the_worker_is_killed(
    instance: Instance, start: Any
) -> None:
    daemon = start(instance)
    first = daemon.client(instance.token)
    first.ok("maad_use_project", name="main")
    acknowledged: list[str] = []
    lost: list[str] = []
    stop = threading.Event()

    def load(number: int) -> None:
        client = daemon.client(instance.token)
        client.ok("maad_use_project", name="main")
        step = 0
        while not stop.is_set():
            doc_id = f"nte-load-{number}-{step}"
            step += 1
            answer = client.call(
                "maad_create", docType="note", docId=doc_id, fields={"title": doc_id}
            )
            (acknowledged if answer["ok"] else lost).append(doc_id)
        client.close()

    threads = [threading.Thread(target=load, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        count = len(acknowledged)
        assert eventually(lambda c=count: len(acknowledged) >= c + 40, 30)
        os.kill(worker_pid(first), signal.SIGKILL)
    count = len(acknowledged)
    assert eventually(lambda: len(acknowledged) >= count + 20, 30)
    stop.set()
    for thread in threads:
        thread.join()
    assert daemon.process.poll() is None
    for doc_id in acknowledged:
        assert first.ok("maad_get", docId=doc_id)["frontmatter"]["title"] == doc_id
    for doc_id in lost:
        on_disk = (instance.project / f"notes/{doc_id}.md").exists()
        assert first.call("maad_get", docId=doc_id)["ok"] is on_disk
    assert daemon.stop() == 0
    tracked = set(run("git", "ls-files", "notes", cwd=instance.project).split())
    assert {f"notes/{doc_id}.md" for doc_id in acknowledged} <= tracked
    assert run("git", "status", "--porcelain", "--", "notes", cwd=instance.project) == ""
    assert run("git", "fsck", "--strict", "--no-dangling", cwd=instance.project) == ""
    assert not list(instance.project.rglob("*.maad-tmp-*"))


def test_a_second_daemon_on_an_instance_names_the_first(instance: Instance, start: Any) -> None:
    first = start(instance)
    first.wait_until_listening()
    second = start(instance)
    assert second.process.wait(30) == 1
    assert "PROJECT_LOCKED" in second.log
    assert str(first.process.pid) in second.log


def test_a_second_daemon_on_a_project_names_its_owner(
    instance: Instance, start: Any, tmp_path: Path
) -> None:
    owner = start(instance)
    client = owner.client(instance.token)
    client.ok("maad_use_project", name="main")
    client.ok("maad_summary")
    other = tmp_path / "other"
    other.mkdir()
    (other / "instance.yaml").write_text(
        f"name: other\nprojects:\n  - name: main\n    path: {instance.project}\n    role: admin\n"
    )
    token = run(
        BIN / "maad",
        "auth",
        "issue-token",
        f"--instance={other / 'instance.yaml'}",
        "--role=admin",
        "--projects=*",
    ).strip()
    second = Instance.__new__(Instance)
    second.path = other / "instance.yaml"
    stranger = start(second).client(token)
    stranger.ok("maad_use_project", name="main")
    error = stranger.call("maad_summary")["errors"][0]
    assert error["code"] == "PROJECT_LOCKED"
    assert error["details"]["ownerPid"] == owner.process.pid
    assert f"the http daemon of instance.yaml (process {owner.process.pid}," in error["message"]


def test_sigterm_ends_everything(instance: Instance, start: Any) -> None:
    daemon = start(instance)
    client = daemon.client(instance.token)
    client.ok("maad_use_project", name="main")
    client.ok("maad_summary")
    below = daemon.descendants()
    assert below
    assert daemon.stop(signal.SIGTERM, timeout=5) == 0
    assert eventually(lambda: not any(map(is_alive, below)), 2)


def test_nothing_survives_a_killed_front(instance: Instance, start: Any) -> None:
    daemon = start(instance)
    client = daemon.client(instance.token)
    client.ok("maad_use_project", name="main")
    client.ok("maad_summary")
    below = daemon.descendants()
    daemon.stop(signal.SIGKILL)
    assert eventually(lambda: not any(map(is_alive, below)), 5)
    again = start(instance).client(instance.token)
    again.ok("maad_use_project", name="main")
    assert again.ok("maad_summary")["totalDocuments"] == 20


def test_a_project_without_an_index_says_so_until_it_is_rebuilt(
    instance: Instance, start: Any
) -> None:
    subprocess.run(["rm", "-r", str(instance.project / "_backend")], check=True)
    client = start(instance).client(instance.token)
    client.ok("maad_use_project", name="main")
    error = client.call("maad_summary")["errors"][0]
    assert error["code"] == "INDEX_EMPTY"
    assert error["details"] == {"onDiskMarkdownFiles": 20}
    assert (
        client.call("maad_create", docType="note", fields={"title": "x"})["errors"][0]["code"]
        == "INDEX_EMPTY"
    )
    assert client.ok("maad_reindex")["indexed"] == 20
    assert client.ok("maad_summary")["totalDocuments"] == 20


def test_health_answers_while_the_project_cannot_be_opened(instance: Instance, start: Any) -> None:
    (instance.project / "_registry/object_types.yaml").write_text("types: [")
    client = start(instance).client(instance.token)
    client.ok("maad_use_project", name="main")
    assert client.call("maad_summary")["errors"][0]["code"] == "PARSE_ERROR"
    health = client.ok("maad_health")
    assert health["initialized"] is False
    assert health["worker"]["lastError"]["code"] == "PARSE_ERROR"
    assert {"provenance", "transport", "sessions", "instance", "runtime", "worker"} < set(health)


def test_one_project_in_trouble_leaves_the_other_alone(tmp_path: Path, start: Any) -> None:
    instance = Instance(tmp_path, indexed=True)
    (tmp_path / "bad/_registry").mkdir(parents=True)
    (tmp_path / "bad/_registry/object_types.yaml").write_text("types: 7\n")
    with instance.path.open("a") as file:
        file.write("  - name: bad\n    path: ./bad\n    role: admin\n")
    client = start(instance).client(instance.token)
    client.ok("maad_use_projects", names=["main", "bad"])
    assert client.call("maad_summary", project="bad")["errors"][0]["code"] == "REGISTRY_INVALID"
    assert client.ok("maad_summary", project="main")["totalDocuments"] == 20
    assert client.call("maad_summary")["errors"][0]["code"] == "PROJECT_REQUIRED"


def test_roles_decide_what_a_token_may_do(instance: Instance, start: Any) -> None:
    reader = run(
        BIN / "maad",
        "auth",
        "issue-token",
        f"--instance={instance.path}",
        "--role=reader",
        "--projects=main",
    ).strip()
    client = start(instance).client(reader)
    error = client.call("maad_use_project", name="main", **{"as": "writer"})["errors"][0]
    assert error["code"] == "ROLE_UPGRADE_DENIED"
    client.ok("maad_use_project", name="main")
    assert client.ok("maad_get", docId="nte-1")
    for tool, arguments in (
        ("maad_create", {"docType": "note", "fields": {"title": "x"}}),
        ("maad_delete", {"docId": "nte-1"}),
        ("maad_health", {}),
    ):
        assert client.call(tool, **arguments)["errors"][0]["code"] == "INSUFFICIENT_ROLE"


def test_an_unknown_argument_or_tool_gets_a_suggestion(instance: Instance, start: Any) -> None:
    client = start(instance).client(instance.token)
    client.ok("maad_use_project", name="main")
    error = client.call("maad_get", docID="nte-1")["errors"][0]
    assert error["code"] == "INVALID_ARGS"
    assert "docId" in [issue.get("suggestion") for issue in error["details"]["issues"]]
    error = client.call("maad_gett")["errors"][0]
    assert error["details"]["issues"][0]["suggestion"] == "maad_get"
    assert client.ok("maad_get", docId="nte-1", _trace="abc")["docId"] == "nte-1"


def test_an_answer_over_the_budget_is_replaced_whole(instance: Instance, start: Any) -> None:
    client = start(instance, MAAD_RESPONSE_MAX_BYTES="1500").client(instance.token)
    client.ok("maad_use_project", name="main")
    error = client.call("maad_query", docType="note", fields=["title"], limit=20)["errors"][0]
    assert error["code"] == "RESPONSE_TOO_LARGE"
    details = error["details"]
    assert details["capBytes"] == 1500
    assert details["observedBytes"] > 1500
    assert details["writeOutcome"] == "read_only"
    assert details["rowCount"] == 20
    assert 1 <= details["suggestedLimit"] < 20
    assert client.ok("maad_query", docType="note", limit=details["suggestedLimit"])


def test_a_dry_run_server_writes_nothing(instance: Instance, start: Any) -> None:
    client = start(instance, "--dry-run").client(instance.token)
    client.ok("maad_use_project", name="main")
    arguments = {"docType": "note", "fields": {"title": "x"}}
    envelope = client.call("maad_create", **arguments)
    assert list(envelope) == ["ok", "dryRun", "tool", "wouldExecute", "data"]
    assert envelope["wouldExecute"] == arguments
    assert envelope["data"]["docId"] == "nte-x"
    assert client.call("maad_delete", docId="nte-1") == {
        "ok": True,
        "dryRun": True,
        "tool": "maad_delete",
        "wouldExecute": {"docId": "nte-1"},
    }
    assert run("git", "status", "--porcelain", "--", "notes", cwd=instance.project) == ""
    assert (instance.project / "notes/nte-1.md").exists()


def test_calls_while_draining_are_refused(instance: Instance, start: Any) -> None:
    daemon = start(instance)
    client = daemon.client(instance.token)
    client.ok("maad_use_project", name="main")
    port = daemon.wait_until_listening()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/healthz")
    assert connection.getresponse().read() == b'{"ok":true}'
    assert daemon.stop(signal.SIGTERM) == 0


def test_neither_token_nor_record_text_reaches_a_log(instance: Instance, start: Any) -> None:
    daemon = start(instance, MAAD_LOG_LEVEL="trace")
    client = daemon.client(instance.token)
    client.ok("maad_use_project", name="main")
    secret = "Zanzibar-confidential"
    client.ok("maad_create", docType="note", fields={"title": secret}, body=f"{secret} body")
    client.call("maad_create", docType="note", fields={"title": secret, "rank": secret})
    client.call("maad_query", docType="note", filters={"title": secret})
    Client(daemon.wait_until_listening(), "maad_pat_" + "0" * 32).post({"jsonrpc": "2.0"})
    daemon.stop()
    log = daemon.log
    assert '"msg":"tool_call"' in log
    assert instance.token not in log
    assert "maad_pat_0" not in log
    assert secret not in log
    lines = [json.loads(line) for line in log.splitlines()]
    writes = [line for line in lines if line.get("msg") == "write"]
    assert writes
    assert writes[0]["token_id"].startswith("tok-")
    assert len(writes[0]["git_commit"]) == 40


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_either_signal_ends_it_with_zero(instance: Instance, start: Any, number: int) -> None:
    daemon = start(instance)
    daemon.wait_until_listening()
    assert daemon.stop(number) == 0


def test_http_without_a_token_registry_refuses_to_start(tmp_path: Path, start: Any) -> None:
    instance = Instance(tmp_path)
    subprocess.run(["rm", "-r", str(tmp_path / "_auth")], check=True)
    daemon = start(instance)
    assert daemon.process.wait(30) == 1
    assert "TOKENS_FILE_MISSING" in daemon.log


def test_http_needs_an_instance(tmp_path: Path) -> None:
    done = subprocess.run(
        [BIN / "maadd", f"--project={tmp_path}", "--transport=http"],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=False,
    )
    assert done.returncode == 1
    assert "INSTANCE_CONFIG_INVALID" in done.stderr


def test_a_number_that_cannot_travel_is_refused_and_disturbs_nobody(
    instance: Instance, start: Any
) -> None:
    client = start(instance).client(instance.token)
    client.ok("maad_use_project", name="main")
    for arguments in (
        {"docType": "note", "filters": {"rank": 10**30}},
        {"docType": "note", "filters": {"rank": -(2**63) - 1}},
    ):
        error = client.call("maad_query", **arguments)["errors"][0]
        assert error["code"] == "INVALID_ARGS"
        assert "64 bits" in error["message"]
        assert client.ok("maad_get", docId="nte-1")["docId"] == "nte-1"
    fields = {"title": "x", "rank": 2**64}
    assert client.call("maad_create", docType="note", fields=fields)["ok"] is False
    assert client.ok("maad_query", docType="note", filters={"rank": 2**64 - 1})["total"] == 0


def test_half_a_character_is_an_argument_that_does_not_fit(instance: Instance, start: Any) -> None:
    client = start(instance).client(instance.token)
    client.ok("maad_use_project", name="main")
    for arguments, path in (
        ({"docId": "\ud800"}, "docId"),
        ({"docId": "a", "depth": "\udfff"}, "depth"),
        ({"docId": "a", "\ud83d": 1}, "?"),
    ):
        error = client.call("maad_get", **arguments)["errors"][0]
        assert error["code"] == "INVALID_ARGS"
        assert [issue["path"] for issue in error["details"]["issues"]] == [path]
    fields = {"title": ["\ud800"], "other": "\ud83d\ude00"}
    error = client.call("maad_create", docType="note", fields=fields)["errors"][0]
    assert error["details"]["issues"][0]["path"] == "fields.title[0]"
    error = client.call("maad_\ud800")["errors"][0]
    assert (error["code"], "unknown tool" in error["message"]) == ("INVALID_ARGS", True)
    for method in ("resources/read", "resources/subscribe"):
        assert client.request(method, {"uri": "maad://main/\ud800"})["error"]["code"] == -32602
    calls: list[dict[str, Any]] = [
        {"name": "maad_get", "arguments": {"docId": "\ud800"}},
        {"name": "maad_get", "arguments": {"docId": "nte-1"}},
        {"name": "maad_get", "arguments": {}, "_meta": {"progressToken": "\ud800"}},
    ]
    _, _, body = client.post(
        [
            {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}
            for number, call in enumerate(calls)
        ]
    )
    answers = [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: ")]
    assert sorted(answer["id"] for answer in answers) == [0, 1, 2]
    assert [a["id"] for a in answers if "isError" not in a["result"]] == [1]
    assert client.ok("maad_query", docType="note", limit=1)["results"]
    envelope = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    }
    status, body = _stateless(client, {**calls[0], "_meta": envelope})
    assert status == 200
    assert b"INVALID_ARGS" in body


def _stateless(client: Client, params: dict[str, Any]) -> tuple[int, bytes]:
    """A tool call of the revision without sessions."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    routing = {
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": params["name"],
    }
    headers = {name: text for name, text in client._headers.items() if name != "Mcp-Session-Id"}
    connection = http.client.HTTPConnection("127.0.0.1", client._port, timeout=30)
    connection.request("POST", "/mcp", json.dumps(message), headers | routing)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def test_another_runtime_directory_lets_no_second_daemon_in(
    instance: Instance, start: Any, tmp_path: Path
) -> None:
    first = start(instance)
    first.wait_until_listening()
    second = start(instance, MAADD_RUNTIME_DIR=str(tmp_path / "elsewhere"))
    assert second.process.wait(30) == 1
    assert "PROJECT_LOCKED" in second.log
    assert str(first.process.pid) in second.log


def test_recovery_into_a_deleted_index_is_no_index(instance: Instance, start: Any) -> None:
    daemon = start(instance)
    client = daemon.client(instance.token)
    client.ok("maad_use_project", name="main")
    client.ok("maad_create", docType="note", fields={"title": "Last"})
    os.kill(worker_pid(client), signal.SIGKILL)
    daemon.stop(signal.SIGKILL)
    for path in (instance.project / "_backend").glob("maad.db*"):
        path.unlink()
    again = start(instance).client(instance.token)
    again.ok("maad_use_project", name="main")
    error = again.call("maad_summary")["errors"][0]
    assert error["code"] == "INDEX_EMPTY"
    assert error["details"] == {"onDiskMarkdownFiles": 21}
    again.ok("maad_reindex")
    assert again.ok("maad_summary")["totalDocuments"] == 21
