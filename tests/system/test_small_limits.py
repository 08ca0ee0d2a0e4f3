"""Limits that only the real engine meets, on one daemon that has them small
(spec 04 §11, §12.2, §13, §16)."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from daemon_bench import Client, Daemon, Instance, eventually, make_project
from stuck_call import StuckCall

pytestmark = pytest.mark.xdist_group("small_limits")

SUFFIXES = ("BULK_DELETE", "DELETE_WHERE", "PURGE_SOFT_DELETED", "REPAIR_WHERE")


class Served:
    """A daemon over two projects, `main` and `side`, that may have one worker at a time."""

    def __init__(self, folder: Path) -> None:
        self.instance = Instance(folder, indexed=True)
        make_project(folder / "side", records=2, indexed=True)
        with self.instance.path.open("a") as file:
            file.write("  - name: side\n    path: ./side\n    role: admin\n")
        self.metrics = folder / "m.sock"
        self.daemon = Daemon(
            self.instance.path,
            MAADD_METRICS=str(self.metrics),
            MAAD_WORKER_MAX="1",
            MAAD_NOTIFY_QUEUE="2",
            MAAD_MAX_DOC_BYTES="2000",
            MAAD_MAX_DOC_ANNOTATIONS="2",
            MAAD_PURGE_DEFAULT_RETENTION_DAYS="0",
            MAAD_WATCH="off",
            **{f"MAAD_CLEANUP_MAX_RECORDS_{suffix}": "3" for suffix in SUFFIXES},
        )

    def client(self, *projects: str) -> Client:
        client = self.daemon.client(self.instance.token)
        if len(projects) > 1:
            client.ok("maad_use_projects", names=list(projects))
        else:
            client.ok("maad_use_project", name=(projects or ("main",))[0])
        return client

    def told(self, **members: Any) -> list[dict[str, Any]]:
        """The lines of the log with these members, once there are any: a line may come after
        the answer."""
        found: list[dict[str, Any]] = []

        def are_there() -> bool:
            whole, _, _ = self.daemon.log.rpartition("\n")
            lines = [json.loads(line) for line in whole.splitlines()]
            found[:] = [line for line in lines if line.items() >= members.items()]
            return bool(found)

        assert eventually(are_there), members
        return found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("small"))
    yield served
    assert served.daemon.stop(signal.SIGTERM) == 0


def test_a_worker_that_is_idle_makes_room_and_a_busy_one_does_not(served: Served) -> None:
    client = served.client("main", "side")
    assert client.ok("maad_get", project="main", docId="nte-1")
    assert client.ok("maad_get", project="side", docId="nte-1")
    assert served.told(msg="workers_evicted", projects=["main"])
    stuck = StuckCall(served.client("side"), served.metrics, "side")
    error = client.refused("maad_get", project="main", docId="nte-1")
    assert error["code"] == "OVERLOADED"
    assert error["details"] == {"reason": "workers", "limit": 1, "retryAfterMs": 500}
    os.kill(stuck.worker, signal.SIGCONT)
    stuck.join()
    assert eventually(lambda: client.call("maad_get", project="main", docId="nte-1")["ok"])


def test_a_client_that_does_not_keep_up_is_told_to_poll(served: Served) -> None:
    client = served.client()
    before = client.ok("maad_changes_since")["resumeCursor"]
    connection, stream = client.open_stream()
    client.ok("maad_subscribe")
    session = client.ok("maad_current_session")["sessionId"]

    def heard() -> dict[str, Any]:
        while not (line := stream.readline()).startswith(b"data: "):
            assert line, "the stream has ended"
        params: dict[str, Any] = json.loads(line.removeprefix(b"data: "))["params"]
        return params

    def until(action: str) -> dict[str, Any]:
        while (params := heard())["action"] != action:
            assert params["action"] == "create"
        return params

    ids = [f"nte-flood-{number}" for number in range(20)]
    records = [{"docType": "note", "docId": one, "fields": {"title": one}} for one in ids]
    done = client.ok("maad_bulk_create", records=records)
    # The writes are none the worse for it.
    assert [one["docId"] for one in done["succeeded"]] == ids
    resync = until("resync")
    assert resync == {
        "uri": "maad://main",
        "action": "resync",
        "project": "main",
        "updatedAt": resync["updatedAt"],
        "seq": resync["seq"],
    }
    changed = client.ok("maad_changes_since", cursor=before, limit=50)["changes"]
    assert [one["docId"] for one in changed] == ids
    client.ok("maad_update", docId=ids[0], fields={"title": "y"})
    assert until("update")["seq"] > resync["seq"]
    connection.close()
    (line, *_) = served.told(event="engine", category="notify", operation="deliver")
    assert (line["level"], line["session_id"], line["project"]) == (40, session, "main")
    assert line["limit"] == 2


def test_documents_beyond_the_caps_are_told(served: Served) -> None:
    client = served.client()
    big = served.instance.project / "notes/nte-big.md"
    frontmatter = "---\ndoc_id: nte-big\ndoc_type: note\nschema: note.v1\ntitle: Big\n---\n"
    big.write_text(frontmatter + "x" * (2000 - len(frontmatter)))
    assert client.ok("maad_reindex")["errors"] == []
    big.write_text(frontmatter + "x" * (2001 - len(frontmatter)))
    (refused,) = client.ok("maad_reindex")["errors"]
    size = {"sizeBytes": 2001, "capBytes": 2000}
    assert (refused["code"], refused["details"].items() >= size.items()) == ("DOC_TOO_LARGE", True)
    (line,) = served.told(event="engine", category="engine", operation="doc_too_large", **size)
    assert (line["level"], line["project"]) == (40, "main")
    error = client.refused("maad_create", docType="note", fields={"title": "x"}, body="x" * 2000)
    assert error["code"] == "DOC_TOO_LARGE"
    # What was indexed before stays as it was.
    assert client.ok("maad_query", docType="note", filters={"title": "Big"})["total"] == 1
    big.unlink()
    client.ok("maad_reindex", prune=True)

    many = "[[person:A|a]] [[person:B|b]] [[person:C|c]]"
    client.ok("maad_create", docType="note", docId="nte-many", fields={"title": "x"}, body=many)
    truncated = {"event": "engine", "category": "engine", "operation": "doc_body_truncated"}
    assert served.told(**truncated, records=1)
    found = [client.ok("maad_search", primitive="entity", value=one)["total"] for one in "ABC"]
    assert found == [1, 1, 0]


def test_a_key_gives_one_answer_to_callers_at_once_and_to_the_next_worker(served: Served) -> None:
    client = served.client("main", "side")
    asked = {
        "project": "main", "docType": "note", "docId": "nte-key", "fields": {"title": "Key"},
        "idempotencyKey": "once",
    }  # fmt: skip
    with ThreadPoolExecutor(4) as executor:
        answers = list(
            executor.map(lambda twin: twin.call("maad_create", **asked), [
                client.twin() for _ in range(4)
            ])
        )  # fmt: skip
    assert [answer["data"] for answer in answers] == [answers[0]["data"]] * 4
    assert [answer["_meta"].get("replayed") for answer in answers].count(True) == 3
    # The other project takes the only place for a worker.
    pid = client.ok("maad_health", project="main")["worker"]["pid"]
    client.ok("maad_get", project="side", docId="nte-1")
    assert client.ok("maad_health", project="main")["worker"]["pid"] != pid
    again = client.call("maad_create", **asked)
    assert (again["data"], again["_meta"]["replayed"]) == (answers[0]["data"], True)
    error = client.refused("maad_create", **asked | {"fields": {"title": "Other"}})
    assert error["code"] == "IDEMPOTENCY_KEY_REUSED"


@pytest.mark.parametrize("confirm", ["true", 1, None, False])
def test_only_true_confirms(served: Served, confirm: object) -> None:
    client = served.client()
    for tool, scope in (
        ("maad_bulk_delete", {"docIds": ["nte-9"]}),
        ("maad_delete_where", {"docType": "note", "filters": {"rank": 9}}),
        ("maad_purge_soft_deleted", {}),
        ("maad_repair_where", {
            "docType": "note", "filters": {"rank": 9}, "repairTypes": ["fix_schema_drift"]}),
    ):  # fmt: skip
        preview = client.ok(tool, **scope, confirm=confirm)
        assert (preview["dryRun"], preview["tool"]) == (True, tool)
        assert preview["confirmMode"] == "dry_run"
        assert preview["totalAffected"] == len(preview["affected"])
    assert client.ok("maad_get", docId="nte-9")["docId"] == "nte-9"


def test_cleanup_tools_take_what_the_environment_or_the_call_allows(served: Served) -> None:
    client = served.client()
    four = {"filters": {"rank": {"op": "lt", "value": 4}}}
    scopes: dict[str, dict[str, Any]] = {
        "maad_bulk_delete": {"docIds": [f"nte-{number}" for number in range(4)]},
        "maad_delete_where": {"docType": "note", **four},
        "maad_repair_where": {"docType": "note", "repairTypes": ["fix_schema_drift"]},
    }
    for tool, scope in scopes.items():
        error = client.refused(tool, **scope)
        assert error["code"] == "BULK_LIMIT_EXCEEDED", tool
        assert (error["details"]["tool"], error["details"]["limit"]) == (tool, 3)
        assert error["details"]["received"] >= 4
        assert error["details"]["suggestedChunkSize"] == 3
        assert client.call(tool, **scope, maxRecords=1000)["ok"]
    assert client.ok("maad_delete_where", docType="note", **four, maxRecords=4, confirm=True)
    of_writes = {"operation": "tool_call", "category": "mcp", "tool": "maad_repair_where"}
    assert {line["args"]["confirm_mode"] for line in served.told(**of_writes)} == {"dry_run"}
    assert eventually(lambda: '"confirm_mode":"confirmed"' in served.daemon.log)
    # The purge takes the first of them instead.
    assert client.ok("maad_purge_soft_deleted")["totalAffected"] == 3
    assert client.ok("maad_purge_soft_deleted", maxRecords=4)["totalAffected"] == 4
