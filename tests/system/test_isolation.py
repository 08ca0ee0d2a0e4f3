"""A project in trouble is its own affair (spec 04 §13)."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path
from typing import Any

from daemon_bench import Client, Instance, eventually, make_project


def worker_pid(client: Client, project: str) -> int | None:
    pid: int | None = client.ok("maad_health", project=project)["worker"]["pid"]
    return pid


def niceness(pid: int) -> list[int]:
    """Of every thread of a process."""
    tasks = Path(f"/proc/{pid}/task").glob("*/stat")
    return sorted(int(task.read_text().rpartition(")")[2].split()[16]) for task in tasks)


def test_a_third_project_answers_while_one_hangs_and_one_keeps_crashing(
    tmp_path: Path, start: Any
) -> None:
    instance = Instance(tmp_path)
    with instance.path.open("a") as file:
        for name in ("stuck", "crashing"):
            make_project(tmp_path / name, records=1)
            file.write(f"  - name: {name}\n    path: ./{name}\n    role: admin\n")
    daemon = start(instance, MAAD_BOOT_REINDEX="1")

    def client_of_all() -> Client:
        client = daemon.client(instance.token)
        client.ok("maad_use_projects", names=["main", "stuck", "crashing"])
        return client

    admin, reader = client_of_all(), client_of_all()
    for project in ("main", "stuck", "crashing"):
        assert admin.ok("maad_summary", project=project)

    # A read that never ends, with others behind it: the worker answers nothing at all.
    stuck = worker_pid(admin, "stuck")
    assert stuck is not None
    # The two threads for slow reads give way to everything else.
    levels = niceness(stuck)
    assert levels.count(min(19, levels[0] + 5)) == 2
    os.kill(stuck, signal.SIGSTOP)
    waiting = [client_of_all() for _ in range(3)]
    asking = [
        threading.Thread(target=one.call, args=("maad_summary",), kwargs={"project": "stuck"})
        for one in waiting
    ]
    for thread in asking:
        thread.start()

    dead: set[int] = set()

    def died_again() -> bool:
        admin.call("maad_get", project="crashing", docId="nte-0")
        pid = worker_pid(admin, "crashing")
        if pid is not None and pid not in dead:
            os.kill(pid, signal.SIGKILL)
            dead.add(pid)
        return len(dead) >= 2

    while not died_again():
        for number in range(20):
            assert reader.ok("maad_get", project="main", docId=f"nte-{number}")
    written = reader.call("maad_create", project="main", docType="note", fields={"title": "On"})
    assert written["_meta"]["history"]["outcome"] == "committed"

    with contextlib.suppress(ProcessLookupError):  # killed for its silence on a slow machine
        os.kill(stuck, signal.SIGCONT)
    for thread in asking:
        thread.join(30)
    assert not any(thread.is_alive() for thread in asking)
    assert eventually(lambda: admin.call("maad_summary", project="crashing")["ok"], 20)
