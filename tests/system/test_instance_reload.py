"""A running daemon takes over another instance file (spec 04 §3; trap 20)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from daemon_bench import (
    BIN,
    ENVIRONMENT,
    Client,
    Daemon,
    eventually,
    is_alive,
    make_project,
    run,
)

from maadd.auth.issue import TokenSpec, parse_grants
from maadd.auth.registry import TokenRegistry
from maadd.cli.control_client import ControlConnection
from maadd.protocol.control import Attach, Attached, Leaving, decode_from_owner
from maadd.protocol.messages import Ready
from maadd.protocol.roles import Role


class Office:
    """An instance of several projects whose file can be written anew."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder = folder
        self.path = folder / "instance.yaml"
        self.declare(*names)
        self.token = issue(self.path, "admin", "*")

    def declare(self, *texts: str) -> None:
        """Write the file; a project is `name` or `name: more members`."""
        lines = ["name: office", "projects:"]
        for text in texts:
            name, _, more = text.partition(": ")
            if not (self.folder / name).exists():
                make_project(self.folder / name, records=2, indexed=True)
            members = f"name: {name}, path: ./{name}, role: admin"
            lines.append(f"  - {{{members}{', ' + more if more else ''}}}")
        self.path.write_text("\n".join(lines) + "\n")


def issue(instance: Path, role: str, projects: str) -> str:
    flags = (f"--instance={instance}", f"--role={role}", f"--projects={projects}", "--agent=a")
    return run(BIN / "maad", "auth", "issue-token", *flags).strip()


def issue_untold(instance: Path) -> str:
    """A reader's token of which no command tells the server."""
    registry = TokenRegistry.load(str(instance.parent / "_auth/tokens.yaml"))
    return registry.issue(TokenSpec(Role.READER, parse_grants("*"))).plaintext


def bound(daemon: Daemon, token: str, *names: str) -> Client:
    client = daemon.client(token)
    if len(names) == 1:
        client.ok("maad_use_project", name=names[0])
    else:
        client.ok("maad_use_projects", names=list(names))
    return client


def code_of(envelope: dict[str, Any]) -> str | None:
    return None if envelope["ok"] else str(envelope["errors"][0]["code"])


def pid_of(client: Client, **arguments: str) -> int:
    pid: int = client.ok("maad_health", **arguments)["worker"]["pid"]
    return pid


def lines(daemon: Daemon, name: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, daemon.log.splitlines()) if line.get("msg") == name]


def follow(daemon: Daemon, project: Path) -> ControlConnection:
    """The connection of a stdio server that shares a project, whose worker is up."""
    connection = ControlConnection(str(daemon.instance.parent / "run/control.sock"))
    assert isinstance(connection.ask(Attach(str(project), follow=True)), Attached)
    while not isinstance(decode_from_owner(connection.receive()), Ready):
        pass
    return connection


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path, "alpha", "beta")


