"""Token records: what the registry knows about a bearer (spec 04 §7.1, §8)."""

from __future__ import annotations

import hashlib
import math
import secrets
from typing import Any, Literal, Protocol

import msgspec

from maadd.auth.timestamps import parse_timestamp
from maadd.protocol.roles import Role

ANY_PROJECT = "*"
"""The grant that stands for every project without a grant of its own."""

TokenState = Literal["active", "revoked", "expired"]


class ProjectGrant(msgspec.Struct, frozen=True):
    """One entry of a token's allowlist; without `role` the token's own role counts."""

    name: str
    role: Role | None = None


class Reach(Protocol):
    """What decides how far a token reaches, registered already or only asked for."""

    @property
    def role(self) -> Role: ...
    @property
    def projects(self) -> tuple[ProjectGrant, ...]: ...


class TokenRecord(msgspec.Struct, frozen=True):
    """A token as registered. Times are RFC 3339 text; the repr never shows the hash."""

    id: str
    hash: str
    role: Role
    projects: tuple[ProjectGrant, ...]
    created_at: str
    name: str | None = None
    agent_id: str | None = None
    user_id: str | None = None
    expires_at: str | None = None
    revoked_at: str | None = None

    def __repr__(self) -> str:
        return f"TokenRecord(id={self.id!r}, role={self.role.text!r}, ...)"


def expiry_of(record: TokenRecord) -> float:
    """Epoch seconds at which the token ends: infinity without expiry.

    An expiry that cannot be read has passed long ago, never is it ignored.
    """
    if record.expires_at is None:
        return math.inf
    expiry = parse_timestamp(record.expires_at)
    return -math.inf if expiry is None else expiry


def token_state(record: TokenRecord, now: float) -> TokenState:
    """Whether the token still counts at `now` (epoch seconds)."""
    if record.revoked_at is not None:
        return "revoked"
    return "expired" if expiry_of(record) < now else "active"


def public_record(record: TokenRecord) -> dict[str, Any]:
    """The record as JSON for answers and output: camel case, absent members left out, no hash."""
    shown: dict[str, Any] = {
        "id": record.id,
        "role": record.role.text,
        "projects": [
            {"name": grant.name} | ({} if grant.role is None else {"role": grant.role.text})
            for grant in record.projects
        ],
        "createdAt": record.created_at,
    }
    optional = {
        "name": record.name,
        "agentId": record.agent_id,
        "userId": record.user_id,
        "expiresAt": record.expires_at,
        "revokedAt": record.revoked_at,
    }
    return shown | {key: value for key, value in optional.items() if value is not None}


def new_plaintext() -> str:
    """A fresh bearer: `maad_pat_` and 128 random bits in hex."""
    return f"maad_pat_{secrets.token_hex(16)}"


def new_token_id() -> str:
    """A fresh token id: `tok-` and 12 hex digits."""
    return f"tok-{secrets.token_hex(6)}"


def hash_plaintext(plaintext: str) -> str:
    """The lookup key of a bearer: SHA-256 of its UTF-8 bytes, lower-case hex."""
    return hashlib.sha256(plaintext.encode()).hexdigest()
