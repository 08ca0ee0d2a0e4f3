"""Long runs under load, with processes killed on the way; run by `make soak`."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from daemon_bench import Client, Daemon, Instance, eventually, run
from http_fuzzer import Fuzzer
from http_fuzzer import run as fuzz

SECONDS = float(os.environ.get("MAADD_SOAK_S", "300"))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_acknowledged_writes_survive_a_worker_killed_every_few_seconds(
    instance: Instance, start: Any
) -> None:
    daemon = start(instance)
    watcher = daemon.client(instance.token)
    watcher.ok("maad_use_project", name="main")
    expected: dict[str, int | None] = {}
    unsure: set[str] = set()
    stop = threading.Event()

    def load(number: int) -> None:
        rng = random.Random(number)
        client = daemon.client(instance.token)
        client.ok("maad_use_project", name="main")
        mine: list[str] = []
        step = 0
        while not stop.is_set():
            step += 1
            if not mine or rng.random() < 0.5:
                doc_id = f"nte-soak-{number}-{step}"
                arguments = {"docType": "note", "docId": doc_id, "fields": {"title": "t"}}
                settle(client, "maad_create", doc_id, 0, arguments)
                mine.append(doc_id)
            elif rng.random() < 0.8:
                doc_id = rng.choice(mine)
                fields = {"rank": step}
                settle(client, "maad_update", doc_id, step, {"docId": doc_id, "fields": fields})
            else:
                doc_id = mine.pop(rng.randrange(len(mine)))
                settle(client, "maad_delete", doc_id, None, {"docId": doc_id, "mode": "hard"})
        client.close()

    def settle(
        client: Client, tool: str, doc_id: str, value: int | None, arguments: dict[str, Any]
    ) -> None:
        if doc_id in unsure:
            return
        if client.call(tool, **arguments)["ok"]:
            expected[doc_id] = value
        else:
            unsure.add(doc_id)

    threads = [threading.Thread(target=load, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + SECONDS
    rng = random.Random(0)
    kills = 0
    while time.monotonic() < end:
        # Five deaths within a minute would put the project aside, as they should.
        pause = min(end, time.monotonic() + rng.uniform(13, 16))
        assert eventually(lambda until=pause: time.monotonic() > until, 60)
        pid = watcher.ok("maad_health")["worker"]["pid"]
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            kills += 1
    stop.set()
    for thread in threads:
        thread.join()
    assert eventually(lambda: watcher.call("maad_summary")["ok"], 60)
    for doc_id, value in expected.items():
        if doc_id in unsure:
            continue
        answer = watcher.call("maad_get", docId=doc_id)
        assert answer["ok"] is (value is not None), (doc_id, value, answer)
        if value:
            assert answer["data"]["frontmatter"]["rank"] == value
    assert kills > 0
    assert daemon.stop() == 0
    assert run("git", "status", "--porcelain", "--", "notes", cwd=instance.project) == ""
    assert run("git", "fsck", "--strict", "--no-dangling", cwd=instance.project) == ""
    assert not list(instance.project.rglob("*.maad-tmp-*"))


def size_of(daemon: Daemon) -> tuple[float, int]:
    """Resident MiB and open descriptors of the front."""
    proc = Path(f"/proc/{daemon.process.pid}")
    pages = int((proc / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20, len(list((proc / "fd").iterdir()))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_malformed_requests_for_minutes_leave_nothing_behind(
    instance: Instance, start: Any
) -> None:
    daemon = start(instance)
    port = daemon.wait_until_listening()
    opened: list[Client] = []

    def open_session() -> str:
        client = daemon.client(instance.token)
        client.close()
        opened[:] = [client]
        return str(client._headers["Mcp-Session-Id"])

    fuzzer = Fuzzer(int(os.environ.get("MAADD_SOAK_SEED", "1")), instance.token, open_session)
    fuzz(fuzzer, port, lambda sent: sent < 10_000)
    memory_before, descriptors_before = size_of(daemon)
    end = time.monotonic() + SECONDS
    statuses = fuzz(fuzzer, port, lambda _: time.monotonic() < end)
    assert sum(statuses.values()) > 1000
    assert eventually(lambda: size_of(daemon)[1] <= descriptors_before + 10, 30)
    assert size_of(daemon)[0] < memory_before + 15, statuses
    assert "http_request_failed" not in daemon.log
    assert "mcp_handler_failed" not in daemon.log
    assert daemon.stop() == 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_thousands_of_sessions_leave_memory_as_it_was(instance: Instance, start: Any) -> None:
    daemon = start(instance, MAAD_SESSION_IDLE_MS="5000")
    port = daemon.wait_until_listening()

    def live(number: int) -> Client:
        client = Client(port, instance.token)
        client.initialize()
        client.ok("maad_use_project", name="main")
        client.ok("maad_subscribe")
        assert client.ok("maad_get", docId=f"nte-{number % 20}")
        client.close()
        return client

    first = live(0)
    for number in range(1000):
        live(number)
    memory_before, descriptors_before = size_of(daemon)
    for number in range(5000):
        live(number)
    memory, descriptors = size_of(daemon)
    assert memory < memory_before + 10
    assert descriptors <= descriptors_before + 10
    status, _, gone = first.post({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert status == 404
    assert json.loads(gone)["errors"][0]["code"] == "SESSION_NOT_FOUND"
    watcher = daemon.client(instance.token)
    watcher.ok("maad_use_project", name="main")
    # One that asks all the time stays; the others expire.
    assert eventually(lambda: watcher.ok("maad_health")["sessions"]["active"] == 1, 30)
    assert daemon.stop() == 0
