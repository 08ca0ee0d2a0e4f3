"""Requests of the stateless revision, whatever carries them: envelope check and tool call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    InboundLadderRejection,
    InboundModernRoute,
    classify_inbound_request,
)
from mcp_types.methods import validate_client_request
from pydantic import ValidationError

from maadd.sessions.views import Caller
from maadd.transport.messages import INVALID_PARAMS, Request, error_response, response
from maadd.transport.peer import Emit, McpFace

_COMPLETE = b',"resultType":"complete"'


class EnvelopeRejection(msgspec.Struct, frozen=True):
    """The refusal of a request: its JSON-RPC error and the HTTP status that goes with it."""

    status: int
    message: bytes


def check_envelope(
    request: Request, headers: Mapping[str, str] | None
) -> InboundModernRoute | EnvelopeRejection:
    """What the envelope says, once it agrees with itself and with the routing headers.

    `headers` (lower-case names, trimmed values) is None where there are none.
    """
    params = request_params(request)
    verdict = classify_inbound_request(
        {"method": request.method, "params": params}, headers=headers
    )
    if isinstance(verdict, InboundLadderRejection):
        return _rejection(request, verdict.code, verdict.message, verdict.data)
    try:
        validate_client_request(request.method, verdict.protocol_version, params)
    except KeyError:
        return verdict  # A method the revision does not name; the SDK says what it is.
    except ValidationError:
        return _rejection(request, INVALID_PARAMS, "Invalid request parameters", None)
    return verdict


def request_params(request: Request) -> dict[str, Any] | None:
    """The params as the SDK wants them."""
    call = request.call
    if call is None:
        return request.params
    params = {"name": call.name, "arguments": call.arguments, "_meta": call.meta}
    return {name: value for name, value in params.items() if value is not None}


def is_ours(request: Request) -> bool:
    """Whether `answer_ours` answers it; everything else is for the SDK."""
    return request.call is not None or request.method == "tools/list"


async def answer_ours(
    face: McpFace, caller: Caller, request: Request, version: str, emit: Emit | None = None
) -> bytes:
    """The response to a tool call or a listing whose envelope is in order."""
    if request.call is None:
        return response(request.id, face.listing.text(caller, version)[:-1] + face.server_stamp)
    result = await face.call(caller, request, emit)
    return response(request.id, result[:-1] + _COMPLETE + face.server_stamp)


def _rejection(request: Request, code: int, message: str, data: object) -> EnvelopeRejection:
    return EnvelopeRejection(
        ERROR_CODE_HTTP_STATUS.get(code, 200), error_response(request.id, code, message, data)
    )
