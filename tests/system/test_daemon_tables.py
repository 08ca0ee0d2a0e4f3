"""Rows of spec 04's tables that only a whole daemon shows: binding, limits, drain, logs."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

from daemon_bench import Client, Daemon, Instance, eventually, make_project
from stuck_call import StuckCall, scrape

from maadd.auth.issue import TokenSpec, parse_grants
from maadd.auth.registry import TokenRegistry
from maadd.protocol.roles import Role
from maadd.protocol.tools import TOOLS


def code(envelope: dict[str, Any]) -> str:
    assert envelope["ok"] is False, envelope
    found: str = envelope["errors"][0]["code"]
    return found


def details(envelope: dict[str, Any]) -> Any:
    return envelope["errors"][0]["details"]


def registry(instance: Instance) -> TokenRegistry:
    return TokenRegistry.load(str(instance.path.parent / "_auth/tokens.yaml"))


LATER = "2099-01-01T00:00:00.000Z"


def issue(instance: Instance, role: Role, projects: str, expires: str | None = None) -> str:
    """A token for projects as in `main:reader,second`."""
    spec = TokenSpec(role=role, projects=parse_grants(projects), expires_at=expires)
    return registry(instance).issue(spec).plaintext


def log_lines(daemon: Daemon) -> list[dict[str, Any]]:
    return [json.loads(line) for line in daemon.log.splitlines()]


def send(client: Client, method: str, **headers: str) -> int:
    """A request to /mcp without a body; its status."""
    connection = http.client.HTTPConnection("127.0.0.1", client._port, timeout=20)
    connection.request(method, "/mcp", headers={**client._headers, **headers})
    status = connection.getresponse().status
    connection.close()
    return status


HEALTH = {
    None: "projectRoot initialized readOnly gitAvailable indexExists lastIndexedAt totalDocuments "
    "registeredTypes recoveryActions emptyProject bootstrapHint writeQueueDepth lastWriteOp "
    "lastWriteAt writeLatencyMs repoSizeBytes gitClean diskHeadroomMb commitFailuresTotal "
    "lastCommitFailureAt lastCommitFailureCode lastCommitFailureAction lastCommitFailureDocId "
    "lastIntegritySweepAt lastIntegrityFindings lastBackupTag history provenance transport "
    "sessions instance runtime embeddings worker watcher jobs advisories",
    "history": "effectiveMode configuredMode modeSource pendingWrites oldestPendingAt nextFlushAt "
    "lastSuccessfulFlush lastFlushError flushesTotal flushFailuresTotal gitPath advisories",
    "transport": "kind host port uptimeSeconds",
    "sessions": "active pinned openedTotal closedTotal lastOpenedAt lastClosedAt "
    "idleSweepLastRunAt subscribed byProject byIdentity",
    "instance": "name source configPath projectCount lastReloadAt reloadsAttempted "
    "reloadsSucceeded reloadsFailed projectsAdded projectsRemoved",
    "runtime": "workers version memoryPressure heavyOpGuard tokenChanges",
    "embeddings": "enabled provider model dim vecReady queueDepth embeddedBlocks indexedBlocks "
    "failures failedBlocks lastError lastSuccessAt oldestQueuedAt",
    "worker": "pid state startedAt restarts lastHeartbeatAt rssMb queueDepth lastError lastExit",
    "watcher": "enabled mode lastEventAt pendingEvents overflowTotal",
}
"""The members of `maad_health` over HTTP, and of the objects in it (spec 03 §6.3)."""

RUNTIME = {
    "memoryPressure": "enabled intervalMs thresholdRatio lastSampleAt heapUsedMb heapCapMb ratio "
    "heapRatio rssMb externalMb arrayBuffersMb cgroupCurrentMb cgroupMaxMb cgroupRatio inPressure "
    "heapInPressure cgroupInPressure lastPressureAt pressureFiresTotal",
    "heavyOpGuard": "enabled minFreeHeapMb maxConcurrent inFlight breakerOpen shedTotal "
    "coalescedTotal concurrencyRejectedTotal breakerTrippedTotal breakerRejectedTotal lastShedAt",
}

MODERN = "2026-07-28"


def stateless(port: int, token: str, tool: str, pin: str = "", **arguments: Any) -> dict[str, Any]:
    """The envelope of a call that belongs to no session."""
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": tool,
            "arguments": arguments,
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    }
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(
        "POST", "/mcp", json.dumps(body), headers | ({"X-Maad-Pin-Project": pin} if pin else {})
    )
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.headers["mcp-session-id"] is None
    result = json.loads(answer.read())["result"]
    connection.close()
    envelope: dict[str, Any] = json.loads(result["content"][0]["text"])
    assert result.get("isError", False) is not envelope["ok"]
    return envelope


def check_members(health: dict[str, Any]) -> None:
    """Health has every member of its table and no other."""
    for name, members in HEALTH.items():
        block = health if name is None else health[name]
        assert set(block) == set(members.split()), name
    for name, members in RUNTIME.items():
        assert set(health["runtime"][name]) == set(members.split()), name
    assert {tuple(sorted(one)) for one in health["runtime"]["workers"]} == {
        ("limitMb", "project", "rssMb", "state")
    }
    assert (health["emptyProject"], health["bootstrapHint"]) == (False, None)
    assert health["embeddings"]["enabled"] is False
    assert not any(health["embeddings"].values())
    assert health["diskHeadroomMb"] > 0
    assert health["provenance"] == "off"
    assert health["runtime"]["memoryPressure"]["externalMb"] is None
    assert health["runtime"]["memoryPressure"]["arrayBuffersMb"] is None


def check_stateless(port: int, root: str, narrow: str, single: str, local: str) -> None:
    """Section 9.8. `single` reads one project, `local` administers one."""
    assert stateless(port, single, "maad_get", docId="nte-0")["data"]["docId"] == "nte-0"
    for token, project, expected in (
        (narrow, {}, "PROJECT_REQUIRED"),
        (narrow, {"project": "none"}, "PROJECT_UNKNOWN"),
        (narrow, {"project": "third"}, "TOKEN_PROJECT_FORBIDDEN"),
    ):
        assert code(stateless(port, token, "maad_get", docId="nte-0", **project)) == expected
    assert stateless(port, narrow, "maad_get", docId="nte-0", project="main")["ok"]
    assert stateless(port, narrow, "maad_get", pin="main", docId="nte-0")["ok"]
    refused = stateless(port, narrow, "maad_get", pin="main", docId="nte-0", project="second")
    assert code(refused) == "PROJECT_NOT_WHITELISTED"
    arguments = {"docType": "note", "fields": {"title": "x"}}
    refused = stateless(port, narrow, "maad_create", project="main", **arguments)
    assert code(refused) == "INSUFFICIENT_ROLE"
    for tool, given in (
        ("maad_use_project", {"name": "main"}),
        ("maad_use_projects", {"names": ["main"]}),
        ("maad_subscribe", {}),
        ("maad_unsubscribe", {}),
    ):
        refused = stateless(port, narrow, tool, **given)
        assert code(refused) == "SESSION_STATELESS"
        assert "project" in refused["errors"][0]["message"]
    # Section 17: an administrator of one project sees nothing of the others.
    partial = stateless(port, local, "maad_health")["data"]
    whole = stateless(port, root, "maad_health", project="main")["data"]
    for seen, everything in ((partial, False), (whole, True)):
        workers = {one["project"] for one in seen["runtime"]["workers"]}
        assert workers == ({"main", "second", "third"} if everything else {"main"})
        assert (seen["instance"]["configPath"] is not None) is everything
        assert (seen["projectRoot"] is not None) is everything
        assert set(seen["sessions"]["byProject"]) <= workers
        assert seen["transport"]["kind"] == "http"
        assert seen["worker"]["state"] == "ready"
    assert set(whole["sessions"]["byProject"]) == {"main", "second"}
    check_members(whole)
    state = stateless(port, narrow, "maad_current_session")["data"]
    assert (state["sessionId"], state["mode"], state["binding_source"]) == (None, None, None)


def test_binding_roles_and_what_the_logs_say_of_it(tmp_path: Path, start: Any) -> None:
    """Sections 4.2, 4.3, 4.4, 5.1 and 16."""
    instance = Instance(tmp_path, records=2)
    with instance.path.open("a") as file:
        for name, role in (("second", "writer"), ("third", "reader")):
            make_project(tmp_path / name, records=1)
            file.write(f"  - name: {name}\n    path: ./{name}\n    role: {role}\n")
    narrow = issue(instance, Role.WRITER, "main:reader,second")
    others = issue(instance, Role.READER, "main"), issue(instance, Role.ADMIN, "main")
    expiring = issue(instance, Role.READER, "main", LATER)
    daemon = start(instance, MAAD_BOOT_REINDEX="1", MAAD_WATCH="off", MAAD_TOKENS_POLL_MS="0")

    daemon.client(expiring)
    client = daemon.client(narrow)
    shown = client.ok("maad_projects")
    assert {one["name"]: one["role"] for one in shown["projects"]} == {
        "main": "reader",
        "second": "writer",
    }
    assert shown["sessionBound"] is False
    assert client.ok("maad_current_session")["mode"] is None
    # A failed bind changes nothing and may be tried again.
    assert code(client.call("maad_use_project", name="none")) == "PROJECT_UNKNOWN"
    assert code(client.call("maad_use_project", name="third")) == "TOKEN_PROJECT_FORBIDDEN"
    assert code(client.call("maad_use_project", name="main", **{"as": "writer"})) == (
        "ROLE_UPGRADE_DENIED"
    )
    assert code(client.call("maad_use_projects", names=["main", "third"])) == (
        "TOKEN_PROJECT_FORBIDDEN"
    )
    assert client.ok("maad_current_session")["mode"] is None
    bound = client.ok("maad_use_projects", names=["second", "main", "second"])
    assert bound == {
        "mode": "multi",
        "whitelist": ["second", "main"],
        "effectiveRoles": {"second": "writer", "main": "reader"},
    }
    for tool, names in (("maad_use_project", {"name": "main"}), ("maad_use_projects", {
        "names": ["main"]})):  # fmt: skip
        assert code(client.call(tool, **names)) == "SESSION_ALREADY_BOUND"
    assert code(client.call("maad_summary")) == "PROJECT_REQUIRED"
    assert code(client.call("maad_summary", project="third")) == "PROJECT_NOT_WHITELISTED"
    arguments = {"docType": "note", "fields": {"title": "x"}}
    assert code(client.call("maad_create", project="main", **arguments)) == "INSUFFICIENT_ROLE"

    single = daemon.client(instance.token)
    assert single.ok("maad_use_project", name="main", **{"as": "reader"}) == {
        "mode": "single",
        "activeProject": "main",
        "effectiveRole": "reader",
    }
    assert code(single.call("maad_get", project="second", docId="nte-0")) == (
        "PROJECT_NOT_WHITELISTED"
    )
    assert code(single.call("maad_create", **arguments)) == "INSUFFICIENT_ROLE"

    pinned = Client(daemon.wait_until_listening(), instance.token)
    pinned._headers["X-Maad-Pin-Project"] = "second"
    pinned.request("initialize", {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "gateway", "version": "1"},
    })  # fmt: skip
    del pinned._headers["X-Maad-Pin-Project"]
    for tool, names in (("maad_use_project", {"name": "main"}), ("maad_use_projects", {
        "names": ["main"]})):  # fmt: skip
        refused = pinned.call(tool, **names)
        assert code(refused) == "SESSION_PINNED"
        assert "second" in refused["errors"][0]["message"]
    state = pinned.ok("maad_current_session")
    assert (state["activeProject"], state["binding_source"]) == ("second", "gateway_pin")
    assert state["effectiveRoles"] == {"second": "writer"}

    check_stateless(daemon.wait_until_listening(), instance.token, narrow, *others)
    # Refusals, each with its line.
    assert send(single, "GET", Origin="http://evil.example") == 403
    assert send(single, "GET", Authorization="Bearer nonsense") == 401
    assert send(single, "GET", **{"X-Maad-Pin-Project": "none"}) == 400
    assert send(single, "GET", Authorization=f"Bearer {narrow}") == 404
    # Ends of sessions, each with its reason.
    assert send(single, "DELETE") == 200
    record = client.ok("maad_current_session")["token"]["tokenId"]
    registry(instance).revoke(record)
    stored = instance.path.parent / "_auth/tokens.yaml"
    stored.write_text(stored.read_text().replace(LATER, "2001-01-01T00:00:00.000Z"))
    daemon.process.send_signal(signal.SIGHUP)
    assert eventually(lambda: daemon.log.count('"reason":"auth"') == 2)
    assert daemon.stop() == 0

    told = log_lines(daemon)
    first = {line["msg"]: line for line in reversed(told)}
    assert told[0]["msg"] == "ops_channel_ready"
    assert (told[0]["destination"], told[0]["pid"]) == ("stderr", daemon.process.pid)
    assert first["origin_rejected"]["origin"] == "http://evil.example"
    assert first["auth_failure"]["reason"] == "malformed"
    assert first["pin_rejected"]["code"] == "PIN_ON_EXISTING_SESSION"
    mismatch = first["session_principal_mismatch"]
    assert (mismatch["level"], mismatch["presented_token_id"]) == (40, record)
    evicted = [line["reason"] for line in told if line["msg"] == "session_token_evicted"]
    assert sorted(evicted) == ["expired", "revoked"]
    for name in ("instance_reload_start", "instance_reload_complete"):
        assert (first[name]["source"], "phase" in first[name]) == ("sighup", True)
    assert {"total", "active"} <= first["tokens_reload"].keys()
    assert first["instance_reload"]["channel"] == "audit"
    calls = [line for line in told if line["msg"] == "tool_call" and "result" in line]
    assert {"request_id", "session_id", "project", "tool", "role", "payload_size", "latency_ms",
            "result", "error_code"} <= calls[0].keys()  # fmt: skip
    # One line for each call, rejected ones too.
    refused_codes = [line["error_code"] for line in calls if line["result"] == "error"]
    assert refused_codes.count("SESSION_ALREADY_BOUND") == 2
    assert refused_codes.count("SESSION_PINNED") == 2
    opened = [line for line in told if line["msg"] == "session_open"]
    assert [line.get("binding_source") for line in opened] == [None] * 3 + ["gateway_pin"]
    assert {line["transport"] for line in opened} == {"http"}
    closed = [line["reason"] for line in told if line["msg"] == "session_close"]
    assert sorted(closed) == ["auth", "auth", "shutdown", "transport"]


def test_limits_of_a_session(unindexed: Instance, start: Any) -> None:
    """Sections 12.1, 12.2 and 12.6."""
    daemon = start(
        unindexed,
        "--tools=maad_use_project,maad_create,maad_bulk_create,maad_get,maad_health",
        MAAD_BOOT_REINDEX="1",
        MAAD_RL_DISABLE="0",
        MAAD_RL_WRITES_PER_SEC="2",
        MAAD_RL_WRITES_PER_MIN="2",
        MAAD_RL_CONCURRENT="1",
        MAAD_RL_PAYLOAD_BYTES="3000",
        MAAD_BULK_MAX_ITEMS="3",
    )
    client, other = daemon.client(unindexed.token), daemon.client(unindexed.token)
    client.ok("maad_use_project", name="main")
    other.ok("maad_use_project", name="main")

    refused = client.call("maad_summary")
    assert (code(refused), details(refused)["reason"]) == ("INSUFFICIENT_ROLE", "allowlist")
    listed = client.request("tools/list", {})["result"]["tools"]
    assert len(listed) == 5

    refused = client.call("maad_get", docId="x" * 3000)
    assert (code(refused), details(refused)["reason"]) == ("RATE_LIMITED", "payload_too_large")
    assert (details(refused)["limit"], details(refused)["size"] > 3000) == (3000, True)
    assert details(refused)["retryAfterMs"] is None

    records = [{"docType": "note", "fields": {"title": f"r{number}"}} for number in range(4)]
    refused = client.call("maad_bulk_create", records=records)
    assert code(refused) == "BULK_LIMIT_EXCEEDED"
    assert details(refused) == {
        "tool": "maad_bulk_create", "received": 4, "limit": 3, "suggestedChunkSize": 3,
    }  # fmt: skip

    def create(number: int) -> dict[str, Any]:
        return client.call("maad_create", docType="note", fields={"title": f"n{number}"})

    outcomes = [create(number) for number in range(6)]
    assert outcomes[0]["ok"]
    limited = [one for one in outcomes if not one["ok"]]
    assert limited
    assert {code(one) for one in limited} == {"RATE_LIMITED"}
    assert {details(one)["reason"] for one in limited} <= {"writes_per_sec", "writes_per_min"}
    assert all(details(one)["retryAfterMs"] > 0 for one in limited)
    # The buckets belong to the token, however many sessions it opens.
    again = other.call("maad_create", docType="note", fields={"title": "again"})
    assert code(again) == "RATE_LIMITED"

    pid = client.ok("maad_health")["worker"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    waiting = threading.Thread(
        target=client.twin().call, args=("maad_get",), kwargs={"docId": "nte-1"}
    )
    waiting.start()
    refusals: list[dict[str, Any]] = []

    def is_busy() -> bool:
        refusals[:] = [client.call("maad_use_project", name="main")]
        return code(refusals[0]) == "RATE_LIMITED"

    assert eventually(is_busy)
    assert details(refusals[0])["reason"] == "concurrent"
    os.kill(pid, signal.SIGCONT)
    waiting.join(20)
    assert client.ok("maad_get", docId="nte-2")
    assert daemon.stop() == 0


def test_settings_that_shape_the_answers(unindexed: Instance, start: Any) -> None:
    """Sections 1, 1.1, 5.2, 7.1 and 12.3."""
    reader = issue(unindexed, Role.READER, "main")
    # A server with an active token takes no notice of the legacy one.
    daemon = start(
        unindexed,
        "--prov=on",
        "--auth-token=ignored",
        MAAD_BOOT_REINDEX="1",
        MAAD_STRUCTURED_CONTENT="1",
        MAAD_FILTER_TOOLS="1",
        MAAD_RESPONSE_MAX_BYTES="4000",
    )
    for token, role in ((reader, Role.READER), (unindexed.token, Role.ADMIN)):
        client = daemon.client(token)
        client.ok("maad_use_project", name="main")
        listed = {one["name"] for one in client.request("tools/list", {})["result"]["tools"]}
        assert listed == {
            name
            for name, spec in TOOLS.items()
            if spec.available and (spec.min_role or Role.READER) <= role
        }

    call = {"name": "maad_get", "arguments": {"docId": "nte-1"}}
    result = client.request("tools/call", call)["result"]
    (item,) = result["content"]
    envelope = json.loads(item["text"])
    assert (list(envelope), envelope["_source"]) == (["ok", "data", "_source"], "maad_get")
    assert (item["type"], result["structuredContent"]) == ("text", envelope)
    assert "_source" not in client.call("maad_get", docId="nte-none")

    asked = {"docType": "note", "fields": {"title": "Once"}, "idempotencyKey": "k"}
    first, again = client.call("maad_create", **asked), client.call("maad_create", **asked)
    assert (first["ok"], again["data"]) == (True, first["data"])
    assert again["_meta"]["replayed"] is True
    assert again["_meta"]["original_request_id"] != again["_meta"]["request_id"]
    assert again["_meta"]["original_completed_at"]
    reused = client.call("maad_create", **asked | {"fields": {"title": "Twice"}})
    assert code(reused) == "IDEMPOTENCY_KEY_REUSED"

    records = [{"docType": "note", "fields": {"title": f"r{number}"}} for number in range(50)]
    done = client.call("maad_bulk_create", records=records)
    cut = done["_meta"]["truncated"]["lists"]["data.succeeded"]
    assert cut == {"shown": len(done["data"]["succeeded"]), "total": 50}
    assert 0 < cut["shown"] < 50
    assert client.ok("maad_query", docType="note", limit=1)["total"] == 20 + 1 + 50
    assert daemon.stop() == 0


def test_a_drain_refuses_new_work_and_a_second_signal_ends_it(
    unindexed: Instance, start: Any, tmp_path: Path
) -> None:
    """Section 15, and SIGUSR1 of 16."""
    audit, metrics = tmp_path / "audit.log", tmp_path / "m.sock"
    daemon = start(
        unindexed, MAAD_BOOT_REINDEX="1", MAAD_AUDIT_PATH=str(audit), MAADD_METRICS=str(metrics)
    )
    client, other = daemon.client(unindexed.token), daemon.client(unindexed.token)
    for one in (client, other):
        one.ok("maad_use_project", name="main")
    audit.rename(tmp_path / "audit.log.1")
    daemon.process.send_signal(signal.SIGUSR1)
    assert eventually(audit.exists)

    health = http.client.HTTPConnection("127.0.0.1", daemon.wait_until_listening(), timeout=20)
    health.request("GET", "/healthz")
    assert health.getresponse().read() == b'{"ok":true}'
    stuck = StuckCall(
        client, metrics, tool="maad_create", docType="note", fields={"title": "Cut off"}
    )
    daemon.process.send_signal(signal.SIGTERM)
    assert eventually(lambda: '"msg":"shutdown_start"' in daemon.log)
    assert code(other.call("maad_get", docId="nte-2")) == "SHUTTING_DOWN"
    assert code(other.call("maad_projects")) == "SHUTTING_DOWN"
    assert b"maadd_draining 1.0" in scrape(metrics)
    health.request("GET", "/healthz")
    answer = health.getresponse()
    assert (answer.status, b"SHUTTING_DOWN" in answer.read()) == (503, True)
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(30) == 1
    stuck.join()
    # A worker had it: whether it was done, nobody knows.
    assert code(stuck.answer) == "WORKER_LOST"
    assert details(stuck.answer) == {"tool": "maad_create", "writeOutcome": "unknown_reconcile"}
    assert '"msg":"shutdown_forced"' in daemon.log
    events = [json.loads(line)["msg"] for line in audit.read_text().splitlines()]
    assert events == ["session_close"] * 2


def test_stuck_work_ends_the_drain_with_one(
    unindexed: Instance, start: Any, tmp_path: Path
) -> None:
    """Section 15; before it a write that outlasts its time and one that waits for it too long
    (steps 15 and 16 of 6, and 16)."""
    metrics, gate = tmp_path / "m.sock", tmp_path / "gate"
    os.mkfifo(gate)
    daemon = start(
        unindexed,
        MAAD_BOOT_REINDEX="1",
        MAAD_SHUTDOWN_TIMEOUT_MS="100",
        MAADD_METRICS=str(metrics),
        MAAD_REQUEST_TIMEOUT_MS="1500",
        MAADD_FAILPOINTS=f"file.published=pause:{gate}@1;git.objects=error:ENOSPC@1",
    )
    client = daemon.client(unindexed.token)
    client.ok("maad_use_project", name="main")
    # The start, too, may outlast the time of a call.
    assert eventually(lambda: client.call("maad_summary")["ok"], 30)
    late: list[dict[str, Any]] = []
    writing = threading.Thread(
        target=lambda: late.append(
            client.twin().call("maad_create", docType="note", fields={"title": "Late"})
        )
    )
    writing.start()
    assert eventually((unindexed.project / "notes/nte-late.md").exists)
    behind = client.call("maad_create", docType="note", fields={"title": "Behind"})
    assert code(behind) == "WRITE_TIMEOUT"
    assert details(behind)["waitedMs"] >= 1250
    assert details(behind)["queueDepth"] == 2
    writing.join(20)
    (late_answer,) = late
    assert code(late_answer) == "REQUEST_TIMEOUT"
    assert details(late_answer) == {
        "tool": "maad_create", "limitMs": 1500, "writeOutcome": "unknown_reconcile",
    }  # fmt: skip
    gate.write_bytes(b"")
    assert eventually(lambda: '"msg":"tool_call_overrun"' in daemon.log)
    # Nothing of it was written, now or later.
    assert client.ok("maad_query", docType="note", filters={"title": "Behind"})["total"] == 0
    stuck = StuckCall(client, metrics)
    daemon.process.send_signal(signal.SIGTERM)
    assert eventually(lambda: '"msg":"shutdown_timeout"' in daemon.log)
    os.kill(stuck.worker, signal.SIGCONT)
    assert daemon.stop() == 1
    stuck.join()
    assert code(stuck.answer) == "SHUTTING_DOWN"
    told = {line["msg"]: line for line in log_lines(daemon)}
    assert (told["shutdown_timeout"]["in_flight"], told["shutdown_timeout"]["level"]) == (1, 40)
    assert told["shutdown_complete"]["drain_timed_out"] is True
    overrun = told["tool_call_overrun"]
    assert (overrun["level"], overrun["event"], overrun["error"]) == (40, overrun["msg"], None)
    assert (overrun["tool"], overrun["limit_ms"]) == ("maad_create", 1500)
    timed_out = [one for one in log_lines(daemon) if one.get("error_code") == "REQUEST_TIMEOUT"]
    assert overrun["request_id"] == timed_out[0]["request_id"]
    (slow,) = [one for one in log_lines(daemon) if one.get("operation") == "write_slow"]
    assert (slow["level"], slow["event"], slow["category"]) == (40, "engine", "engine")
    assert (slow["op"], slow["elapsedMs"] > 1000) == ("maad_create", True)
    assert slow["queueDepthOnEnter"] == 1
    assert slow["requestIds"] == [overrun["request_id"]]
    failed = told["commit_failed"]
    assert (failed["level"], failed["code"], failed["action"], failed["file_count"]) == (
        40, "GIT_COMMIT_FAILED", "create", 1,
    )  # fmt: skip
    assert (failed["doc_id"], failed["doc_type"]) == ("nte-late", "note")
    assert failed["message"]
