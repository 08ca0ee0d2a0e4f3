"""The HTTP server: uvicorn without its own loop, signals and logs (spec 04 §9.7, §15)."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from typing import cast

import uvicorn
from structlog.typing import FilteringBoundLogger

from maadd.config.settings import Settings
from maadd.protocol.errors import MaadError
from maadd.sessions.session import CloseReason
from maadd.sessions.table import SessionTable
from maadd.transport.app import HttpApp
from maadd.transport.protocol import BoundedHttpProtocol
from maadd.transport.sockets import listen_tcp, listen_unix, remove_socket

_GRACE_S = 5
"""How long answers that are under way may still take once the server closes."""


class HttpServer:
    """Serves an application on the host and port, or the unix socket, of the settings.

    The order of an end is `stop_accepting`, then whatever the front drains, then `close`,
    which ends the open streams before it waits for connections.
    """

    def __init__(
        self, app: HttpApp, settings: Settings, sessions: SessionTable, log: FilteringBoundLogger
    ) -> None:
        self._app = app
        self._settings = settings
        self._sessions = sessions
        self._log = log
        self._server = uvicorn.Server(_config(app, settings))
        self._listening: socket.socket | None = None
        self._ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    @property
    def port(self) -> int | None:
        """The bound port; None on a unix socket and before `start`."""
        if self._listening is None or self._listening.family == socket.AF_UNIX:
            return None
        return cast("int", self._listening.getsockname()[1])

    async def start(self) -> None:
        """Listen. Raises INSTANCE_CONFIG_INVALID when the address cannot be had."""
        self._listening = self._listen()
        self._serving = asyncio.create_task(self._serve(self._listening))
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait({ready, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._serving.done():
            await self._serving

    async def stop_accepting(self) -> None:
        """Refuse new connections; requests on open ones are still answered."""
        for server in self._server.servers:
            server.close()

    async def close(self) -> None:
        """End sessions and streams, wait for the answers under way, close every connection."""
        self._sessions.close_all(CloseReason.SHUTDOWN)
        self._stopping.set()
        if self._serving is not None:
            await self._serving
        if self._settings.transport == "unix" and self._settings.unix_socket is not None:
            remove_socket(self._settings.unix_socket)

    def _listen(self) -> socket.socket:
        settings = self._settings
        if settings.transport != "unix":
            return listen_tcp(settings.http_host, settings.http_port, self._log)
        if settings.unix_socket is None:
            raise MaadError("INSTANCE_CONFIG_INVALID", "the unix transport needs --unix-socket")
        return listen_unix(settings.unix_socket, settings.unix_socket_mode, self._log)

    async def _serve(self, listening: socket.socket) -> None:
        server = self._server
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        async with self._app.stateless.running():
            await server.startup(sockets=[listening])
            self._ready.set()
            try:
                await self._tick_until_stopped()
            finally:
                await server.shutdown(sockets=[listening])

    async def _tick_until_stopped(self) -> None:
        """Once a second: the `Date` header, and requests that take too long to come in."""
        headers_s = self._settings.http_headers_timeout_ms / 1000
        request_s = self._settings.http_request_timeout_ms / 1000
        period = min(1.0, headers_s / 2, request_s / 2)
        while not self._stopping.is_set():
            await self._server.on_tick(0)
            for connection in list(self._server.server_state.connections):
                if isinstance(connection, BoundedHttpProtocol):
                    connection.close_if_overdue(headers_s, request_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(period):
                    await self._stopping.wait()


def _config(app: HttpApp, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=BoundedHttpProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        # The application logs its failures itself, with their request.
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=math.ceil(settings.http_keepalive_timeout_ms / 1000),
        timeout_graceful_shutdown=_GRACE_S,
    )
