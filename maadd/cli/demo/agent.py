"""The demo's client: the official SDK over Streamable HTTP, one session a client."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent

from maadd.cli.demo.page import Page

_TIMEOUT_S = 30.0


class Refused(Exception):
    """A tool that answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code: str = error["code"]
        self.message: str = error["message"]
        self.details: dict[str, Any] = error.get("details") or {}


class Agent:
    """Calls tools and shows each call on the page."""

    def __init__(self, client: Client, page: Page) -> None:
        self._client = client
        self._page = page

    async def call(self, tool: str, **args: Any) -> Any:
        """The `data` of the answer; raises Refused for an error."""
        started = time.perf_counter()
        result = await self._client.call_tool(tool, args)
        self._page.call(tool, args, (time.perf_counter() - started) * 1000)
        content = result.content[0]
        assert isinstance(content, TextContent)
        envelope = json.loads(content.text)
        if not envelope["ok"]:
            raise Refused(envelope["errors"][0])
        return envelope["data"]

    async def refused(self, code: str, tool: str, **args: Any) -> Refused:
        """As `call`, where the answer should be an error with this code; it is shown."""
        try:
            await self.call(tool, **args)
        except Refused as refusal:
            if refusal.code != code:
                raise
            self._page.refusal(refusal.code, refusal.message)
            return refusal
        raise AssertionError(f"{tool} should have answered {code}")

    async def tool_count(self) -> int:
        """How many tools the server lists."""
        return len((await self._client.list_tools()).tools)


@contextlib.asynccontextmanager
async def connected(port: int, token: str, page: Page) -> AsyncIterator[Agent]:
    """An agent with a session of its own."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=_TIMEOUT_S) as http,
        Client(
            streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http),
            mode="legacy",
        ) as client,
    ):
        yield Agent(client, page)
