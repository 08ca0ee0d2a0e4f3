"""An end that hangs has a last moment (spec 04 §15)."""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from daemon_bench import BIN, Instance, eventually, is_alive, run

HANGING = (sys.executable, str(Path(__file__).parent / "hanging_front.py"))


def test_a_front_that_hangs_ends_with_one_and_its_worker_finishes_the_write(
    instance: Instance, start: Any, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    daemon = start(
        instance,
        program=HANGING,
        MAAD_SHUTDOWN_TIMEOUT_MS="100",
        MAADD_FAILPOINTS=f"file.published=pause:{gate}@1",
    )
    client = daemon.client(instance.token)
    client.ok("maad_use_project", name="main")
    client.ok("maad_summary")
    stream, events = client.open_stream()
    below = daemon.descendants()
    answers: list[Any] = []

    def write() -> None:
        answers.append(client.call("maad_create", docType="note", fields={"title": "In hand"}))

    writing = threading.Thread(target=write)
    writing.start()
    record = instance.project / "notes/nte-in-hand.md"
    assert eventually(record.exists)

    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(20) == 1
    # Whoever waited learns in time that nobody knows whether it was done.
    writing.join(10)
    (error,) = answers[0]["errors"]
    assert (error["code"], error["details"]["writeOutcome"]) == ("WORKER_LOST", "unknown_reconcile")
    with pytest.raises(http.client.IncompleteRead):
        events.read()
    stream.close()
    gate.write_bytes(b"")
    assert eventually(lambda: not any(map(is_alive, below)), 10)
    subjects = run("git", "log", "--format=%s", cwd=instance.project)
    assert subjects.startswith("maad:create nte-in-hand ")

    told = {line["msg"]: line for line in map(json.loads, daemon.log.splitlines())}
    assert (told["shutdown_timeout"]["in_flight"], told["shutdown_timeout"]["level"]) == (1, 40)
    last = told["shutdown_hard_deadline"]
    assert (last["level"], last["limit_ms"], last["pid"]) == (50, 1100, daemon.process.pid)

    # Nothing of it holds up whoever comes next.
    got = run(BIN / "maad", "get", "nte-in-hand", f"--project={instance.project}")
    assert json.loads(got)["version"] == 1
