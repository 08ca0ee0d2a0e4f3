"""A server on standard input and output (spec 04 §10; traps 31-33)."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from daemon_bench import descendants, eventually, is_alive, make_project
from stdio_bench import Stdio

from maadd.protocol.roles import parse_role
from maadd.protocol.tools import TOOLS
from maadd_worker.instructions.stamp import stamped


def session_of(lines: list[dict[str, Any]]) -> tuple[str, str]:
    """The id of the one session in the log, and why it was closed."""
    [opened] = [line for line in lines if line["msg"] == "session_open"]
    [closed] = [line for line in lines if line["msg"] == "session_close"]
    assert (opened["channel"], opened["transport"]) == ("audit", "stdio")
    assert closed["session_id"] == opened["session_id"]
    assert closed["duration_ms"] >= 0
    return opened["session_id"], closed["reason"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "main", records=3, indexed=True)


def test_a_single_project_is_bound_by_itself(project: Path) -> None:
    server = Stdio(project, "--role=writer")
    server.initialize()
    assert server.call("maad_summary")["data"]["totalDocuments"] == 3
    created = server.call("maad_create", docType="note", fields={"title": "Mine"})
    assert created["data"]["docId"] == "nte-mine"
    assert server.call("maad_delete", docId="nte-mine")["errors"][0]["code"] == "INVALID_ARGS"
    assert server.process.stdin is not None
    server.process.stdin.close()
    assert server.process.wait(10) == 0


@pytest.mark.parametrize("role", ["reader", "writer", "admin"])
def test_every_role_is_offered_the_guides_and_admins_refresh_them(project: Path, role: str) -> None:
    server = Stdio(project, f"--role={role}")
    server.initialize()
    server.send({"jsonrpc": "2.0", "id": 0, "method": "tools/list"})
    offered = {one["name"] for one in server.receive()["result"]["tools"]}
    rank = parse_role(role)
    assert rank is not None
    # Those of its role, `maad_subscribe` too, and none for choosing a project.
    assert offered == {
        name
        for name, spec in TOOLS.items()
        if spec.available and spec.min_role is not None and spec.min_role <= rank
    }
    if role == "admin":
        health = server.call("maad_health")["data"]["instance"]
        assert (health["name"], health["source"]) == ("main-legacy", "synthetic")
    states = {one["state"] for one in server.call("maad_instructions")["data"]["files"]}
    assert states == {"current"}
    (project / "MAAD.md").unlink()
    assert server.call("maad_summary")["data"]["instructionsStale"] == [
        {"path": "MAAD.md", "state": "missing"}
    ]
    answer = server.call("maad_instructions", action="refresh", dryRun=False)
    if role == "admin":
        assert answer["data"]["written"] == ["MAAD.md"]
        health = server.call("maad_health")["data"]
        assert set(health["transport"]) == {"kind", "uptimeSeconds"}
        sessions = {name: health["sessions"][name] for name in ("active", "pinned", "openedTotal")}
        assert sessions == {"active": 1, "pinned": 0, "openedTotal": 0}
    else:
        assert answer["errors"][0]["code"] == "INSUFFICIENT_ROLE"
    assert (project / "MAAD.md").exists() == (role == "admin")
    assert server.process.stdin is not None
    server.process.stdin.close()
    assert server.process.wait(10) == 0


def test_outdated_guides_are_told_once_in_the_log(project: Path) -> None:
    (project / "MAAD.md").write_bytes(stamped("maad-md", "0.18.5", b"# Older\n"))
    server = Stdio(project, MAAD_LOG_LEVEL="warn")
    server.initialize()
    server.call("maad_summary")
    server.call("maad_instructions")
    _, log = server.process.communicate(timeout=10)
    lines = [json.loads(line) for line in log.splitlines()]
    [line] = [line for line in lines if line["msg"] == "instructions_outdated"]
    # The client ended its input; SIGTERM is another reason.
    assert session_of(lines)[1] == "client"
    assert line["project_root"] == str(project)
    assert line["stale"] == [{"file": "MAAD.md", "state": "outdated"}]
    assert (project / "MAAD.md").read_bytes().endswith(b"# Older\n")


def test_the_end_of_input_ends_every_process(project: Path) -> None:
    server = Stdio(project)
    server.initialize()
    below = descendants(server.process.pid)
    assert below
    assert server.process.stdin is not None
    server.process.stdin.close()
    assert server.process.wait(4) == 0
    assert eventually(lambda: not any(map(is_alive, below)), 2)


def test_the_end_of_input_waits_two_seconds_for_a_worker_that_hangs(project: Path) -> None:
    server = Stdio(project, "--role=admin")
    server.initialize()
    server.call("maad_summary")
    below = descendants(server.process.pid)
    os.kill(server.call("maad_health")["data"]["worker"]["pid"], signal.SIGSTOP)
    assert server.process.stdin is not None
    server.process.stdin.close()
    # Other stops give a worker seven.
    assert server.process.wait(5) == 0
    assert eventually(lambda: not any(map(is_alive, below)), 2)


def test_a_killed_parent_leaves_nothing(project: Path) -> None:
    server = Stdio(project)
    server.initialize()
    below = descendants(server.process.pid)
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait(10)
    assert eventually(lambda: not any(map(is_alive, below)), 4)


def test_a_line_that_is_not_json_gets_an_error_and_the_next_one_an_answer(project: Path) -> None:
    server = Stdio(project)
    assert server.process.stdin is not None
    server.process.stdin.write(b"{nonsense\n")
    server.process.stdin.flush()
    assert server.receive()["error"]["code"] == -32700
    server.initialize()
    server.process.stdin.close()
    assert server.process.wait(10) == 0


def test_an_empty_index_refuses_the_start_and_names_the_way_out(tmp_path: Path) -> None:
    project = make_project(tmp_path / "main", records=3)
    server = Stdio(project)
    assert server.process.wait(30) == 1
    assert server.process.stderr is not None
    text = server.process.stderr.read().decode()
    assert "INDEX_EMPTY" in text
    assert "maad reindex" in text
    assert server.process.stdout is not None
    assert server.process.stdout.read() == b""


def test_the_environment_can_rebuild_at_start(tmp_path: Path) -> None:
    project = make_project(tmp_path / "main", records=3)
    server = Stdio(project, MAAD_BOOT_REINDEX="1")
    server.initialize()
    assert server.call("maad_summary")["data"]["totalDocuments"] == 3
    server.process.send_signal(signal.SIGTERM)
    _, log = server.process.communicate(timeout=10)
    assert server.process.returncode == 0
    session, reason = session_of([json.loads(line) for line in log.splitlines()])
    assert (session[:6], len(session), reason) == ("stdio-", 42, "shutdown")
