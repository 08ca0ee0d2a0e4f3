"""The agent guides as MCP prompts (spec 04 §9.2, 03 §11).

The texts are those of this version and say nothing about any project, so that whoever may
connect may read them, bound or not: the first of them teaches how to bind. What a project adds
for itself is in its own files.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol

import mcp_types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server

from maadd.protocol.errors import MaadError
from maadd.protocol.guides import GUIDES, Guide
from maadd.protocol.suggestion import nearest
from maadd.sessions.access import refuse_while_draining
from maadd.tools.listing import COMPLETE
from maadd.tools.rpc_errors import rpc_error

PAGE_SIZE = 50

Context = ServerRequestContext[Any, Any]

_CACHE_HINT = {"ttlMs": 3_600_000, "cacheScope": "public"}


class FrontState(Protocol):
    """What a listing asks of the running front."""

    @property
    def draining(self) -> bool: ...


def add_prompts(server: Server[Any], state: FrontState, guides: tuple[Guide, ...] = GUIDES) -> None:
    """Have `server` answer `prompts/list` and `prompts/get`.

    SHUTTING_DOWN while draining; INVALID_ARGS for a strange cursor, name or argument.
    """
    by_name = {guide.name: guide for guide in guides}

    async def list_prompts(
        ctx: Context, params: mcp_types.PaginatedRequestParams
    ) -> dict[str, Any]:
        try:
            refuse_while_draining(state.draining)
            first = _place(params.cursor, len(guides))
        except MaadError as error:
            raise rpc_error(error, ctx.protocol_version) from None
        behind = first + PAGE_SIZE
        shown = [_listed(guide) for guide in guides[first:behind]]
        result: dict[str, Any] = {"prompts": shown, **COMPLETE, **_CACHE_HINT}
        if behind < len(guides):
            result["nextCursor"] = str(behind)
        return result

    async def get_prompt(ctx: Context, params: mcp_types.GetPromptRequestParams) -> dict[str, Any]:
        try:
            refuse_while_draining(state.draining)
            guide = _named(by_name, params.name, params.arguments)
        except MaadError as error:
            raise rpc_error(error, ctx.protocol_version) from None
        message = {"role": "user", "content": {"type": "text", "text": _text(guide)}}
        return {"description": guide.description, "messages": [message], **COMPLETE}

    server.add_request_handler("prompts/list", mcp_types.PaginatedRequestParams, list_prompts)
    server.add_request_handler("prompts/get", mcp_types.GetPromptRequestParams, get_prompt)


def _listed(guide: Guide) -> dict[str, Any]:
    return {"name": guide.name, "title": guide.title, "description": guide.description}


def _place(cursor: str | None, number: int) -> int:
    """Where a page begins."""
    if cursor is None:
        return 0
    if cursor.isascii() and cursor.isdecimal() and len(cursor) <= 9 and 0 < int(cursor) < number:
        return int(cursor)
    raise MaadError(
        "INVALID_ARGS",
        "the cursor is none of this listing; start again without it",
        {"field": "cursor"},
    )


def _named(guides: dict[str, Guide], name: str, arguments: dict[str, str] | None) -> Guide:
    guide = guides.get(name)
    if guide is None:
        suggestion = nearest(name, list(guides))
        meant = f"; did you mean {suggestion!r}?" if suggestion else ""
        raise MaadError("INVALID_ARGS", f"no prompt has this name{meant}", {"field": "name"})
    if arguments:
        raise MaadError(
            "INVALID_ARGS", f"the prompt {name!r} takes no arguments", {"field": "arguments"}
        )
    return guide


@cache
def _text(guide: Guide) -> str:
    return guide.read().decode()