def test_projects_come_and_go(office: Office, start: Any) -> None:
    daemon = start(office)
    admin = bound(daemon, office.token, "beta")
    on_alpha = bound(daemon, office.token, "alpha")
    on_both = bound(daemon, office.token, "alpha", "beta")
    on_alpha.ok("maad_summary")
    removed_worker = pid_of(on_alpha)
    stream, events = on_alpha.open_stream()
    kept_worker = pid_of(admin)
    followers = [follow(daemon, office.folder / name) for name in ("alpha", "beta")]

    office.declare("beta", "gamma")
    done = admin.ok("maad_instance_reload")
    assert (done["projectsAdded"], done["projectsRemoved"]) == (["gamma"], ["alpha"])
    assert (done["sessionsCancelled"], done["sessionsPruned"]) == (1, 1)

    # Who shares a project with this server is told, and takes it over.
    assert decode_from_owner(followers[0].receive()) == Leaving(removed=True)
    for follower in followers:
        follower.close()

    # Gone at once, through every door.
    assert events.read() == b""
    stream.close()
    assert not is_alive(removed_worker)
    assert code_of(on_alpha.call("maad_summary")) == "SESSION_CANCELLED"
    status, _, body = on_alpha.post({"jsonrpc": "2.0", "id": 9, "method": "tools/list"})
    assert (status, b"SESSION_NOT_FOUND" in body) == (404, True)
    assert code_of(on_both.call("maad_summary", project="alpha")) == "PROJECT_NOT_WHITELISTED"
    assert on_both.ok("maad_summary", project="beta")["totalDocuments"] == 2
    fresh = daemon.client(office.token)
    assert code_of(fresh.call("maad_use_project", name="alpha")) == "PROJECT_UNKNOWN"
    assert [p["name"] for p in fresh.ok("maad_projects")["projects"]] == ["beta", "gamma"]

    # Here at once; the others have noticed nothing.
    fresh.ok("maad_use_project", name="gamma")
    assert fresh.ok("maad_summary")["totalDocuments"] == 2
    assert pid_of(admin) == kept_worker

    # Pins follow the new list.
    assert _pin(daemon, office.token, "gamma") == 200
    assert _pin(daemon, office.token, "alpha") == 400

    health = admin.ok("maad_health")
    block = health["instance"]
    assert (block["projectCount"], block["reloadsAttempted"], block["reloadsSucceeded"]) == (
        2,
        1,
        1,
    )
    assert (block["projectsAdded"], block["projectsRemoved"]) == (1, 1)
    assert block["lastReloadAt"]
    (audited,) = lines(daemon, "instance_reload")
    assert audited["channel"] == "audit"
    assert (audited["projectsAddedNames"], audited["projectsRemovedNames"]) == (
        ["gamma"],
        ["alpha"],
    )


def test_what_is_refused_changes_nothing(office: Office, start: Any) -> None:
    daemon = start(office)
    admin = bound(daemon, office.token, "alpha")
    worker = pid_of(admin)
    good = office.path.read_text()
    for text, code in (
        ("name: [", "INSTANCE_RELOAD_FAILED"),
        (good.replace("./beta", "./elsewhere"), "INSTANCE_MUTATION_UNSUPPORTED"),
        (
            good.replace("path: ./alpha, role: admin", "path: ./alpha"),
            "INSTANCE_MUTATION_UNSUPPORTED",
        ),
    ):
        office.path.write_text(text)
        assert code_of(admin.call("maad_instance_reload")) == code
        assert pid_of(admin) == worker
    block = admin.ok("maad_health")["instance"]
    assert (block["reloadsAttempted"], block["reloadsFailed"], block["lastReloadAt"]) == (
        3,
        3,
        None,
    )
    office.path.write_text(good)
    done = admin.ok("maad_instance_reload")
    assert (done["projectsAdded"], done["projectsRemoved"]) == ([], [])
    # Of two at once, one is refused.
    call = {"name": "maad_instance_reload", "arguments": {}}
    _, _, body = admin.post(
        [
            {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}
            for number in (1, 2)
        ]
    )
    answers = [json.loads(line[6:])["result"] for line in body.splitlines() if line[:1] == b"d"]
    codes = [code_of(json.loads(one["content"][0]["text"])) for one in answers]
    assert sorted(codes, key=str) == ["INSTANCE_RELOAD_IN_PROGRESS", None]


def test_who_may_reload(office: Office, start: Any) -> None:
    narrow = issue(office.path, "admin", "alpha,beta:writer")
    daemon = start(office)
    unbound = daemon.client(office.token)
    assert code_of(unbound.call("maad_instance_reload")) == "SESSION_UNBOUND"
    lowered = daemon.client(office.token)
    lowered.ok("maad_use_projects", names=["alpha", "beta"], **{"as": "writer"})
    error = lowered.call("maad_instance_reload")["errors"][0]
    assert (error["code"], error["details"]) == ("INSUFFICIENT_ROLE", {"project": "alpha"})
    mixed = daemon.client(narrow)
    mixed.ok("maad_use_projects", names=["alpha", "beta"])
    error = mixed.call("maad_instance_reload")["errors"][0]
    assert (error["code"], error["details"]) == ("INSUFFICIENT_ROLE", {"project": "beta"})


