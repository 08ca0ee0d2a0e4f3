"""The first line of a managed file: whose it is, and what stood below it (spec 03 §11.1).

A file whose body still has the hash of its stamp was not edited by hand, and may be replaced.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

_STAMP = re.compile(
    rb"(?:\xef\xbb\xbf)?"
    rb"<!-- maadb:managed name=([A-Za-z0-9_-]+) engine=(\S+) hash=sha256:([0-9a-f]{64}) -->"
    rb"(?:\r?\n|\Z)"
)


class Stamp(msgspec.Struct, frozen=True):
    """What the line says; `body_hash` is 64 hex digits."""

    name: str
    engine: str
    body_hash: str


def body_hash(body: bytes) -> str:
    """SHA-256 of what stands below the stamp; line endings do not matter."""
    return hashlib.sha256(body.replace(b"\r\n", b"\n")).hexdigest()


def stamped(name: str, engine: str, body: bytes) -> bytes:
    """The whole managed file."""
    line = f"<!-- maadb:managed name={name} engine={engine} hash=sha256:{body_hash(body)} -->\n"
    return line.encode() + body


def split_stamp(data: bytes) -> tuple[Stamp, bytes] | None:
    """Stamp and body of a file; None when the first line is no stamp. A BOM is passed over."""
    match = _STAMP.match(data)
    if match is None:
        return None
    name, engine, digest = match.groups()
    stamp = Stamp(name.decode(), engine.decode("utf-8", "replace"), digest.decode())
    return stamp, data[match.end() :]
