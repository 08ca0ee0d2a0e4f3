"""Records as MCP resources: listed in pages, read as Markdown (spec 04 §11).

Each page and each reading is a tool call underneath, so that project and role rules, limits,
budgets and logs are those of `maad_changes_since` and `maad_get`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Protocol

import mcp_types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server

from maadd.config.instance import Instance
from maadd.protocol.errors import MaadError, WireError
from maadd.sessions.access import bind_by_itself, bound_projects
from maadd.sessions.record_uri import RecordUri
from maadd.sessions.stateless import StatelessCaller, admitted_projects
from maadd.sessions.views import Caller
from maadd.tools.face import caller_of
from maadd.tools.listing import COMPLETE, ToolPipeline
from maadd.tools.rpc_errors import rpc_error

MIME_TYPE = "text/markdown"
PAGE_SIZE = 100

_NEVER_STALE = {"ttlMs": 0, "cacheScope": "private"}
_TEMPLATES = {
    "resourceTemplates": [
        {
            "uriTemplate": "maad://{project}/{docId}",
            "name": "record",
            "title": "Record",
            "description": "A record of a project: its frontmatter and body as Markdown.",
            "mimeType": MIME_TYPE,
        }
    ],
    **COMPLETE,
    "ttlMs": 3_600_000,
    "cacheScope": "public",
}
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_YAML_WORDS = frozenset({"null", "true", "false"})

Context = ServerRequestContext[Any, Any]


class FrontState(Protocol):
    """What a listing asks of the running front."""

    @property
    def instance(self) -> Instance: ...


class _Cursor(msgspec.Struct, frozen=True, array_like=True):
    """Where a listing goes on: a project, and the place in it (None: its beginning)."""

    project: str
    inner: str | None


class _Envelope(msgspec.Struct, frozen=True):
    ok: bool
    data: dict[str, Any] = {}
    errors: list[WireError] = []


_envelope = msgspec.json.Decoder(_Envelope)
_cursor = msgspec.json.Decoder(_Cursor)


class RecordResources:
    """Answers `resources/list`, `resources/templates/list` and `resources/read`."""

    def __init__(self, pipeline: ToolPipeline, state: FrontState) -> None:
        self._pipeline = pipeline
        self._state = state

    def add_to(self, server: Server[Any]) -> None:
        """Have `server` answer these methods."""
        paginated = mcp_types.PaginatedRequestParams
        server.add_request_handler("resources/list", paginated, self._list)
        server.add_request_handler("resources/templates/list", paginated, self._list_templates)
        server.add_request_handler(
            "resources/read", mcp_types.ReadResourceRequestParams, self._read
        )

    async def _list(self, ctx: Context, params: mcp_types.PaginatedRequestParams) -> dict[str, Any]:
        caller = caller_of(ctx)
        try:
            names = self._readable_projects(caller)
            cursor = _decode_cursor(params.cursor, names)
        except MaadError as error:
            raise rpc_error(error, ctx.protocol_version) from None
        result: dict[str, Any] = {"resources": [], **COMPLETE, **_NEVER_STALE}
        while cursor is not None and not result["resources"]:
            page = await self._page(ctx, cursor)
            result["resources"] = [_listed(cursor.project, row) for row in page["changes"]]
            cursor = _next_cursor(cursor, page["nextCursor"], names)
        if cursor is not None:
            result["nextCursor"] = _encode_cursor(cursor)
        return result

    async def _page(self, ctx: Context, cursor: _Cursor) -> dict[str, Any]:
        arguments: dict[str, Any] = {"project": cursor.project, "limit": PAGE_SIZE}
        if cursor.inner is not None:
            arguments["cursor"] = cursor.inner
        return await self._call(ctx, "maad_changes_since", arguments)

    async def _list_templates(
        self, _ctx: Context, _params: mcp_types.PaginatedRequestParams
    ) -> dict[str, Any]:
        return _TEMPLATES

    async def _read(
        self, ctx: Context, params: mcp_types.ReadResourceRequestParams
    ) -> dict[str, Any]:
        try:
            uri = RecordUri.parse(params.uri)
            if uri.doc_id is None:
                raise MaadError(
                    "INVALID_ARGS",
                    f"{params.uri} is a project; its records are {uri}/<docId>",
                    {"uri": params.uri},
                )
        except MaadError as error:
            raise rpc_error(error, ctx.protocol_version) from None
        arguments = {"project": uri.project, "docId": uri.doc_id, "depth": "cold"}
        record = await self._call(ctx, "maad_get", arguments)
        contents = {
            "uri": params.uri,
            "mimeType": MIME_TYPE,
            "text": as_markdown(record["frontmatter"], record["body"]),
            "_meta": {f"maad/{name}": record[name] for name in ("docType", "version", "updatedAt")},
        }
        return {"contents": [contents], **COMPLETE, **_NEVER_STALE}

    async def _call(self, ctx: Context, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The `data` of a tool call on behalf of the client."""
        result = await self._pipeline.call(caller_of(ctx), tool, arguments)
        envelope = _envelope.decode(result.text)
        if not envelope.ok:
            raise rpc_error(envelope.errors[0], ctx.protocol_version)
        return envelope.data

    def _readable_projects(self, caller: Caller) -> list[str]:
        """The projects whose records are listed, in order."""
        instance = self._state.instance
        if isinstance(caller, StatelessCaller):
            return [project.name for project in admitted_projects(caller, instance)]
        bind_by_itself(caller, instance)
        return list(bound_projects(caller))


def as_markdown(frontmatter: Mapping[str, Any], body: str) -> str:
    """A record as a Markdown text. The values of its frontmatter are written as JSON, which is
    YAML too and leaves no doubt about their types."""
    lines = ["---"]
    for key, value in frontmatter.items():
        plain = _PLAIN_KEY.fullmatch(key) is not None and key not in _YAML_WORDS
        name = key if plain else msgspec.json.encode(key).decode()
        lines.append(f"{name}: {msgspec.json.encode(value).decode()}")
    lines.append("---\n")
    return "\n".join(lines) + (f"\n{body}\n" if body else "")


def _listed(project: str, row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "uri": str(RecordUri(project, row["docId"])),
        "name": row["docId"],
        "description": f"{row['docType']} in project {project}",
        "mimeType": MIME_TYPE,
        "annotations": {"lastModified": row["updatedAt"]},
    }


def _next_cursor(cursor: _Cursor, inner: str | None, names: list[str]) -> _Cursor | None:
    if inner is not None:
        return _Cursor(cursor.project, inner)
    behind = names.index(cursor.project) + 1
    return _Cursor(names[behind], None) if behind < len(names) else None


def _encode_cursor(cursor: _Cursor) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")


def _decode_cursor(text: str | None, names: list[str]) -> _Cursor | None:
    """Where to go on; None when there is nothing to list. INVALID_ARGS for a strange cursor."""
    if text is None:
        return _Cursor(names[0], None) if names else None
    try:
        padded = text + "=" * (-len(text) % 4)
        cursor = _cursor.decode(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        cursor = None
    if cursor is None or cursor.project not in names:
        raise MaadError(
            "INVALID_ARGS",
            "the cursor is none of this listing; start again without it",
            {"field": "cursor"},
        )
    return cursor
