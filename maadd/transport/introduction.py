"""`initialize`, answered without the SDK where its params are of the plain form.

Params of any other form are the SDK's to judge: what is accepted here it accepts too.
"""

from __future__ import annotations

from typing import Any

import msgspec

from maadd.tools.listing import SERVER_NAME
from maadd.transport.messages import Request
from maadd.transport.revisions import HANDSHAKE_REVISIONS, LATEST_HANDSHAKE

CAPABILITIES: dict[str, Any] = {
    "prompts": {"listChanged": False},
    "resources": {"listChanged": False, "subscribe": True},
    "tools": {"listChanged": True},
}
"""Of a server with all the handlers of a front, for the handshake revisions."""

_Settings = dict[str, dict[str, Any]]


class _Roots(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    list_changed: bool | None = None


class _Capabilities(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    experimental: _Settings | None = None
    extensions: _Settings | None = None
    sampling: _Settings | None = None
    elicitation: _Settings | None = None
    roots: _Roots | None = None


class _Implementation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None


class _Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    protocol_version: str
    capabilities: _Capabilities
    client_info: _Implementation


class Introduction(msgspec.Struct, frozen=True):
    """What the server says of itself; `capabilities` are those of its handlers."""

    version: str
    capabilities: dict[str, Any]

    def answer(self, revision: str) -> bytes:
        """The result of an `initialize` that settled on `revision`."""
        return msgspec.json.encode(
            {
                "capabilities": self.capabilities,
                "protocolVersion": revision,
                "serverInfo": {"name": SERVER_NAME, "version": self.version},
            }
        )


def plain_revision(request: Request) -> str | None:
    """The revision that an `initialize` of the plain form settles on; None for any other."""
    try:
        # Half a surrogate pair passes the types, but has no encoding.
        msgspec.json.encode(request.params)
        params = msgspec.convert(request.params, _Params)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return None
    asked = params.protocol_version
    return asked if asked in HANDSHAKE_REVISIONS else LATEST_HANDSHAKE
