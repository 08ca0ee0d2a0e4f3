"""`/metrics` on a listener of its own (spec 04 §9.9).

There is no bearer here: what protects the figures is the loopback address or the socket's mode.
A web page must not reach them either, not even through a name that it points at this machine:
so an `Origin` is refused, and a `Host` that is neither an address nor `localhost`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Callable, Sequence

from structlog.typing import FilteringBoundLogger

from maadd.transport.embedded import EmbeddedServer, Waits
from maadd.transport.replies import NOSNIFF, Answer, Receive, Reply, Scope, Send, refusal
from maadd.transport.sockets import listen_tcp, listen_unix, remove_socket

PATH = "/metrics"

_WAITS = Waits(headers_s=5.0, request_s=5.0, keep_alive_s=75.0)
_SOCKET_MODE = 0o660
_NOT_FOUND = refusal("NOT_FOUND", f"there is nothing here; the metrics are at {PATH}")
_NOT_ALLOWED = refusal("BAD_REQUEST", "only GET is served", (b"allow", b"GET"), status=405)
_FOREIGN = refusal("ORIGIN_FORBIDDEN", "the metrics are not for web pages")
_FAILED = refusal("INTERNAL", "an unexpected failure; the server's log has it")

Render = Callable[[], bytes]
"""Makes the text of a scrape; called in a thread, with what was taken on the loop."""


class MetricsServer:
    """Serves what `take` has rendered, at a port of 127.0.0.1, a socket path, or on sockets of
    the service manager. `take` runs on the loop and must be quick; what it returns renders the
    text beside the loop."""

    def __init__(
        self, take: Callable[[], Render], content_type: str, log: FilteringBoundLogger
    ) -> None:
        self._take = take
        self._headers = [
            (b"content-type", content_type.encode()),
            (b"cache-control", b"no-store"),
            NOSNIFF,
        ]
        self._log = log
        self._server = EmbeddedServer(self._serve, _WAITS, lambda _code: None)
        self._path: str | None = None

    async def start(self, at: int | str | None, inherited: Sequence[socket.socket]) -> None:
        """Listen on what was inherited, else `at` a port or a socket's path.

        Raises INSTANCE_CONFIG_INVALID when the address cannot be had.
        """
        listening = inherited
        if not listening and isinstance(at, int):
            listening = (listen_tcp("127.0.0.1", at, self._log),)
        elif not listening and isinstance(at, str):
            listening = (listen_unix(at, _SOCKET_MODE, self._log),)
            self._path = at
        await self._server.start(listening, contextlib.nullcontext())
        self._log.info("metrics_listening", address=_shown(listening[0]))

    async def close(self) -> None:
        """Answer what is being asked, then end."""
        await self._server.stop_accepting()
        await self._server.close()
        if self._path is not None:
            remove_socket(self._path)

    async def _serve(self, scope: Scope, _receive: Receive, send: Send) -> None:
        reply = Reply(scope, send)
        refused = _refusal_of(scope)
        if refused is not None:
            await reply.send(refused)
            return
        try:
            text = await asyncio.to_thread(self._take())
        except Exception:
            self._log.exception("metrics_failed")
            await reply.send(_FAILED)
            return
        await reply.send(Answer(200, text, self._headers))


def _refusal_of(scope: Scope) -> Answer | None:
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    if any(name == b"origin" for name, _ in headers):
        return _FOREIGN
    hosts = [value for name, value in headers if name == b"host"]
    # A browser cannot open a unix socket, which has no address.
    if scope.get("client") is not None and not all(map(_is_address, hosts)):
        return _FOREIGN
    if scope["path"] != PATH:
        return _NOT_FOUND
    return None if scope["method"] == "GET" else _NOT_ALLOWED


def _is_address(host: bytes) -> bool:
    """Whether a `Host` is a literal address or `localhost`, with or without a port."""
    text = host.strip().decode("latin-1").lower()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") <= 1:
        text = text.partition(":")[0]
    if text == "localhost":
        return True
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _shown(listening: socket.socket) -> str:
    name = listening.getsockname()
    if listening.family == socket.AF_UNIX:
        return str(name)
    host, port = name[:2]
    return f"[{host}]:{port}" if listening.family == socket.AF_INET6 else f"{host}:{port}"
