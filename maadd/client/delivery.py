"""Fetching a strict read completely, page by page, with any MCP client (spec 05 §9)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from maadd.client.assembly import MAX_PAGES, AssemblyError, assemble
from maadd.protocol.errors import MaadError

CallTool = Callable[[str, dict[str, Any]], Awaitable[Mapping[str, Any]]]
"""Calls a tool and gives the decoded envelope: the JSON in the text item of its result."""

_START_OVER = "RECEIPT_OBSERVATION_CHANGED"


async def read_complete(
    call: CallTool,
    tool: str,
    arguments: Mapping[str, Any],
    *,
    max_bytes: int | None = None,
    attempts: int = 3,
) -> Any:
    """The complete, verified `data` of `maad_create_contract` or `maad_document_receipt`.

    `max_bytes` bounds the result of one page. When what is read changes between two pages all
    of them are thrown away and the read begins again, `attempts` times at most. Raises
    MaadError with the server's code, AssemblyError.
    """
    delivery: dict[str, Any] = {"format": "compact-json-v1"}
    if max_bytes is not None:
        delivery["maxBytes"] = max_bytes
    while True:
        attempts -= 1
        try:
            pages = await _pages(call, tool, {**arguments, "delivery": delivery})
            return assemble(pages, time.time_ns() // 1_000_000)
        except MaadError as failure:
            if failure.code != _START_OVER or attempts <= 0:
                raise
        except AssemblyError:
            if attempts <= 0:
                raise


async def _pages(call: CallTool, tool: str, arguments: dict[str, Any]) -> list[Mapping[str, Any]]:
    pages: list[Mapping[str, Any]] = []
    cursor: Any = None
    while len(pages) < MAX_PAGES:
        asked = arguments
        if cursor is not None:
            asked = {**arguments, "delivery": {**arguments["delivery"], "cursor": cursor}}
        page = data_of(await call(tool, asked))
        if not isinstance(page, Mapping):
            raise AssemblyError("the answer is no page")
        pages.append(page)
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str):
            return pages
    raise AssemblyError(f"more than {MAX_PAGES} pages")


def data_of(envelope: Mapping[str, Any]) -> Any:
    """The `data` of an envelope; MaadError with the first error of one that failed."""
    if envelope.get("ok") is True:
        return envelope.get("data")
    errors = envelope.get("errors")
    if isinstance(errors, list) and errors and isinstance(errors[0], Mapping):
        first = errors[0]
        raise MaadError(str(first.get("code")), str(first.get("message")), first.get("details"))
    raise AssemblyError("the answer is no envelope")