def test_another_history_policy_restarts_one_worker_and_loses_nothing(
    office: Office, start: Any
) -> None:
    daemon = start(office)
    admin = bound(daemon, office.token, "alpha", "beta")
    restarted, kept = pid_of(admin, project="alpha"), pid_of(admin, project="beta")
    stop = threading.Event()
    acknowledged: list[str] = []
    failed: list[Any] = []

    def write() -> None:
        client = bound(daemon, office.token, "alpha")
        number = 0
        while not stop.is_set():
            doc_id = f"nte-new-{number}"
            number += 1
            answer = client.call(
                "maad_create", docType="note", docId=doc_id, fields={"title": doc_id}
            )
            if answer["ok"]:
                acknowledged.append(doc_id)
            else:
                failed.append(answer)

    writer = threading.Thread(target=write)
    writer.start()
    assert eventually(lambda: len(acknowledged) >= 10)
    office.declare("alpha: history_mode: feed", "beta")
    done = admin.ok("maad_instance_reload")
    assert done["projectsRestarted"] == ["alpha"]
    count = len(acknowledged)
    assert eventually(lambda: len(acknowledged) >= count + 10)
    stop.set()
    writer.join()
    assert failed == []
    assert pid_of(admin, project="alpha") != restarted
    assert pid_of(admin, project="beta") == kept
    assert admin.ok("maad_health", project="alpha")["history"]["effectiveMode"] == "feed"
    for doc_id in acknowledged:
        assert admin.call("maad_get", project="alpha", docId=doc_id)["ok"]

    # Under the policy without writes every tool that writes is refused, refreshing guides too.
    office.declare("alpha: history_mode: read", "beta")
    admin.ok("maad_instance_reload")
    for tool, arguments, code in (
        ("maad_create", {"docType": "note", "fields": {"title": "x"}}, "PROJECT_READ_ONLY"),
        ("maad_instructions", {"action": "refresh", "dryRun": False}, "READ_ONLY"),
    ):
        assert code_of(admin.call(tool, project="alpha", **arguments)) == code
    assert admin.ok("maad_instructions", project="alpha")["files"]


def test_a_policy_without_its_repository_refuses_the_reload(office: Office, start: Any) -> None:
    daemon = start(office)
    admin = bound(daemon, office.token, "alpha")
    worker = pid_of(admin)
    subprocess.run(["rm", "-r", str(office.folder / "beta/.git")], check=True)
    office.declare("alpha: history_mode: read", "beta: history_mode: audit")
    error = admin.call("maad_instance_reload")["errors"][0]
    assert error["code"] == "INSTANCE_RELOAD_FAILED"
    assert error["details"] == {"code": "GIT_NOT_INITIALIZED", "project": "beta"}
    assert pid_of(admin) == worker


def test_a_signal_reloads_instance_and_tokens(office: Office, start: Any) -> None:
    daemon = start(office, MAAD_WATCH="off", MAAD_TOKENS_POLL_MS="0")
    admin = bound(daemon, office.token, "alpha")
    fresh = issue_untold(office.path)
    port = daemon.wait_until_listening()
    assert Client(port, fresh).post({"jsonrpc": "2.0"})[0] == 401
    office.declare("alpha", "beta", "gamma")
    daemon.process.send_signal(signal.SIGHUP)
    assert eventually(lambda: bool(lines(daemon, "tokens_reload")))
    names = [p["name"] for p in admin.ok("maad_projects")["projects"]]
    assert names == ["alpha", "beta", "gamma"]
    bound(daemon, fresh, "gamma").ok("maad_summary")
    assert lines(daemon, "instance_reload")[0]["source"] == "sighup"

    # A bad file is logged; the tokens are reloaded all the same.
    latest = issue_untold(office.path)
    office.path.write_text("nonsense")
    daemon.process.send_signal(signal.SIGHUP)
    assert eventually(lambda: len(lines(daemon, "tokens_reload")) == 2)
    (line,) = lines(daemon, "sighup_reload_failed")
    assert (line["code"], line["event"]) == ("INSTANCE_RELOAD_FAILED", "sighup_reload_failed")
    daemon.client(latest)
    assert admin.ok("maad_summary")["totalDocuments"] == 2

    # A bad registry is logged; the tokens that were known go on.
    (office.folder / "_auth/tokens.yaml").write_text("tokens: 7\n")
    daemon.process.send_signal(signal.SIGHUP)
    assert eventually(lambda: bool(lines(daemon, "sighup_tokens_reload_failed")))
    (line,) = lines(daemon, "sighup_tokens_reload_failed")
    assert (line["code"], line["level"]) == ("TOKENS_FILE_INVALID", 40)
    assert line["event"] == "sighup_tokens_reload_failed"
    daemon.client(latest)


