"""One folder, several stdio servers: they attach to the owner and take over (spec 04 §10)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_bench import (
    BIN,
    ENVIRONMENT,
    Daemon,
    Instance,
    descendants,
    eventually,
    is_alive,
    make_project,
    run,
)
from mcp.client import Client as SdkClient
from mcp.client.stdio import StdioServerParameters, stdio_client
from test_stdio import Stdio

from maadd.protocol.ownership import read_owner

StartStdio = Callable[..., Stdio]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "main", records=3, indexed=True)


@pytest.fixture
def agent(project: Path) -> Iterator[StartStdio]:
    """Starts stdio servers on the project, each with its client; all are gone at the end."""
    started: list[Stdio] = []

    def starter(*flags: str, **environment: str) -> Stdio:
        server = Stdio(project, *(flags or ("--role=admin",)), **environment)
        started.append(server)
        server.initialize()
        return server

    yield starter
    for server in started:
        below = descendants(server.process.pid)
        server.process.kill()
        server.process.wait(10)
        assert eventually(lambda ids=below: not any(map(is_alive, ids)), 5)


def owner_pid(project: Path) -> int | None:
    owner = read_owner(str(project))
    return None if owner is None else owner.pid


def owns(server: Stdio, project: Path) -> bool:
    return owner_pid(project) in descendants(server.process.pid)


def ids(server: Stdio) -> set[str]:
    rows = server.call("maad_query", docType="note", limit=500)["data"]["results"]
    return {row["docId"] for row in rows}


class Writer(threading.Thread):
    """Creates records one after the other until the server is gone or it is told to end."""

    def __init__(self, server: Stdio, name: str) -> None:
        super().__init__()
        self._server = server
        self._name = name
        self.acknowledged: list[str] = []
        self.refused: list[dict[str, Any]] = []
        self.enough = threading.Event()

    def run(self) -> None:
        number = 0
        with contextlib.suppress(OSError, ValueError):
            while not self.enough.is_set():
                number += 1
                title = f"{self._name} {number}"
                answer = self._server.call("maad_create", docType="note", fields={"title": title})
                if answer["ok"]:
                    self.acknowledged.append(answer["data"]["docId"])
                else:
                    self.refused.append(answer["errors"][0])


async def sdk_agent(project: Path, heard: asyncio.Queue[Any]) -> SdkClient:
    async def on_message(message: Any) -> None:
        await heard.put(message)

    parameters = StdioServerParameters(
        command=str(BIN / "maad"),
        args=["serve", f"--project={project}", "--role=writer"],
        env={
            **ENVIRONMENT,
            "MAADD_RUNTIME_DIR": str(project.parent / "run"),
            "MAAD_LOG_LEVEL": "error",
        },
    )
    return SdkClient(stdio_client(parameters), mode="legacy", message_handler=on_message)


def test_two_sdk_clients_read_and_write_side_by_side_and_hear_of_each_other(project: Path) -> None:
    async def call(client: SdkClient, tool: str, **arguments: Any) -> Any:
        result = await client.call_tool(tool, arguments)
        envelope = json.loads(result.content[0].text)
        assert envelope["ok"], envelope
        return envelope["data"]

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[tuple[SdkClient, asyncio.Queue[Any]]]:
        heard: asyncio.Queue[Any] = asyncio.Queue()
        async with await sdk_agent(project, heard) as client:
            await call(client, "maad_summary")
            await call(client, "maad_subscribe")
            yield client, heard

    async def scenario() -> None:
        async with opened() as (first, heard_by_first), opened() as (second, heard_by_second):
            created = [
                (await call(client, "maad_create", docType="note", fields={"title": title}))[
                    "docId"
                ]
                for client, title in ((first, "From one"), (second, "From two"))
            ]
            for client in (first, second):
                for doc_id in created:
                    assert (await call(client, "maad_get", docId=doc_id))["docId"] == doc_id
            for heard in (heard_by_first, heard_by_second):
                told = [(await heard.get()).params.uri for _ in created]
                assert told == [f"maad://default/{doc_id}" for doc_id in created]

    asyncio.run(scenario())
    assert owner_pid(project) is None


def more_from(writers: list[Writer]) -> bool:
    """Whether each of them goes on to be acknowledged."""
    before = [len(one.acknowledged) for one in writers]
    return eventually(
        lambda: all(len(one.acknowledged) > n + 3 for one, n in zip(writers, before, strict=True)),
        30,
    )


def test_deaths_under_writes_leave_the_others_at_work_and_lose_nothing(
    agent: StartStdio, project: Path
) -> None:
    servers = [agent() for _ in range(3)]
    for server in servers:
        assert server.call("maad_summary")["data"]["totalDocuments"] == 3
    owner = servers[0]
    assert owns(owner, project)
    writers = [Writer(server, f"Agent {number}") for number, server in enumerate(servers)]
    for writer in writers:
        writer.start()
    assert more_from(writers)
    worker = owner_pid(project)
    assert worker is not None
    os.kill(worker, signal.SIGKILL)
    assert more_from(writers)
    assert owns(owner, project)
    below = descendants(owner.process.pid)
    owner.process.kill()
    assert more_from(writers[1:])
    assert eventually(lambda: not any(map(is_alive, below)), 5)
    # The lock decided: exactly one of the two has the worker, the other is attached to it.
    [_] = [server for server in servers[1:] if owns(server, project)]
    for writer in writers:
        writer.enough.set()
        writer.join(10)
    acknowledged = {doc_id for writer in writers for doc_id in writer.acknowledged}
    for server in servers[1:]:
        assert acknowledged <= ids(server)
    lost = [one for writer in writers for one in writer.refused]
    assert {one["code"] for one in lost} <= {"WORKER_LOST"}
    assert all(one["details"]["writeOutcome"] == "unknown_reconcile" for one in lost)
    # Replies do not wait for the index file of the repository.
    assert eventually(lambda: not run("git", "status", "--porcelain", "notes", cwd=project))
    attached = next(server for server in servers[1:] if not owns(server, project))
    below = descendants(attached.process.pid)
    assert attached.process.stdin is not None
    attached.process.stdin.close()
    assert attached.process.wait(4) == 0
    assert eventually(lambda: not any(map(is_alive, below)), 2)
    assert attached.process.stdout is not None
    assert attached.process.stdout.read() == b""


def test_a_stdio_server_attaches_to_a_daemon_and_follows_it_and_a_daemon_attaches_to_nobody(
    tmp_path: Path, agent: StartStdio, project: Path, start: Any
) -> None:
    instance = Instance.__new__(Instance)
    instance.path = tmp_path / "instance.yaml"
    instance.path.write_text("name: t\nprojects:\n  - {name: m, path: ./main, role: writer}\n")
    issue = (f"--instance={instance.path}", "--role=writer", "--projects=*")
    token = run(BIN / "maad", "auth", "issue-token", *issue).strip()
    daemon: Daemon = start(instance, MAADD_RUNTIME_DIR=str(tmp_path / "daemon"))
    client = daemon.client(token)
    client.ok("maad_use_project", name="m")
    client.ok("maad_summary")
    server = agent("--role=admin")
    server.call("maad_subscribe")
    created = client.ok("maad_create", docType="note", fields={"title": "Of the daemon"})["docId"]
    told = server.receive()["params"]
    assert (told["uri"], told["project"]) == (f"maad://default/{created}", "default")
    assert owner_pid(project) in daemon.descendants()
    # Of both roles the lower one counts.
    assert server.call("maad_reindex")["errors"][0]["code"] == "INSUFFICIENT_ROLE"
    assert daemon.stop() == 0
    assert [line for line in map(json.loads, daemon.log.splitlines()) if line["level"] > 30] == []
    assert server.receive()["params"]["action"] == "resync"
    assert created in ids(server)
    assert owns(server, project)
    assert server.call("maad_reindex")["ok"]
    client = start(instance, MAADD_RUNTIME_DIR=str(tmp_path / "daemon")).client(token)
    client.ok("maad_use_project", name="m")
    error = client.call("maad_summary")["errors"][0]
    assert error["code"] == "PROJECT_LOCKED"
    assert error["details"] == {"scope": "project", "ownerPid": server.process.pid}
    assert f"the stdio server of main (process {server.process.pid}, since 20" in error["message"]
    assert str(project) not in error["message"]


def test_a_wedged_worker_of_a_killed_server_does_not_keep_the_project(
    tmp_path: Path, agent: StartStdio, project: Path
) -> None:
    def wedge_and_kill(server: Stdio) -> int:
        worker = owner_pid(project)
        assert worker is not None
        os.kill(worker, signal.SIGSTOP)
        server.process.kill()
        server.process.wait(10)
        assert is_alive(worker)
        return worker

    first = agent()
    created = first.call("maad_create", docType="note", fields={"title": "Kept"})["data"]["docId"]
    worker = wedge_and_kill(first)
    second = agent("--role=admin", MAAD_LOG_LEVEL="warn")
    assert created in ids(second)
    assert not is_alive(worker)
    worker = wedge_and_kill(second)
    assert second.process.stderr is not None
    assert b"abandoned_worker_killed" in second.process.stderr.readline()
    record = json.loads(run(BIN / "maad", "get", created, f"--project={project}", "--json"))
    assert record["docId"] == created
    assert not is_alive(worker)
