"""Requests of the stateless revision that are answered without the SDK, whatever carries them."""

from __future__ import annotations

import msgspec

from maadd.sessions.views import Caller
from maadd.transport.messages import Request, response
from maadd.transport.peer import McpFace
from maadd.transport.progress import Emit

_COMPLETE = b',"resultType":"complete"'


class EnvelopeRejection(msgspec.Struct, frozen=True):
    """The refusal of a request: its JSON-RPC error and the HTTP status that goes with it."""

    status: int
    message: bytes


def is_ours(request: Request) -> bool:
    """Whether `answer_ours` answers it; everything else is for the SDK."""
    return request.call is not None or request.method == "tools/list"


async def answer_ours(
    face: McpFace, stamp: bytes, caller: Caller, request: Request, emit: Emit | None = None
) -> bytes:
    """The response to a tool call or a listing whose envelope is in order; `stamp` is the last
    member of its result, which says who answers."""
    if request.call is None:
        return response(request.id, face.listing.text(caller, stateless=True)[:-1] + stamp)
    result = await face.call(caller, request, emit)
    return response(request.id, result[:-1] + _COMPLETE + stamp)
