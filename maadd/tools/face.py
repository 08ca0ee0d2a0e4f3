"""The MCP face of the tools: one SDK server object for every client (spec 04 §9.2).

Transports answer `tools/call` straight from the pipeline; what they hand to the SDK ends
here. Arguments are the pipeline's to judge, so nothing is validated before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import mcp_types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp_types.methods import serialize_server_result

from maadd.pipeline.envelope import CallResult
from maadd.pipeline.progress import ReportProgress
from maadd.protocol.json_schema import tool_entry
from maadd.protocol.size import encode_result
from maadd.protocol.tools import ToolSpec
from maadd.sessions.session import Session
from maadd.sessions.stateless import StatelessCaller
from maadd.sessions.views import Caller

SERVER_NAME = "maad"

CALLER_SCOPE_KEY = "maad.caller"
"""Where an HTTP request that the SDK serves carries its caller, in the ASGI scope."""

COMPLETE = {"resultType": "complete"}
_CACHE_HINT = {"ttlMs": 60_000, "cacheScope": "private"}
"""Members the stateless revision requires; earlier ones never see them."""


class ToolPipeline(Protocol):
    """What answers tool calls; never raises for a failure of a call."""

    async def call(
        self,
        caller: Caller,
        tool: str,
        arguments: object,
        *,
        progress: ReportProgress | None = None,
        source: bytes | None = None,
    ) -> CallResult:
        """Run one call through all checks; `arguments` is decoded JSON as the client sent it,
        `source` its text for the tools that judge that."""
        ...

    def listed_tools(self, caller: Caller) -> Sequence[ToolSpec]:
        """The tools this caller is shown."""
        ...


class ToolListing:
    """`tools/list`, made once for each set of tools that anybody is shown."""

    __slots__ = ("_pipeline", "_results", "_texts")

    def __init__(self, pipeline: ToolPipeline) -> None:
        self._pipeline = pipeline
        self._results: dict[tuple[str, ...], dict[str, Any]] = {}
        self._texts: dict[tuple[str, tuple[str, ...]], bytes] = {}

    def result(self, caller: Caller) -> dict[str, Any]:
        """The result object for this caller, with all that any revision asks for."""
        specs = self._pipeline.listed_tools(caller)
        names = tuple(spec.name for spec in specs)
        found = self._results.get(names)
        if found is None:
            tools = [tool_entry(spec) for spec in specs]
            found = self._results[names] = {"tools": tools, **COMPLETE, **_CACHE_HINT}
        return found

    def text(self, caller: Caller, version: str) -> bytes:
        """The result as JSON in the form of protocol `version`."""
        names = tuple(spec.name for spec in self._pipeline.listed_tools(caller))
        found = self._texts.get((version, names))
        if found is None:
            result = serialize_server_result("tools/list", version, self.result(caller))
            found = self._texts[version, names] = msgspec.json.encode(result)
        return found


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
