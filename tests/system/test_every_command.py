"""Every command as a process of its own, with a server that owns the project and without one; and
flags of that server (spec 04 §19)."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_bench import ENVIRONMENT, Daemon, Instance

from maadd.protocol.ownership import read_owner

pytestmark = pytest.mark.xdist_group("every_command")

SCHEMA = """\
type: note
required: [doc_id, title]
fields:
  title: {type: string, index: true}
  rank: {type: number, index: true}
  of: {type: ref, target: note, index: true}
"""


class Desk:
    """A project that a daemon owns, and a copy of it that nobody does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        instance = Instance(folder, records=3)
        self.instance = instance.path
        self.token = instance.token
        self.owned = instance.project
        (self.owned / "_schema/note.v1.yaml").write_text(SCHEMA)
        second = self.owned / "notes/nte-2.md"
        second.write_text(
            second.read_text().replace("rank: 2", "rank: 2\nof: nte-1") + "By [[person:Ada|A]].\n"
        )
        ghost = self.owned / "notes/nte-0.md"
        ghost.write_text(ghost.read_text().replace("rank: 0", "rank: 0\nof: nte-9"))
        assert self.maad("reindex", f"--project={self.owned}").returncode == 0
        self.daemon = Daemon(
            instance.path,
            "--http-max-body=5000",
            "--session-max=4",
            "--trust-proxy",
            "--http-allowed-origin=HTTPS://App.example:443/",
            MAAD_HTTP_MAX_BODY="10",
            MAAD_HTTP_ALLOWED_ORIGINS="http://[::1]:3000, ,https://b.example",
            MAAD_WATCH="off",
        )
        client = self.daemon.client(instance.token)
        client.ok("maad_use_project", name="main")
        client.ok("maad_summary")
        self.alone = shutil.copytree(self.owned, folder / "alone", symlinks=True)
        (self.alone / "_backend/lock").unlink()

    def maad(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "maadd.cli", *words],
            capture_output=True,
            text=True,
            cwd=cwd,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=50,
        )

    def on_both(self, *words: str) -> list[subprocess.CompletedProcess[str]]:
        """What a command does where the daemon owns the project, and where nobody does."""
        owner = read_owner(str(self.owned))
        assert owner is not None
        asked = self.asked()
        through = self.maad(*words, f"--project={self.owned}")
        assert read_owner(str(self.owned)) == owner
        # It was the daemon that answered.
        assert self.asked() > asked
        alone = self.maad(*words, f"--project={self.alone}")
        assert read_owner(str(self.alone)) is None
        return [through, alone]

    def asked(self) -> int:
        """How many calls of commands the daemon has answered."""
        return self.daemon.log.count('"session_id":"command-line"')

    def send(self, body: bytes = b"", **headers: str) -> int:
        """The status of a POST."""
        port = self.daemon.wait_until_listening()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        sent = {"Authorization": f"Bearer {self.token}", "Accept": "*/*"} | headers
        connection.request("POST", "/mcp", body, {"Content-Type": "application/json"} | sent)
        status = connection.getresponse().status
        connection.close()
        return status


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = Desk(tmp_path_factory.mktemp("desk"))
    yield made
    made.daemon.stop(signal.SIGKILL)


def steady(text: str) -> Any:
    """The JSON that a command printed, or its text; without the times of index and call."""
    if not text.startswith(("{", "[")):
        return text
    value = json.loads(text)
    if isinstance(value, dict):
        for name in ("lastIndexedAt", "completedAt", "durationMs"):
            value.pop(name, None)
    return value


