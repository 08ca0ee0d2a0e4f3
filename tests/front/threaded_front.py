"""Fronts on a loop in a thread, for tests that talk to them over HTTP like any client."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import uvloop
from daemon_bench import Client, eventually
from msgspec.structs import replace
from shared_pool import (
    UNLIMITED,
    GatedProject,
    Rooms,
    admin_token,
    new_tokens,
    opened_pool,
)

from maadd.pipeline.front_tools import EnginelessHandler
from maadd.pool.policy import PoolPolicy, RestartLimits
from maadd.pool.pool import WorkerPool

POLICY = PoolPolicy(
    worker_queue=8,
    start_timeout_s=2,
    check_interval_s=0.05,
    start_failure_ttl_s=1,
    restart=RestartLimits(first_delay_s=0.03, jitter=0),
)


class ServedRooms:
    """One front that listens, and its log."""

    def __init__(self, rooms: Rooms, port: int, tokens: Callable[[], str], events: list[Any]):
        self.rooms = rooms
        self._port = port
        self._issue = tokens
        self._token = tokens()
        self.events = events

    def client(self, *, project: str = "main", role: str = "admin", other: bool = False) -> Client:
        """A bound session of the front's one token, or of a new one."""
        client = Client(self._port, self._issue() if other else self._token)
        client.initialize()
        client.ok("maad_use_project", name=project, **{"as": role})
        return client

    def logged(self, name: str) -> list[dict[str, Any]]:
        """The lines of that name."""
        return [event for event in self.events if event["event"] == name]


class ThreadedFront:
    """A pool of workers over `projects`; `serve` puts a front before it, with its own limits."""

    def __init__(self, folder: Path, runtime_dir: str, log_into: Any, *names: str) -> None:
        self._folder, self._log_into = folder, log_into
        self._tokens = new_tokens(folder)
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self._executor = ThreadPoolExecutor(16)
        self._open: list[Callable[[], None]] = []
        self._pool_events: list[dict[str, Any]] = []
        log = log_into(self._pool_events)
        self._pool = opened_pool(folder, runtime_dir, log, POLICY, *names)
        self.state, self.pool, self.projects = self.run(self._pool.__aenter__())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of work on the loop of the fronts."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def serve(self, *engineless: tuple[str, EnginelessHandler], **settings: Any) -> ServedRooms:
        """A front that listens until the end of the test."""
        events: list[Any] = []
        chosen = replace(UNLIMITED, **{"rl_disable": False} | settings)

        async def start() -> tuple[Rooms, Any]:
            rooms = Rooms(
                self._folder,
                self.state,
                self.pool,
                self._tokens,
                self._log_into(events),
                chosen,
                **dict(engineless),
            )
            return rooms, await rooms.serve_http()

        rooms, server = self.run(start())
        self._open.append(lambda: self.run(server.close(at_once=True)))
        self._open.append(rooms.close)
        return ServedRooms(rooms, server.port, lambda: admin_token(self._tokens), events)

    @property
    def main(self) -> GatedProject:
        return self.projects["main"]

    def logged(self, name: str) -> list[dict[str, Any]]:
        """The lines of the pool of that name, of all tests."""
        return [event for event in self._pool_events if event["event"] == name]

    def later(self, client: Client, tool: str, **arguments: Any) -> Future[dict[str, Any]]:
        """A call of the client's session on a connection of its own."""
        return self.submit(client.twin().call, tool, **arguments)

    def submit(self, action: Callable[..., Any], *args: Any, **named: Any) -> Future[Any]:
        """An action on a thread of its own."""
        return self._executor.submit(action, *args, **named)

    def held(self, client: Client, tool: str, **arguments: Any) -> Future[dict[str, Any]]:
        """The same, once a worker has it."""
        before = in_flight(self.pool)
        future = self.later(client, tool, **arguments)
        assert eventually(lambda: in_flight(self.pool) > before)
        return future

    def end_test(self) -> None:
        """Let everything go and close the fronts."""
        for project in self.projects.values():
            project.let_go()
            with contextlib.suppress(FileNotFoundError):
                (project.path / "behaviour").unlink()
        while self._open:
            self._open.pop(0)()
        assert eventually(lambda: in_flight(self.pool) == 0)

    def close(self) -> None:
        self.run(self._pool.__aexit__(None, None, None))
        self._executor.shutdown()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


def in_flight(pool: WorkerPool) -> int:
    """Calls that workers hold, read from another thread."""
    return pool.in_flight()
