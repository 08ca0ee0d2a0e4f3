"""A control socket as a stream of whole messages (spec 04 §13)."""

from __future__ import annotations

import asyncio

from maadd.protocol.control import HEADER_BYTES, body_length


async def read_message(reader: asyncio.StreamReader) -> bytes | None:
    """The next message; None at the end of the stream or of its good sense."""
    try:
        length = body_length(await reader.readexactly(HEADER_BYTES))
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, OSError, ValueError):
        return None