READS = [
    ("summary", 0, '"totalDocuments": 3'),
    ("describe", 0, '"idPrefix": "nte"'),
    ("schema note", 0, '"type": "ref -> note"'),
    ("get nte-1 cold", 0, "# Note 1"),
    ("get nte-9", 1, "  FILE_NOT_FOUND: "),
    ("query note --filter rank=2 --limit=1", 0, '"docId": "nte-2"'),
    ("search entity --subtype person --query Ad --doc nte-2", 0, '"value": "Ada"'),
    ("search boat", 1, "  INVALID_PRIMITIVE: "),
    ("related nte-1 incoming", 0, '"docId": "nte-2"'),
    ("relationship-paths nte-2", 0, "nte-1"),
    ("aggregate rank", 0, '"groupCount": 3'),
    ("join note of", 0, "nte-1"),
    ("verify count note 4", 1, '"grounded": false'),
    ("orphans", 1, "nte-9"),
    ("changes", 0, '"resumeCursor"'),
    ("semantic-search note", 1, "  SEMANTIC_"),
    ("validate", 0, '"invalid": 0'),
    ("call maad_summary", 0, '"totalDocuments": 3'),
]
"""Words, exit code, and what stands in the output. Nothing changes the records before the tests
of writing commands below."""


@pytest.mark.parametrize(("words", "code", "shown"), READS, ids=[row[0] for row in READS])
def test_a_reading_command_says_the_same_with_a_server_and_without(
    desk: Desk, words: str, code: int, shown: str
) -> None:
    through, alone = desk.on_both(*words.split())
    assert (through.returncode, steady(through.stdout)) == (alone.returncode, steady(alone.stdout))
    assert through.stderr == alone.stderr
    assert through.returncode == code
    assert shown in through.stdout + through.stderr
    if through.stdout:
        value = json.loads(through.stdout)
        assert through.stdout == json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    else:
        heading, *lines = through.stderr.splitlines()
        assert heading == f"maad {words.split()[0]} failed"
        assert all(line.startswith("  ") for line in lines)


def test_a_writing_command_does_the_same_with_a_server_and_without(desk: Desk) -> None:
    def done(*words: str) -> list[Any]:
        through, alone = desk.on_both(*words)
        assert (through.returncode, alone.returncode) == (0, 0), through.stderr + alone.stderr
        assert through.stderr == alone.stderr
        return [json.loads(through.stdout), json.loads(alone.stdout)]

    typed = ("--json-field=rank=7", "--field=of=nte-1", "--id=nte-made")
    for made in done("create", "note", "--field", "title=a=b", *typed, "--body=First"):
        assert (made["docId"], made["version"], made["writeDurable"]) == ("nte-made", 1, True)
    change = ("--field=title=Kept", "--append=Second", "--expected-version=1")
    for changed in done("update", "nte-made", *change):
        assert (changed["version"], changed["changedFields"]) == (2, ["title"])
    texts = [(root / "notes/nte-made.md").read_text() for root in (desk.owned, desk.alone)]
    assert texts[0] == texts[1]
    assert "First" in texts[0]
    assert "Second" in texts[0]
    for root in (desk.owned, desk.alone):
        text = (root / "notes/nte-1.md").read_text()
        (root / "notes/nte-1.md").write_text(text.replace("Note 1", "By hand"))
    for report in done("reindex", "--force"):
        assert (report["scanned"], report["indexed"], report["errors"]) == (4, 4, [])
    for flushed in done("flush"):
        assert (flushed["effectiveMode"], flushed["trigger"]) == ("audit", "explicit")
        assert (flushed["status"], flushed["pendingWrites"]) == ("noop", 0)
    for commits in done("history", "nte-made"):
        assert [one["action"] for one in commits] == ["update", "create"]
    for written in done("audit", "--since=2020-01-01"):
        assert [one["docId"] for one in written] == ["nte-made"]
    for applied in done("instructions", "refresh", "--apply"):
        assert applied["written"] == []


def test_a_refused_write_is_refused_alike(desk: Desk) -> None:
    through, alone = desk.on_both("update", "nte-2", "--field=title=x", "--expected-version=9")
    assert (through.returncode, through.stdout) == (alone.returncode, alone.stdout) == (1, "")
    assert through.stderr == alone.stderr
    assert through.stderr.startswith("maad update failed\n  VERSION_CONFLICT: ")


