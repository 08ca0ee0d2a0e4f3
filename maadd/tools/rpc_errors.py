"""Domain failures where MCP has no envelope for them: as JSON-RPC errors (spec 04 §11)."""

from __future__ import annotations

import msgspec
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from maadd.protocol.errors import MaadError, WireError

REFUSED = -32010
"""Our own number for every refusal that JSON-RPC and MCP have none for."""

_RESOURCE_NOT_FOUND = -32002
"""Of the handshake revisions; later ones have INVALID_PARAMS for it."""

_CALLERS_FAULT = frozenset({"INVALID_ARGS", "INVALID_FIELDS"})


def rpc_error(error: MaadError | WireError, version: str) -> MCPError:
    """The error for a client of protocol `version`; `data` holds `{code, message, details?}`."""
    wire = error.wire() if isinstance(error, MaadError) else error
    number = REFUSED
    if wire.code in _CALLERS_FAULT:
        number = INVALID_PARAMS
    elif wire.code == "FILE_NOT_FOUND":
        modern = version in MODERN_PROTOCOL_VERSIONS
        number = INVALID_PARAMS if modern else _RESOURCE_NOT_FOUND
    return MCPError(number, f"{wire.code}: {wire.message}", msgspec.to_builtins(wire))
