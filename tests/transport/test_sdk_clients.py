"""The SDK's own client against the HTTP server, in both eras (spec 04 §9.2, §9.8, §11)."""

from __future__ import annotations

import asyncio
import json

import httpx2
import mcp_types
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from maadd.transport.messages import notification


def client_of(server, token: str, mode: str, **options) -> Client:
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60)
    return Client(streamable_http_client(server.url, http_client=http), mode=mode, **options)


def envelope(result) -> dict:
    return json.loads(result.content[0].text)


@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
def test_a_client_lists_and_calls_tools(server, tokens, mode):
    async def scenario():
        async with client_of(server, tokens.admin, mode) as client:
            listed = await client.list_tools()
            answered = await client.call_tool("maad_get", {"docId": "x"})
            refused = await client.call_tool("refused", {})
            return listed, answered, refused

    listed, answered, refused = asyncio.run(scenario())
    assert "maad_get" in [tool.name for tool in listed.tools]
    data = envelope(answered)["data"]
    assert data["arguments"] == {"docId": "x"}
    assert ("session" in data) is (mode == "legacy")
    assert not answered.is_error
    assert refused.is_error


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_a_client_hears_of_progress(server, tokens, mode):
    heard = []

    async def on_progress(progress, total, message):
        heard.append((progress, total, message))

    async def scenario():
        async with client_of(server, tokens.admin, mode) as client:
            await client.call_tool("progress", {}, progress_callback=on_progress)

    asyncio.run(scenario())
    assert heard == [(1.0, 2.0, "half"), (2.0, 2.0, None)]


def test_a_client_of_the_handshake_era_closes_its_session(server, tokens):
    async def scenario():
        async with client_of(server, tokens.admin, "legacy") as client:
            await client.list_tools()
            assert len(server.sessions) == 1

    asyncio.run(scenario())
    assert len(server.sessions) == 0


def test_a_client_hears_notifications_of_its_session(server, tokens):
    async def scenario():
        heard: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        async def on_message(message: object) -> None:
            if not heard.done():
                heard.set_result(message)

        async with client_of(server, tokens.admin, "legacy", message_handler=on_message):
            await asyncio.to_thread(push_when_reading)
            return await heard

    def push_when_reading() -> None:
        update = notification(
            "notifications/resources/updated", {"uri": "maad://alpha/doc-1", "action": "create"}
        )

        async def push() -> None:
            (session,) = server.sessions
            while not session.notices.offer(update):
                await asyncio.sleep(0)

        server.run(push())

    message = asyncio.run(scenario())
    assert isinstance(message, mcp_types.ResourceUpdatedNotification)
    assert str(message.params.uri) == "maad://alpha/doc-1"


def test_capabilities_follow_the_handlers_of_the_server(server, tokens):
    async def scenario():
        async with client_of(server, tokens.admin, "legacy") as client:
            return client.server_capabilities

    capabilities = asyncio.run(scenario())
    assert capabilities.tools.list_changed is True
    assert capabilities.resources is None