def test_a_signal_reloads_also_over_standard_input_and_output(office: Office) -> None:
    server = subprocess.Popen(
        [BIN / "maad", f"--instance={office.path}", "serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**ENVIRONMENT, "MAADD_RUNTIME_DIR": str(office.folder / "run")},
    )
    assert server.stdin is not None
    assert server.stdout is not None
    assert server.stderr is not None
    number = 0

    def ask(method: str, **params: Any) -> dict[str, Any]:
        nonlocal number
        number += 1
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        server.stdin.write(json.dumps(message) + "\n")
        server.stdin.flush()
        answer: dict[str, Any] = json.loads(server.stdout.readline())
        return answer["result"]

    def call(tool: str, **arguments: Any) -> dict[str, Any]:
        result = ask("tools/call", name=tool, arguments=arguments)
        envelope: dict[str, Any] = json.loads(result["content"][0]["text"])
        return envelope

    ask(
        "initialize",
        protocolVersion="2025-11-25",
        capabilities={},
        clientInfo={"name": "test", "version": "1"},
    )
    office.declare("beta", "gamma")
    lowered = office.path.read_text().replace("./gamma, role: admin", "./gamma, role: reader")
    office.path.write_text(lowered)
    os.kill(server.pid, signal.SIGHUP)
    while '"msg":"tokens_reload"' not in server.stderr.readline():
        pass
    assert [p["name"] for p in call("maad_projects")["data"]["projects"]] == ["beta", "gamma"]

    # Whoever owns the process has no limit of scope, but the ceilings of the projects.
    assert code_of(call("maad_use_project", name="gamma", **{"as": "admin"})) == (
        "ROLE_UPGRADE_DENIED"
    )
    call("maad_use_project", name="beta")
    assert call("maad_list_tokens")["data"]["total"] == 1
    issued = call("maad_issue_token", role="admin", projects=[{"name": "*"}], agentId="a")
    assert issued["data"]["plaintext"].startswith("maad_pat_")
    assert call("maad_instance_reload")["data"]["tokens"]["total"] == 2
    server.stdin.close()
    assert server.wait(20) == 0
    server.stderr.close()


def test_a_single_project_has_neither_instance_nor_tokens(tmp_path: Path) -> None:
    project = make_project(tmp_path / "main", records=1, indexed=True)
    calls = [
        ("maad_instance_reload", {}),
        ("maad_list_tokens", {}),
        ("maad_show_token", {"id": "x"}),
    ]
    messages = [
        {
            "jsonrpc": "2.0",
            "id": 0,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        },
        *(
            {
                "jsonrpc": "2.0",
                "id": number,
                "method": "tools/call",
                "params": {"name": tool, "arguments": arguments},
            }
            for number, (tool, arguments) in enumerate(calls, 1)
        ),
    ]
    server = subprocess.Popen(
        [BIN / "maad", f"--project={project}", "serve", "--role=admin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**ENVIRONMENT, "MAADD_RUNTIME_DIR": str(tmp_path / "run")},
    )
    assert server.stdin is not None
    assert server.stdout is not None
    codes = []
    for message in messages:
        server.stdin.write(json.dumps(message) + "\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
        if message["id"]:
            text = answer["result"]["content"][0]["text"]
            codes.append(json.loads(text)["errors"][0]["code"])
    assert codes == ["INSTANCE_RELOAD_SYNTHETIC", "TOKENS_FILE_MISSING", "TOKENS_FILE_MISSING"]
    server.stdin.close()
    assert server.wait(20) == 0


def _pin(daemon: Daemon, token: str, project: str) -> int:
    client = Client(daemon.wait_until_listening(), token)
    client._headers["X-Maad-Pin-Project"] = project
    status, _, _ = client.post(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        }
    )
    client.close()
    return status
