"""The MCP face of the tools: one SDK server object for every client (spec 04 §9.2).

Transports answer `tools/call` straight from the pipeline; what they hand to the SDK ends
here. Arguments are the pipeline's to judge, so nothing is validated before it.
"""

from __future__ import annotations

from typing import Any

import mcp_types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions

from maadd.protocol.size import encode_result
from maadd.sessions.session import Session
from maadd.sessions.stateless import CALLER_SCOPE_KEY, StatelessCaller
from maadd.sessions.views import Caller
from maadd.tools.listing import COMPLETE, SERVER_NAME, ToolListing, ToolPipeline


def create_server(
    pipeline: ToolPipeline,
    *,
    version: str,
    structured: bool = False,
    instructions: str | None = None,
) -> Server[Any]:
    """The SDK server of both eras; other rooms add handlers of resources and prompts to it.

    `structured` repeats each envelope as `structuredContent`.
    """
    server: Server[Any] = Server(
        SERVER_NAME,
        version=version,
        instructions=instructions,
        # No argument of ours is mirrored into a header, so there is nothing to compare.
        get_tool_input_schema=lambda _name: None,
    )
    # Its only middleware is tracing for an exporter that we do not have.
    server.middleware.clear()
    listing = ToolListing(pipeline)

    async def list_tools(
        ctx: ServerRequestContext[Any, Any], _params: mcp_types.PaginatedRequestParams
    ) -> dict[str, Any]:
        return listing.result(caller_of(ctx))

    async def call_tool(
        ctx: ServerRequestContext[Any, Any], params: mcp_types.CallToolRequestParams
    ) -> dict[str, Any]:
        result = await pipeline.call(
            caller_of(ctx), params.name, params.arguments, progress=ctx.session.report_progress
        )
        encoded = encode_result(result.text, is_error=result.is_error, structured=structured)
        return {**msgspec.json.decode(encoded), **COMPLETE}

    server.add_request_handler("tools/list", mcp_types.PaginatedRequestParams, list_tools)
    server.add_request_handler("tools/call", mcp_types.CallToolRequestParams, call_tool)
    return server


def initialization_options(server: Server[Any]) -> InitializationOptions:
    """What `initialize` answers; capabilities follow the handlers that `server` has."""
    return server.create_initialization_options(NotificationOptions(tools_changed=True))


def caller_of(ctx: ServerRequestContext[Any, Any]) -> Caller:
    """Who sent the request that an SDK handler is asked to answer."""
    carrier: Any = ctx.request
    if isinstance(carrier, (Session, StatelessCaller)):
        return carrier
    caller: Caller = carrier.scope[CALLER_SCOPE_KEY]
    return caller
