"""The host contracts over a real daemon, as a host would use them (spec 05)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_bench import BIN, ENVIRONMENT, Client, Daemon, Instance, make_project, run

from maadd.client import Fate, assemble, new_document_digest, reconcile, schema_digest

pytestmark = pytest.mark.xdist_group("host_contracts")

DOCUMENT = Path(__file__).parents[2] / "docs/host-contracts.md"


class Served:
    """A daemon with small pages, for all tests of this module that need nothing else."""

    def __init__(self, folder: Path) -> None:
        self.instance = Instance(folder, indexed=True)
        self.daemon = Daemon(
            self.instance.path,
            MAAD_EMIT_REQUEST_ID="true",
            MAAD_CONTRACT_RESPONSE_MAX_BYTES="8192",
        )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("hosts"))
    yield served
    assert served.daemon.stop() == 0


def bound(daemon: Daemon, token: str) -> Client:
    client = daemon.client(token)
    client.ok("maad_use_project", name="main")
    client.ok("maad_summary")
    return client


def request(client: Client, doc_id: str, fields: dict[str, Any]) -> dict[str, Any]:
    contract = client.ok("maad_create_contract", contract="create-contract-v1", docType="note")
    return {
        "contract": "guarded-create-v1",
        "docType": "note",
        "docId": doc_id,
        "fields": fields,
        "body": "",
        "expectedSchemaDigest": contract["schemaDigest"],
        "expectedContentDigest": new_document_digest(doc_id, "note", "note.v1", fields, ""),
        "allowedHistoryModes": ["audit"],
    }


def raw_call(client: Client, arguments: str) -> dict[str, Any]:
    """The envelope of a guarded create whose arguments are this very text."""
    client._connection.request(
        "POST",
        "/mcp",
        '{"jsonrpc":"2.0","id":99,"method":"tools/call","params":{"name":"maad_create_guarded",'
        f'"arguments":{arguments}}}}}',
        client._headers,
    )
    body = client._connection.getresponse().read()
    answer = json.loads(body[body.index(b"{") :])
    envelope: dict[str, Any] = json.loads(answer["result"]["content"][0]["text"])
    return envelope


def test_contract_create_and_receipt_over_http(served: Served) -> None:
    client = served.daemon.client(served.instance.token)
    asked = {"contract": "create-contract-v1", "docType": "note"}
    refused = client.call("maad_create_contract", **asked)
    assert refused["errors"][0]["code"] == "SESSION_UNBOUND"
    client.ok("maad_use_project", name="main")
    refused = client.call("maad_create_contract", **asked)
    assert refused["errors"][0]["code"] == "RECEIPT_ENGINE_NOT_READY"
    client.ok("maad_summary")
    contract = client.ok("maad_create_contract", **asked)
    assert schema_digest(contract["schemaContract"]) == contract["schemaDigest"]

    fields = {"title": "T" * 9_000, "rank": 2**70}
    guarded = request(client, "nte-big", fields)
    done = client.ok("maad_create_guarded", **guarded)
    assert done["writeDurable"] is True
    asked = {"contract": "document-persistence-v1", "docType": "note", "docId": "nte-big"}
    whole = client.call("maad_document_receipt", **asked)
    assert whole["errors"][0]["code"] == "RESPONSE_TOO_LARGE"
    assert whole["errors"][0]["details"]["writeOutcome"] == "read_only"
    pages = [client.ok("maad_document_receipt", **asked, delivery={"format": "compact-json-v1"})]
    while (cursor := pages[-1]["nextCursor"]) is not None:
        delivery = {"format": "compact-json-v1", "cursor": cursor}
        pages.append(client.ok("maad_document_receipt", **asked, delivery=delivery))
    assert len(pages) > 1
    value = assemble(pages, pages[0]["expiresAt"] - 1)
    digest = guarded["expectedContentDigest"]
    found = reconcile(value, doc_type="note", doc_id="nte-big", content_digest=digest)
    assert found.fate is Fate.COMMITTED
    assert "T" * 100 not in served.daemon.log


def test_the_host_of_the_documentation_runs(served: Served) -> None:
    instance, daemon = served.instance, served.daemon
    (program,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    path = instance.path.parent / "host.py"
    path.write_text(program)
    url = f"http://127.0.0.1:{daemon.wait_until_listening()}/mcp"
    words = [url, instance.token, "main", "note", "nte-guarded", "Under guard"]
    done = subprocess.run(
        [sys.executable, str(path), *words],
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "created notes/nte-guarded.md durable" in done.stdout
    head = run("git", "rev-parse", "HEAD", cwd=instance.project).strip()
    assert f"fate committed {head}" in done.stdout


def test_numbers_and_names_count_as_written_on_the_wire(served: Served) -> None:
    client = bound(served.daemon, served.instance.token)
    guarded = request(client, "nte-1x", {"title": "x"})
    text = json.dumps(guarded)
    inexact = raw_call(client, text.replace('"title": "x"', '"title":"x","n":9007199254740993'))
    assert inexact["errors"][0]["details"]["path"] == "fields.n"
    endless = raw_call(client, text.replace('"title": "x"', f'"title":"x","n":{"9" * 5000}'))
    assert endless["errors"][0]["code"] == "INVALID_FIELDS"
    twice = raw_call(client, text.replace('"title": "x"', '"title":"y","title":"x"'))
    assert twice["errors"][0]["details"]["cause"] == "duplicate_member"
    unknown = raw_call(client, text.replace('"body"', '"boddy":"","body"'))
    assert unknown["errors"][0]["code"] == "INVALID_ARGS"
    hidden = raw_call(client, text.replace('"body"', '"_trace":1,"body"'))
    assert hidden["ok"] is True


def test_a_dry_server_tells_what_it_would_admit(instance: Instance, start: Any) -> None:
    client = bound(start(instance, MAAD_DRY_RUN="1"), instance.token)
    guarded = request(client, "nte-dry", {"title": "x", "rank": 2**70})
    answer = client.call("maad_create_guarded", **guarded)
    assert answer["dryRun"] is True
    assert answer["wouldExecute"] == guarded
    assert answer["data"]["wouldAdmit"] == {"schema": True, "content": True, "history": True}
    assert not (instance.project / "notes/nte-dry.md").exists()


def test_a_revoked_session_reads_and_writes_nothing_more(served: Served) -> None:
    daemon, instance = served.daemon, served.instance
    admin = bound(daemon, instance.token)
    issued = admin.ok("maad_issue_token", role="writer", projects=[{"name": "main"}], userId="u")
    client = bound(daemon, issued["plaintext"])
    guarded = request(client, "nte-late", {"title": "x"})
    admin.ok("maad_revoke_token", id=issued["record"]["id"])
    message = {"name": "maad_create_guarded", "arguments": guarded}
    status, _, _ = client.post(
        {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": message}
    )
    assert status == 401
    assert not (instance.project / "notes/nte-late.md").exists()


def test_a_new_worker_answers_receipts_and_no_old_cursors(served: Served) -> None:
    client = bound(served.daemon, served.instance.token)
    client.ok("maad_create_guarded", **request(client, "nte-kept", {"title": "x" * 20_000}))
    asked = {"contract": "document-persistence-v1", "docType": "note", "docId": "nte-kept"}
    delivery = {"format": "compact-json-v1", "maxBytes": 8_192}
    first = client.ok("maad_document_receipt", **asked, delivery=delivery)
    worker = client.ok("maad_health")["worker"]["pid"]
    os.kill(worker, signal.SIGKILL)
    client.ok("maad_summary")
    delivery = {"format": "compact-json-v1", "cursor": first["nextCursor"]}
    refused = client.call("maad_document_receipt", **asked, delivery=delivery)
    assert refused["errors"][0]["code"] == "RECEIPT_OBSERVATION_CHANGED"
    del delivery["cursor"]
    again = client.ok("maad_document_receipt", **asked, delivery=delivery)
    assert (again["offset"], again["totalBytes"]) == (0, first["totalBytes"])


def test_the_one_project_of_a_pipe_takes_part(tmp_path: Path) -> None:
    project = make_project(tmp_path / "default", records=1, indexed=True)
    server = subprocess.Popen(
        [str(BIN / "maad"), "--project", str(project), "serve", "--role", "writer"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**ENVIRONMENT, "MAADD_RUNTIME_DIR": str(tmp_path / "run")},
    )
    assert server.stdin is not None
    assert server.stdout is not None

    def call(tool: str, **arguments: Any) -> dict[str, Any]:
        params = {"name": tool, "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        server.stdin.write(json.dumps(message).encode() + b"\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
        envelope: dict[str, Any] = json.loads(answer["result"]["content"][0]["text"])
        return envelope

    initialize = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": initialize}
    server.stdin.write(json.dumps(message).encode() + b"\n")
    server.stdin.flush()
    server.stdout.readline()
    server.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    asked = {"contract": "document-persistence-v1", "docType": "note", "docId": "nte-0"}
    assert call("maad_document_receipt", **asked)["errors"][0]["code"] == "SESSION_UNBOUND"
    call("maad_summary")
    data = call("maad_document_receipt", **asked)["data"]
    assert (data["project"], data["status"]) == ("default", "committed_content_available")
    server.stdin.close()
    assert server.wait(20) == 0
    server.stdout.close()