OTHERS = [
    ("parse notes/nte-1.md", 0, '"nte-1"', ""),
    ("parse notes/none.md", 1, "", "maad parse failed\n  PATH_NOT_FOUND: "),
    ("scan notes", 0, '"totalFiles"', ""),
    ("scan none", 1, "", "maad scan failed\n  PATH_NOT_FOUND: "),
    ("instructions check", 0, '"current"', ""),
    ("completion bash", 0, "_MAAD_COMPLETE", ""),
    ("auth", 0, "issue-token", ""),
    ("auth help", 0, "issue-token", ""),
    ("auth list-tokens", 1, "", "INSTANCE_CONFIG_NOT_FOUND: "),
    ("auth issue-token --projects=*", 1, "", "Missing option '--role'"),
    ("instance reload", 1, "", "  INSTANCE_CONFIG_NOT_FOUND: "),
]


@pytest.mark.parametrize(("words", "code", "out", "err"), OTHERS, ids=[row[0] for row in OTHERS])
def test_a_command_that_asks_no_engine(
    desk: Desk, words: str, code: int, out: str, err: str
) -> None:
    done = desk.maad(*words.split(), cwd=desk.alone)
    assert done.returncode == code, done.stderr
    for shown, expected in ((done.stdout, out), (done.stderr, err)):
        assert expected in shown if expected else shown == ""


def test_tokens_are_shown_and_ended_by_commands(desk: Desk) -> None:
    instance = f"--instance={desk.instance}"
    issued = desk.maad("auth", "issue-token", instance, "--role", "reader", "--projects", "main")
    assert issued.stdout.startswith("maad_pat_")
    assert issued.stdout.count("\n") == 1
    assert "warning: TOKEN_IDENTITY_REQUIRED" in issued.stderr
    token = issued.stdout.strip()
    assert desk.send(b"{}", Authorization=f"Bearer {token}") == 400  # let in: no message
    listed = json.loads(desk.maad("auth", "list-tokens", instance).stdout)
    token_id = listed[-1]["id"]
    shown = desk.maad("auth", "show-token", instance, f"--id={token_id}")
    assert json.loads(shown.stdout) == listed[-1]
    rotated = desk.maad("auth", "rotate-token", instance, "--id", token_id)
    assert desk.send(b"{}", Authorization=f"Bearer {token}") == 401
    assert desk.send(b"{}", Authorization=f"Bearer {rotated.stdout.strip()}") == 400
    fresh = json.loads(desk.maad("auth", "list-tokens", instance).stdout)[-1]["id"]
    revoked = desk.maad("auth", "revoke-token", instance, f"--id={fresh}")
    assert json.loads(revoked.stdout)["revokedAt"]
    assert desk.send(b"{}", Authorization=f"Bearer {rotated.stdout.strip()}") == 401
    for done in (issued, shown, rotated, revoked):
        assert done.returncode == 0
        assert "hash" not in done.stdout + done.stderr


# -- flags of the server ----------------------------------------------------------------------


def test_a_flag_wins_over_its_variable_and_lists_are_joined(desk: Desk) -> None:
    """The body cap and the allowlist of origins."""
    assert desk.send(b" " * 5001) == 413
    assert desk.send(b" " * 5000) == 400
    for origin, status in (
        ("https://app.example", 400),
        ("HTTPS://APP.example:443", 400),
        ("http://[::1]:3000", 400),
        ("https://b.example", 400),
        ("http://app.example", 403),
        ("http://localhost", 403),
        ("null", 403),
        ("", 403),
    ):
        assert desk.send(b"{}", Origin=origin) == status, origin


def test_addresses_of_a_trusted_proxy_are_logged_and_sessions_are_capped(desk: Desk) -> None:
    assert desk.send(b"{}", Authorization="x", **{"X-Forwarded-For": "6.6.6.6, 203.0.113.7"}) == 401
    failure = [line for line in desk.daemon.log.splitlines() if '"auth_failure"' in line][-1]
    assert json.loads(failure)["remote_addr"] == "203.0.113.7"
    clients = [desk.daemon.client(desk.token) for _ in range(3)]
    # A token has half of the places.
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert [client.post(ping)[0] for client in clients] == [404, 200, 200]
