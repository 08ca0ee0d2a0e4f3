"""The server of the http and unix transports (spec 04 §9.7, §15)."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import cast

from structlog.typing import FilteringBoundLogger

from maadd.config.settings import Settings
from maadd.protocol.errors import MaadError
from maadd.sessions.session import CloseReason
from maadd.sessions.table import SessionTable
from maadd.transport.app import HttpApp
from maadd.transport.embedded import GRACE_S, EmbeddedServer, Waits
from maadd.transport.sockets import check_inherited, listen_tcp, listen_unix, remove_socket


class HttpServer:
    """Serves an application on the host and port, or the unix socket, of the settings; or on
    the sockets that a service manager opened for it, `inherited`.

    The order of an end is `stop_accepting`, then whatever the front drains, then `close`,
    which ends the open streams before it waits for connections.
    """

    def __init__(
        self,
        app: HttpApp,
        settings: Settings,
        sessions: SessionTable,
        log: FilteringBoundLogger,
        inherited: Sequence[socket.socket] = (),
    ) -> None:
        self._app = app
        self._settings = settings
        self._sessions = sessions
        self._log = log
        self._inherited = inherited
        self._listening: Sequence[socket.socket] = ()
        waits = Waits(
            settings.http_headers_timeout_ms / 1000,
            settings.http_request_timeout_ms / 1000,
            settings.http_keepalive_timeout_ms / 1000,
        )
        self._server = EmbeddedServer(app, waits, app.count_refusal)

    @property
    def port(self) -> int | None:
        """The bound port; None on a unix socket and before `start`."""
        if not self._listening or self._listening[0].family == socket.AF_UNIX:
            return None
        return cast("int", self._listening[0].getsockname()[1])

    @property
    def socket_path(self) -> str | None:
        """The path of a unix socket that listens; None on a port and before `start`."""
        if not self._listening or self._listening[0].family != socket.AF_UNIX:
            return None
        return cast("str", self._listening[0].getsockname())

    async def start(self) -> None:
        """Listen. Raises INSTANCE_CONFIG_INVALID when the address cannot be had."""
        self._listening = self._listen()
        await self._server.start(self._listening, self._app.stateless.running())

    async def stop_accepting(self) -> None:
        """Refuse new connections, and requests that have not come in whole; others on open
        connections are still answered."""
        self._app.refuse_bodies()
        await self._server.stop_accepting()

    async def close(self, *, at_once: bool = False) -> None:
        """End sessions and streams, wait for the answers under way (unless `at_once`), close
        every connection."""
        self._app.end()
        self._sessions.close_all(CloseReason.SHUTDOWN)
        await self._server.close(0 if at_once else GRACE_S)
        settings = self._settings
        # A socket of the service manager stays: the next start takes what waits there.
        if not self._inherited and settings.transport == "unix" and settings.unix_socket:
            remove_socket(settings.unix_socket)

    def _listen(self) -> Sequence[socket.socket]:
        settings = self._settings
        if self._inherited:
            check_inherited(self._inherited, settings.transport, self._log)
            return self._inherited
        if settings.transport != "unix":
            return (listen_tcp(settings.http_host, settings.http_port, self._log),)
        if settings.unix_socket is None:
            raise MaadError("INSTANCE_CONFIG_INVALID", "the unix transport needs --unix-socket")
        return (listen_unix(settings.unix_socket, settings.unix_socket_mode, self._log),)
