"""What the headers of a request say: values, pins, origin, remote address (spec 04 §9)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Sequence

from maadd.config.instance import Instance
from maadd.config.origin import canonical_origin
from maadd.config.rules import TrustProxy
from maadd.protocol.errors import MaadError
from maadd.protocol.roles import Role, parse_role
from maadd.transport.revisions import STATELESS_REVISIONS

ACCEPT = b"accept"
AUTHORIZATION = b"authorization"
CONTENT_LENGTH = b"content-length"
CONTENT_TYPE = b"content-type"
ORIGIN = b"origin"
PIN_PROJECT = b"x-maad-pin-project"
PIN_ROLE = b"x-maad-pin-role"
PROTOCOL_VERSION = b"mcp-protocol-version"
SESSION_ID = b"mcp-session-id"
STATELESS_VERSIONS = frozenset(version.encode() for version in STATELESS_REVISIONS)
"""The values of `PROTOCOL_VERSION` whose requests stand for themselves."""

_FORWARDED_FOR = b"x-forwarded-for"
_USER_AGENT = b"user-agent"

_READ = frozenset(
    {
        ACCEPT,
        AUTHORIZATION,
        CONTENT_LENGTH,
        CONTENT_TYPE,
        ORIGIN,
        PIN_PROJECT,
        PIN_ROLE,
        PROTOCOL_VERSION,
        SESSION_ID,
        _FORWARDED_FOR,
        _USER_AGENT,
    }
)
_PROJECT_NAME = re.compile(r"[a-z][a-z0-9_-]*", re.ASCII)

Pin = tuple[str, Role | None]
"""A pinned project and the role it is lowered to."""


class Head:
    """The headers of one request that anybody here reads, without blanks around the values."""

    __slots__ = ("_all", "_values")

    def __init__(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self._all = headers
        self._values = {name: value for name, value in headers if name in _READ}

    def __contains__(self, name: bytes) -> bool:
        return name in self._values

    def get(self, name: bytes) -> bytes:
        """The value (the last, when repeated); empty when absent."""
        return self._values.get(name, b"").strip()

    def every(self, name: bytes) -> list[bytes]:
        """All values of a header that may be repeated."""
        return [value for found, value in self._all if found == name]

    def text(self, name: bytes) -> str:
        """The value as text; empty when absent."""
        return self.get(name).decode("latin-1")

    @property
    def user_agent(self) -> str | None:
        """The `User-Agent`, if any."""
        return self.text(_USER_AGENT) or None

    @property
    def accepts(self) -> tuple[bool, bool]:
        """Whether the client takes plain JSON, and whether it takes event streams."""
        accept = self.get(ACCEPT).lower()
        anything = b"*/*" in accept
        return (
            anything or b"application/json" in accept or b"application/*" in accept,
            anything or b"text/event-stream" in accept or b"text/*" in accept,
        )

    def origin_allowed(self, allowlist: Collection[str]) -> bool:
        """Whether the `Origin` (none is fine) is one of the allowlist (spec 04 §9.5)."""
        if ORIGIN not in self._values:
            return True
        values = self.every(ORIGIN)
        if len(values) != 1:
            return False
        origin = canonical_origin(values[0].strip().decode("latin-1"))
        return origin is not None and origin in allowlist

    def remote_address(self, peer: str, trust: TrustProxy) -> str:
        """The client's address for logs and throttling, `peer` being the nearest one.

        Only hops of trusted proxies are believed, read from the right (spec 04 §9.7).
        """
        if not trust.hops and not trust.networks:
            return peer
        hops = [
            _address(hop.strip())
            for value in self.every(_FORWARDED_FOR)
            for hop in value.decode("latin-1").split(",")
        ]
        if trust.hops:
            return (hops[-min(trust.hops, len(hops))] if hops else None) or peer
        networks = [ipaddress.ip_network(block) for block in trust.networks]
        nearest = peer
        for hop in (peer, *reversed(hops)):
            if hop is None:
                # No address: whoever wrote it, the one before is the last that is known.
                return nearest
            nearest = hop
            if not _is_in(hop, networks):
                return hop
        return nearest

    def pin(self, instance: Instance, *, required: bool) -> Pin | None:
        """The gateway's pin (spec 04 §9.6).

        Raises PIN_PROJECT_INVALID, PIN_ON_EXISTING_SESSION, PIN_PROJECT_NOT_FOUND.
        """
        has_session = SESSION_ID in self._values
        if PIN_PROJECT not in self._values:
            if PIN_ROLE in self._values:
                raise MaadError("PIN_PROJECT_INVALID", "X-Maad-Pin-Role needs X-Maad-Pin-Project")
            if required and not has_session:
                raise MaadError(
                    "PIN_PROJECT_INVALID", "this server requires the X-Maad-Pin-Project header"
                )
            return None
        if len(self.every(PIN_PROJECT)) > 1 or len(self.every(PIN_ROLE)) > 1:
            raise MaadError("PIN_PROJECT_INVALID", "a pin header is repeated")
        if has_session:
            raise MaadError(
                "PIN_ON_EXISTING_SESSION", "a pin is given at initialize, not with a session id"
            )
        name = self.text(PIN_PROJECT)
        if _PROJECT_NAME.fullmatch(name) is None:
            raise MaadError("PIN_PROJECT_INVALID", "X-Maad-Pin-Project is no project name")
        if name not in instance.projects:
            raise MaadError("PIN_PROJECT_NOT_FOUND", f"no project is called {name!r}")
        return name, self._pinned_role()

    def _pinned_role(self) -> Role | None:
        if PIN_ROLE not in self._values:
            return None
        role = parse_role(self.text(PIN_ROLE))
        if role is None:
            raise MaadError("PIN_PROJECT_INVALID", "X-Maad-Pin-Role is no role")
        return role


def _address(hop: str) -> str | None:
    """The address of a hop, which may have a port; None for what is no address."""
    if hop.startswith("["):
        hop = hop[1:].partition("]")[0]
    elif hop.count(":") == 1:
        hop = hop.partition(":")[0]
    try:
        return str(ipaddress.ip_address(hop))
    except ValueError:
        return None


def _is_in(address: str, networks: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in networks)
