"""The SDK's own HTTP server, for the requests of the stateless revision that are not ours.

Imported once the kernel is loaded, as it brings the SDK with it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from maadd.transport.replies import Receive, Send


class SdkHttp:
    """Answers single requests with events where the client takes them, else in plain JSON."""

    def __init__(self, server: Server[Any], max_body: int) -> None:
        self._with_events = _manager(server, max_body, plain_json=False)
        self._plain = _manager(server, max_body, plain_json=True)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Requests are answered inside; enter and leave it in one task."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._with_events.run())
            await stack.enter_async_context(self._plain.run())
            yield

    async def answer(
        self, scope: dict[str, Any], receive: Receive, send: Send, *, takes_events: bool
    ) -> None:
        """Answer one request."""
        manager = self._with_events if takes_events else self._plain
        await manager.handle_request(scope, receive, send)


def _manager(
    server: Server[Any], max_body: int, *, plain_json: bool
) -> StreamableHTTPSessionManager:
    return StreamableHTTPSessionManager(
        server, json_response=plain_json, stateless=True, max_request_body_size=max_body
    )
