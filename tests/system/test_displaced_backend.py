"""Files of a project that are taken away under a running server (spec 01 §12: the index is
derived and may be deleted)."""

from __future__ import annotations

import json
import os
import shutil
import signal
from typing import Any

from daemon_bench import BIN, Instance, eventually, run

from maadd.protocol.ownership import read_owner


def test_a_server_gets_over_the_loss_of_its_files_and_loses_no_write(
    instance: Instance, start: Any
) -> None:
    project = instance.project
    daemon = start(instance)
    client = daemon.client(instance.token)
    client.ok("maad_use_project", name="main")

    def create(name: str) -> Any:
        return client.ok("maad_create", docType="note", docId=name, fields={"title": name})

    def worker() -> int:
        shown = client.ok("maad_health")["worker"]
        assert shown["restarts"] == 0
        pid: int = shown["pid"]
        return pid

    # The index alone: the next write goes to a worker that has made it anew.
    create("nte-one")
    client.ok("maad_update", docId="nte-one", fields={"rank": 2})
    before = worker()
    (project / "_backend/maad.db").unlink()
    create("nte-two")
    assert worker() != before
    assert client.ok("maad_get", docId="nte-one")["version"] == 2
    assert client.ok("maad_summary")["totalDocuments"] == 22

    # All of it, while Git is held by somebody and a write waits for its commit.
    held = project / ".git/index.lock"
    held.touch()
    assert create("nte-three")["writeDurable"] is False
    before = worker()
    shutil.rmtree(project / "_backend")
    # Nobody asks for anything: the loss is seen all the same.
    owner = str(project)
    assert eventually(lambda: (found := read_owner(owner)) is not None and found.pid != before, 20)
    assert client.ok("maad_summary")["totalDocuments"] == 23
    assert client.ok("maad_health")["history"]["pendingWrites"] == 1
    held.unlink()
    client.ok("maad_flush")
    log = run("git", "log", "--format=%s", cwd=project)
    assert "nte-three" in log
    assert run("git", "status", "--porcelain", "notes", cwd=project) == ""

    # The folder: told for as long as it is away.
    project.rename(project.parent / "away")
    [error] = client.call("maad_create", docType="note", fields={"title": "Lost"})["errors"]
    assert error["code"] == "FILE_READ_ERROR"
    assert "folder cannot be opened" in error["message"]
    assert not project.exists()
    # A bare mount point in its place, which gets no new project.
    project.mkdir()
    assert eventually(
        lambda: "not the one that was served" in client.call("maad_summary")["errors"][0]["message"]
    )
    assert os.listdir(project) == []
    project.rmdir()
    # A lock that a worker left there which is dead is no obstacle.
    dead = project.parent / "away/.git/index.lock"
    dead.write_text(f"maadd {os.getpid()}.1 {'ab' * 16}\n")
    (project.parent / "away").rename(project)
    assert eventually(lambda: bool(client.call("maad_summary")["ok"]), 20)
    rows = client.ok("maad_query", docType="note", limit=100)["results"]
    assert {"nte-one", "nte-two", "nte-three"} < {row["docId"] for row in rows}
    assert client.ok("maad_health")["history"]["pendingWrites"] == 0
    assert not held.exists()
    assert "Lost" not in run(BIN / "maad", "query", "note", f"--project={project}", "--json")

    # The runtime directory: nothing is lost that was up, and a start makes it anew.
    runtime = project.parent / "run"
    shutil.rmtree(runtime)
    os.kill(worker(), signal.SIGKILL)
    assert client.ok("maad_summary")["totalDocuments"] == 23
    assert runtime.stat().st_mode & 0o777 == 0o700
    status = run(
        "env", f"MAADD_RUNTIME_DIR={runtime}", BIN / "maad", "instance", "status",
        f"--instance={instance.path}", "--json",
    )  # fmt: skip
    assert json.loads(status)["pid"] == daemon.process.pid
    # Where it cannot be made, the answer says why; later it can.
    shutil.rmtree(runtime)
    runtime.touch()
    os.kill(client.ok("maad_health")["worker"]["pid"], signal.SIGKILL)
    assert eventually(lambda: not client.call("maad_summary")["ok"])
    [error] = client.call("maad_summary")["errors"]
    assert error["code"] == "PROJECT_UNAVAILABLE"
    assert f"the runtime directory {runtime} was removed and cannot be made" in error["message"]
    assert "remove it or set MAADD_RUNTIME_DIR" in error["message"]
    runtime.unlink()
    assert eventually(lambda: bool(client.call("maad_summary")["ok"]))
    assert daemon.stop() == 0
    # The lock stays, and nothing else: no socket, none of a fork server either.
    assert os.listdir(runtime) == ["lock"]
