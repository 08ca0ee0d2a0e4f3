"""Web origins: one canonical text for the allowlist and the `Origin` header (spec 04 §9.5)."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}
_NEVER_IN_AN_ORIGIN = frozenset('*?#@\\^|<>%"')


def canonical_origin(text: str) -> str | None:
    """`scheme://host[:port]` of an http or https origin; None when `text` is none.

    Scheme and host are lower-cased, a default port and one trailing `/` are dropped.
    Patterns, `null`, credentials, other paths, queries and fragments are refused.
    """
    if not text.isascii() or any(char <= " " or char in _NEVER_IN_AN_ORIGIN for char in text):
        return None
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
        if host is not None and ":" in host:
            host = f"[{ipaddress.IPv6Address(host)}]"
    except ValueError:
        return None
    if parts.scheme not in _DEFAULT_PORTS or not host or parts.path not in ("", "/"):
        return None
    if parts.netloc.endswith(":"):
        return None
    suffix = "" if port is None or port == _DEFAULT_PORTS[parts.scheme] else f":{port}"
    return f"{parts.scheme}://{host}{suffix}"
