"""A control socket as a stream of whole messages (spec 04 §13)."""

from __future__ import annotations

import asyncio
import socket
import struct

from maadd.protocol.control import HEADER_BYTES, body_length

_CREDENTIALS = "3i"


async def read_message(reader: asyncio.StreamReader) -> bytes | None:
    """The next message; None at the end of the stream or of its good sense."""
    try:
        length = body_length(await reader.readexactly(HEADER_BYTES))
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, OSError, ValueError):
        return None


def peer_of(writer: asyncio.StreamWriter) -> tuple[int, int]:
    """Process id and user id of whoever opened the connection, as the kernel noted them."""
    connection = writer.get_extra_info("socket")
    size = struct.calcsize(_CREDENTIALS)
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid, uid, _gid = struct.unpack(_CREDENTIALS, credentials)
    return pid, uid
