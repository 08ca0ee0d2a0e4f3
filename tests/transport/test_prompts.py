"""The agent guides as prompts, with the SDK's own client in both eras (spec 04 §9.2, 03 §11)."""

from __future__ import annotations

import asyncio

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from maadd.protocol.guides import GUIDES, Guide
from maadd.tools import prompts
from maadd.tools.face import create_server

MODES = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])


def asked(server, token, mode, scenario):
    async def main():
        http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60)
        async with Client(streamable_http_client(server.url, http_client=http), mode=mode) as one:
            return await scenario(one)

    return asyncio.run(main())


@MODES
def test_an_unbound_client_lists_and_reads_the_guides(server, tokens, mode):
    async def scenario(client):
        listed = await client.list_prompts()
        return listed, [await client.get_prompt(one.name) for one in listed.prompts]

    listed, read = asked(server, tokens.alpha_only, mode, scenario)
    assert [one.name for one in listed.prompts] == [guide.name for guide in GUIDES]
    assert all(one.title and one.description and not one.arguments for one in listed.prompts)
    assert listed.next_cursor is None
    for guide, one in zip(GUIDES, read, strict=True):
        (message,) = one.messages
        assert (message.role, message.content.type) == ("user", "text")
        assert message.content.text == guide.read().decode()
        assert "maad_" in message.content.text
    assert len(read[0].messages[0].content.text) > 2000


@MODES
def test_what_does_not_exist_is_refused_with_the_next_step(server, tokens, mode):
    async def refused(asking):
        with pytest.raises(MCPError) as caught:
            await asking
        return caught.value.error

    async def scenario(client):
        return [
            await refused(client.get_prompt("architect")),
            await refused(client.get_prompt("maad-md", {"project": "alpha"})),
            await refused(client.list_prompts(cursor="later")),
        ]

    errors = asked(server, tokens.admin, mode, scenario)
    assert {error.code for error in errors} == {-32602}
    assert "'architect-core'" in errors[0].message
    assert "no arguments" in errors[1].message
    assert errors[2].data["code"] == "INVALID_ARGS"


def test_the_capability_is_declared_and_drain_refuses(server, tokens):
    response = server.request(body=server.hello, token=tokens.admin)
    assert "prompts" in response.result["capabilities"]
    session = response.headers["mcp-session-id"]
    server.state.draining = True
    body = {"jsonrpc": "2.0", "id": 2, "method": "prompts/list"}
    (message,) = server.request(body=body, token=tokens.admin, session=session).messages
    assert message["error"]["data"]["code"] == "SHUTTING_DOWN"
    # Nobody reads them without a token.
    assert server.request(body=body, session=session).status == 401


def test_a_long_list_comes_in_pages():
    guides = tuple(Guide(f"g-{number}", "MAAD.md", "t", "d") for number in range(120))
    listing = create_server(None, version="1")

    class State:
        draining = False

    prompts.add_prompts(listing, State(), guides)
    handler = listing.get_request_handler("prompts/list").handler

    async def pages():
        cursor, sizes, names = None, [], []
        while True:
            page = await handler(None, prompts.mcp_types.PaginatedRequestParams(cursor=cursor))
            sizes.append(len(page["prompts"]))
            names += [one["name"] for one in page["prompts"]]
            cursor = page.get("nextCursor")
            if cursor is None:
                return sizes, names

    sizes, names = asyncio.run(pages())
    assert sizes == [50, 50, 20]
    assert names == [guide.name for guide in guides]
