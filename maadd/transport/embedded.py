"""uvicorn inside a process that has its own loop, signals and logs (spec 04 §9.7, §15)."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import msgspec
import uvicorn

from maadd.transport.protocol import BoundedHttpProtocol

GRACE_S = 5
"""How long answers that are under way may still take once the server closes."""


class Waits(msgspec.Struct, frozen=True):
    """How long a connection may take, in seconds: for the headers of a request, for the whole
    request, and idle between two."""

    headers_s: float
    request_s: float
    keep_alive_s: float


class EmbeddedServer:
    """Serves an ASGI application on listening sockets.

    The order of an end is `stop_accepting`, then whatever is to be drained, then `close`.
    `on_refused` hears the code of each answer that the application never saw.
    """

    def __init__(self, app: Any, waits: Waits, on_refused: Callable[[str], None]) -> None:
        self._waits = waits
        self._server = uvicorn.Server(_config(app, waits, on_refused))
        self._ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    async def start(
        self, listening: Sequence[socket.socket], around: AbstractAsyncContextManager[object]
    ) -> None:
        """Accept connections; `around` is entered before and left at the end, in one task."""
        self._serving = asyncio.create_task(self._serve(list(listening), around))
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait({ready, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._serving.done():
            await self._serving

    async def stop_accepting(self) -> None:
        """Refuse new connections; requests on open ones are still answered."""
        for server in self._server.servers:
            server.close()

    async def close(self, grace_s: int = GRACE_S) -> None:
        """Wait `grace_s` seconds for the answers under way, then close every connection."""
        self._server.config.timeout_graceful_shutdown = grace_s
        self._stopping.set()
        if self._serving is not None:
            await self._serving

    async def _serve(
        self, listening: list[socket.socket], around: AbstractAsyncContextManager[object]
    ) -> None:
        server = self._server
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        async with around:
            await server.startup(sockets=listening)
            self._ready.set()
            try:
                await self._tick_until_stopped()
            finally:
                await server.shutdown(sockets=listening)

    async def _tick_until_stopped(self) -> None:
        """Once a second: the `Date` header, and requests that take too long to come in."""
        waits = self._waits
        period = min(1.0, waits.headers_s / 2, waits.request_s / 2)
        while not self._stopping.is_set():
            await self._server.on_tick(0)
            for connection in list(self._server.server_state.connections):
                if isinstance(connection, BoundedHttpProtocol):
                    connection.close_if_overdue(waits.headers_s, waits.request_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(period):
                    await self._stopping.wait()


def _config(app: Any, waits: Waits, on_refused: Callable[[str], None]) -> uvicorn.Config:
    protocol: Any = partial(BoundedHttpProtocol, on_refused)
    return uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        # The application logs its failures itself, with their request.
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=math.ceil(waits.keep_alive_s),
        timeout_graceful_shutdown=GRACE_S,
    )
