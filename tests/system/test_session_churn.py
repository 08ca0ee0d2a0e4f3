"""Sessions that come and are never closed by their clients (spec 04 §9.4, trap 29)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from daemon_bench import Client, Daemon, Instance

CAP = 16
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def descriptors(daemon: Daemon) -> int:
    return len(list(Path(f"/proc/{daemon.process.pid}/fd").iterdir()))


def test_sessions_that_nobody_closes_are_evicted_and_leave_nothing(
    unindexed: Instance, start: Any
) -> None:
    daemon = start(
        unindexed,
        MAAD_BOOT_REINDEX="1",
        MAAD_SESSION_MAX=str(CAP),
        MAAD_SESSION_MAX_PER_TOKEN=str(CAP),
    )
    port = daemon.wait_until_listening()

    def live(number: int) -> Client:
        client = Client(port, unindexed.token)
        client.initialize()
        client.ok("maad_use_project", name="main")
        assert client.ok("maad_get", docId=f"nte-{number % 20}")
        client.close()
        return client

    lived = [live(number) for number in range(CAP)]
    before = descriptors(daemon)
    lived += [live(number) for number in range(6 * CAP)]
    assert descriptors(daemon) <= before + 5
    # The longest inactive ones paid for the later ones, and always hear the same.
    answers = {client.post(PING)[2] for client in lived[: 2 * CAP]}
    assert {json.loads(answer)["errors"][0]["code"] for answer in answers} == {"SESSION_NOT_FOUND"}
    assert len(answers) == 1
    assert lived[-1].post(PING)[0] == 200

    counted = lived[-1].ok("maad_health")["sessions"]
    assert (counted["active"], counted["openedTotal"]) == (CAP, len(lived))
    assert daemon.stop() == 0
    told = [json.loads(line) for line in daemon.log.splitlines()]
    closed = [line["reason"] for line in told if line["msg"] == "session_close"]
    assert closed == ["capacity"] * (len(lived) - CAP) + ["shutdown"] * CAP
