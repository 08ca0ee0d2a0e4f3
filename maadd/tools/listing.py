"""What is listed of the tools, and what answers their calls, whatever SDK is in front of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from maadd.pipeline.envelope import CallResult
from maadd.pipeline.progress import ReportProgress
from maadd.protocol.json_schema import tool_entry
from maadd.protocol.tools import ToolSpec
from maadd.sessions.views import Caller

SERVER_NAME = "maad"

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
        self._texts: dict[tuple[bool, tuple[str, ...]], bytes] = {}

    def result(self, caller: Caller) -> dict[str, Any]:
        """The result object for this caller, with all that any revision asks for."""
        specs = self._pipeline.listed_tools(caller)
        names = tuple(spec.name for spec in specs)
        found = self._results.get(names)
        if found is None:
            tools = [tool_entry(spec) for spec in specs]
            found = self._results[names] = {"tools": tools, **COMPLETE, **_CACHE_HINT}
        return found

    def text(self, caller: Caller, *, stateless: bool) -> bytes:
        """The result as JSON, with the members of the stateless revisions or without them."""
        names = tuple(spec.name for spec in self._pipeline.listed_tools(caller))
        found = self._texts.get((stateless, names))
        if found is None:
            result = self.result(caller)
            shown = result if stateless else {"tools": result["tools"]}
            found = self._texts[stateless, names] = msgspec.json.encode(shown)
        return found
