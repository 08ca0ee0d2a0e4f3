"""Tokens of a running daemon: issued, rotated and revoked, by tool and by command (spec 04 §8,
§7.3, §9.4)."""

from __future__ import annotations

import http.client
import json
import time
from pathlib import Path
from typing import Any

import pytest
from daemon_bench import BIN, Client, Daemon, Instance, run

from maadd.auth.timestamps import format_timestamp


class Stream:
    """The standalone stream of a session."""

    def __init__(self, client: Client, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        headers = {**client._headers, "Accept": "text/event-stream"}
        self._connection.request("GET", "/mcp", headers=headers)
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200

    def read_to_the_end(self) -> bytes:
        """All that still comes; returns when the server ends the stream."""
        return self._answer.read()


def auth(instance: Instance, *words: str) -> str:
    command, *flags = words
    return run(BIN / "maad", "auth", command, f"--instance={instance.path}", *flags).strip()


def bound(daemon: Daemon, token: str) -> Client:
    client = daemon.client(token)
    client.ok("maad_use_project", name="main")
    return client


def token_id(client: Client) -> str:
    found: str = client.ok("maad_current_session")["token"]["tokenId"]
    return found


PING = {"jsonrpc": "2.0", "id": 77, "method": "ping"}


@pytest.mark.parametrize(
    "settings",
    [
        {"MAAD_TOKENS_POLL_MS": "0"},
        {"MAAD_WATCH": "off", "MAAD_TOKENS_POLL_MS": "200"},
    ],
    ids=["watch alone", "poll alone"],
)
def test_a_revocation_by_command_ends_the_open_stream(
    instance: Instance, start: Any, settings: dict[str, str]
) -> None:
    victim = auth(instance, "issue-token", "--role=reader", "--projects=*")
    daemon = start(instance, **settings)
    client = bound(daemon, victim)
    other = bound(daemon, instance.token)
    stream = Stream(client, daemon.wait_until_listening())
    auth(instance, "revoke-token", f"--id={token_id(client)}")
    assert b"data" not in stream.read_to_the_end()
    assert client.post(PING)[0] == 401
    assert other.ok("maad_summary")["totalDocuments"] == 20


def test_a_change_by_command_holds_when_the_command_ends(instance: Instance, start: Any) -> None:
    victim = auth(instance, "issue-token", "--role=reader", "--projects=*")
    # Such a daemon looks at the registry only when it is told to.
    daemon = start(instance, MAAD_WATCH="off", MAAD_TOKENS_POLL_MS="0")
    old = bound(daemon, victim)
    old.ok("maad_summary")
    stream = Stream(old, daemon.wait_until_listening())
    rotated = auth(instance, "rotate-token", f"--id={token_id(old)}")
    assert old.post(PING)[0] == 401
    stream.read_to_the_end()
    new = bound(daemon, rotated)
    stream = Stream(new, daemon.wait_until_listening())
    auth(instance, "revoke-token", f"--id={token_id(new)}")
    assert new.post(PING)[0] == 401
    stream.read_to_the_end()
    issued = auth(instance, "issue-token", "--role=reader", "--projects=*")
    assert bound(daemon, issued).ok("maad_summary")["totalDocuments"] == 20


def test_the_life_of_a_token(instance: Instance, start: Any) -> None:
    daemon = start(instance)
    admin = bound(daemon, instance.token)
    port = daemon.wait_until_listening()

    issued = admin.ok("maad_issue_token", role="writer", projects=[{"name": "main"}], userId="u-1")
    first = bound(daemon, issued["plaintext"])
    assert token_id(first) == issued["record"]["id"]
    created = first.call("maad_create", docType="note", fields={"title": "By user"})
    assert created["ok"]
    assert "user: u-1" in run("git", "log", "-1", "--format=%b", cwd=instance.project)
    stream = Stream(first, port)

    rotated = admin.ok("maad_rotate_token", id=issued["record"]["id"])
    stream.read_to_the_end()
    assert first.post(PING)[0] == 401
    # The new bearer is another principal: it never resumes the old session.
    intruder = Client(port, rotated["plaintext"])
    intruder._headers["Mcp-Session-Id"] = first._headers["Mcp-Session-Id"]
    assert intruder.post(PING)[0] == 404
    second = bound(daemon, rotated["plaintext"])

    shown = admin.ok("maad_show_token", id=rotated["record"]["id"])
    assert shown["record"] == rotated["record"]
    listed = admin.ok("maad_list_tokens")
    assert (listed["total"], listed["activeCount"], len(listed["tokens"])) == (3, 2, 2)

    stream = Stream(second, port)
    revoked = admin.ok("maad_revoke_token", id=rotated["record"]["id"])
    assert revoked["record"]["revokedAt"]
    stream.read_to_the_end()
    assert second.post(PING)[0] == 401

    daemon.stop()
    log = daemon.log
    for secret in (instance.token, issued["plaintext"], rotated["plaintext"]):
        assert secret not in log
    audited = [line for line in map(json.loads, log.splitlines()) if line.get("channel") == "audit"]
    events = [line["msg"] for line in audited if line["msg"].startswith("token_")]
    assert events == ["token_issued", "token_rotated", "token_revoked"]
    actors = {line["actor_token_id"] for line in audited if line["msg"].startswith("token_")}
    assert actors == {listed["tokens"][0]["id"]}


def test_a_token_ends_to_the_moment(instance: Instance, start: Any) -> None:
    """Long before the server would look for idle sessions: it does so once a minute."""
    daemon = start(instance, MAAD_WATCH="off", MAAD_TOKENS_POLL_MS="0")
    port = daemon.wait_until_listening()
    # A command finds the server of a project that is open.
    bound(daemon, instance.token).ok("maad_summary")
    ends = time.time() + 3
    expires = format_timestamp(ends)
    token = auth(instance, "issue-token", "--role=reader", "--projects=*", f"--expires={expires}")
    client = bound(daemon, token)
    stream = Stream(client, port)
    assert b"data" not in stream.read_to_the_end()
    assert time.time() >= ends - 0.002
    assert client.post(PING)[0] == 401
    assert '"reason":"expired"' in daemon.log


def test_a_caller_that_ends_its_own_token_still_gets_its_answer(
    instance: Instance, start: Any
) -> None:
    spare = auth(instance, "issue-token", "--role=admin", "--projects=*")
    daemon = start(instance)
    admin, also = bound(daemon, instance.token), bound(daemon, instance.token)
    stream = Stream(also, daemon.wait_until_listening())
    rotated = admin.ok("maad_rotate_token", id=token_id(admin))
    stream.read_to_the_end()
    assert admin.post(PING)[0] == 401
    assert bound(daemon, rotated["plaintext"]).ok("maad_summary")
    assert bound(daemon, spare).ok("maad_list_tokens")["activeCount"] == 2


def test_an_unknown_token_and_one_out_of_reach_are_answered_alike(
    instance: Instance, start: Any
) -> None:
    narrow = auth(instance, "issue-token", "--role=admin", "--projects=main")
    daemon = start(instance)
    wide, client = bound(daemon, instance.token), bound(daemon, narrow)
    root = token_id(wide)
    for tool in ("maad_show_token", "maad_revoke_token", "maad_rotate_token"):
        assert client.call(tool, id=root) == client.call(tool, id="tok-000000000000")
    assert client.ok("maad_list_tokens")["total"] == 1
    error = client.call("maad_issue_token", role="admin", projects=[{"name": "*"}])["errors"][0]
    assert error["code"] == "TOKEN_PROJECT_FORBIDDEN"
    assert wide.call("maad_revoke_token", id=root)["errors"][0]["code"] == "LAST_ADMIN_TOKEN"


def test_token_tools_need_admin_everywhere_and_no_session(instance: Instance, start: Any) -> None:
    daemon = start(instance)
    unbound = daemon.client(instance.token)
    assert unbound.call("maad_list_tokens")["errors"][0]["code"] == "SESSION_UNBOUND"
    unbound.ok("maad_use_project", name="main", **{"as": "reader"})
    error = unbound.call("maad_list_tokens")["errors"][0]
    assert (error["code"], error["details"]) == ("INSUFFICIENT_ROLE", {"project": "main"})


def test_a_server_in_dry_run_mode_changes_no_token(instance: Instance, start: Any) -> None:
    admin = bound(start(instance, "--dry-run"), instance.token)
    registry = instance.path.parent / "_auth/tokens.yaml"
    before = Path(registry).read_bytes()
    arguments = {"role": "reader", "projects": [{"name": "main"}], "agentId": "a"}
    assert admin.call("maad_issue_token", **arguments) == {
        "ok": True,
        "dryRun": True,
        "tool": "maad_issue_token",
        "wouldExecute": arguments,
    }
    assert admin.call("maad_rotate_token", id=token_id(admin))["dryRun"] is True
    assert admin.call("maad_show_token", id="tok-0")["errors"][0]["code"] == "TOKEN_NOT_FOUND"
    assert registry.read_bytes() == before
