"""What the tests of pool and process use to drive real workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import small_engine
import structlog

from maadd.pool.policy import PoolPolicy, RestartLimits
from maadd.pool.pool import WorkerPool
from maadd.pool.runtime_dir import RuntimeDir
from maadd.pool.spawn import Spawner, WorkerProgram
from maadd.protocol.errors import MaadError
from maadd.protocol.messages import Call, Event, HistorySettings, Reply, WorkerSettings

QUICK = PoolPolicy(
    check_interval_s=0.05,
    sweep_interval_s=0.1,
    idle_timeout_s=0,
    cancel_answer_s=5,
    drain_s=5,
    term_s=2,
    restart=RestartLimits(first_delay_s=0.01, max_delay_s=0.02, jitter=0),
)


AUDIT = HistorySettings("audit", "audit", "project")


@dataclass(frozen=True)
class Directory:
    """A project."""

    name: str
    path: str
    history: HistorySettings = AUDIT

    def lines(self, file: str) -> list[str]:
        """What the worker wrote into a file of the project."""
        path = Path(self.path, file)
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def behave(self, text: str) -> None:
        Path(self.path, "behaviour").write_text(text)

    def fifo(self, name: str) -> str:
        path = os.path.join(self.path, name)
        os.mkfifo(path)
        return path


def open_fifo(path: str) -> None:
    """Let a worker that is held by the FIFO go on; waits until one is."""
    with open(path, "wb"):
        pass


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that another process does."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


async def error_of(awaitable: Awaitable[object]) -> MaadError:
    """The error of something that must fail."""
    with pytest.raises(MaadError) as caught:
        await awaitable
    return caught.value


async def gone(pid: int) -> None:
    """Wait until a process is gone."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        readable, _, _ = await asyncio.to_thread(select.select, [fd], [], [], 20)
        assert readable, f"process {pid} is still there"
    finally:
        os.close(fd)


def call_of(tool: str, **args: object) -> Call:
    return Call(
        request_id=uuid.uuid4().hex,
        tool=tool,
        args=args,
        role=2,
        session_id="session",
        generation=0,
        deadline_ms=30_000,
    )


@dataclass(frozen=True)
class HeldWrite:
    """A write that its worker has published and does not answer before it is released."""

    reply: asyncio.Future[Reply]
    fifo: str

    async def release(self) -> None:
        """Let the worker go on."""
        await asyncio.to_thread(open_fifo, self.fifo)

    async def finish(self) -> Reply:
        """Let the worker go on and answer."""
        await self.release()
        return await self.reply


class Bench:
    """A started pool and what a test does with it."""

    pool: WorkerPool

    def __init__(self, projects_dir: Path) -> None:
        self.events: list[tuple[str, Event]] = []
        self._projects_dir = projects_dir

    def project(self, name: str = "one", behaviour: str | None = None) -> Directory:
        path = self._projects_dir / name
        path.mkdir()
        project = Directory(name, str(path))
        if behaviour is not None:
            project.behave(behaviour)
        return project

    async def read(
        self, project: Directory, tool: str, *, timeout_s: float = 30, **args: object
    ) -> Reply:
        return await self.pool.call(
            project, call_of(tool, **args), is_write=False, timeout_s=timeout_s
        )

    async def write(
        self, project: Directory, tool: str, *, timeout_s: float = 30, **args: object
    ) -> Reply:
        return await self.pool.call(
            project, call_of(tool, **args), is_write=True, timeout_s=timeout_s
        )

    async def hold_write(self, project: Directory, text: str) -> HeldWrite:
        """A `put` of `text` that is in the hand of the worker."""
        fifo = project.fifo("hold")
        reply = asyncio.ensure_future(self.write(project, "put", text=text, after=fifo))
        await until(lambda: project.lines("written"))
        return HeldWrite(reply, fifo)


@contextlib.asynccontextmanager
async def opened_bench(
    runtime_dir: str,
    projects_dir: Path,
    policy: PoolPolicy = QUICK,
    settings: WorkerSettings | None = None,
    log: Any = None,
) -> AsyncIterator[Bench]:
    runtime = RuntimeDir.claim(runtime_dir, {"MAADD_RUNTIME_DIR": runtime_dir})
    bench = Bench(projects_dir)
    program = WorkerProgram(small_engine.enter, ("maadd_worker.process.main",))
    bench.pool = WorkerPool(
        spawner=Spawner(runtime.path, program),
        endpoint=runtime.workers_endpoint,
        control_endpoint=None,
        settings=settings or WorkerSettings(worker_queue=policy.worker_queue),
        policy=policy,
        on_event=lambda project, event: bench.events.append((project, event)),
        log=log or structlog.get_logger(),
    )
    await bench.pool.start()
    try:
        yield bench
    finally:
        await bench.pool.close()
        runtime.release()
