"""How far a caller's own token reaches over other tokens (spec 04 §8.2)."""

from __future__ import annotations

import math
from collections.abc import Collection

import msgspec

from maadd.auth.caps import token_cap
from maadd.auth.issue import TokenSpec
from maadd.auth.record import ANY_PROJECT, Reach, TokenRecord, expiry_of
from maadd.auth.timestamps import parse_timestamp
from maadd.protocol.errors import MaadError
from maadd.protocol.roles import Role


class Requester(msgspec.Struct, frozen=True):
    """Who acts on tokens with one of its own.

    Whoever owns the files (stdio, the command line) is no requester and has no limit.
    """

    token: TokenRecord


class Excess(msgspec.Struct, frozen=True):
    """Where a token would reach beyond another: `allowed` None where that one has no access.

    `project` is `*` for the token's own role, and for projects that neither token names.
    """

    project: str
    requested: Role
    allowed: Role | None


def excess(target: Reach, holder: Reach) -> Excess | None:
    """The first thing `target` may do that `holder` may not; None when it fits.

    Judged are the role, every project that either names, and all others, declared or not, for
    which only `*` speaks: so that no refusal names a project that neither does.
    """
    if target.role > holder.role:
        return Excess(ANY_PROJECT, target.role, holder.role)
    named = (grant.name for reach in (holder, target) for grant in reach.projects)
    for name in dict.fromkeys((*named, ANY_PROJECT)):
        requested = token_cap(target, name)
        if requested is None:
            continue
        allowed = token_cap(holder, name)
        if allowed is None or requested > allowed:
            return Excess(name, requested, allowed)
    return None


def sees(requester: Requester | None, target: TokenRecord) -> bool:
    """Whether the requester may list, show, revoke and rotate `target`: its own, or one that
    fits in its own."""
    if requester is None or requester.token.id == target.id:
        return True
    return excess(target, requester.token) is None


def check_reach(requester: Requester | None, spec: TokenSpec) -> None:
    """A plaintext goes only to one who may do all that it allows, and for as long.

    Raises TOKEN_PROJECT_FORBIDDEN or ROLE_UPGRADE_DENIED.
    """
    if requester is None:
        return
    beyond = excess(spec, requester.token)
    if beyond is not None:
        raise _beyond(beyond)
    expiry = math.inf if spec.expires_at is None else parse_timestamp(spec.expires_at)
    if expiry is not None and expiry > expiry_of(requester.token):
        raise MaadError(
            "ROLE_UPGRADE_DENIED",
            "the token would outlive your own; give an expiresAt that is not later than yours",
            {
                "field": "expiresAt",
                "requested": spec.expires_at,
                "allowed": requester.token.expires_at,
            },
        )


def live_requester(
    requester: Requester | None, records: Collection[TokenRecord], now: float
) -> Requester | None:
    """The requester as registered now; TOKEN_UNKNOWN, TOKEN_REVOKED, TOKEN_EXPIRED when its
    token died meanwhile."""
    if requester is None:
        return None
    presented = requester.token
    live = next((record for record in records if record.id == presented.id), None)
    if live is None or live.hash != presented.hash:
        raise MaadError("TOKEN_UNKNOWN", "your token is no longer registered")
    if live.revoked_at is not None:
        raise MaadError("TOKEN_REVOKED", "your token was revoked")
    if expiry_of(live) < now:
        raise MaadError("TOKEN_EXPIRED", "your token has expired")
    return msgspec.structs.replace(requester, token=live)


def _beyond(beyond: Excess) -> MaadError:
    details = {
        "project": beyond.project,
        "requested": beyond.requested.text,
        "allowed": None if beyond.allowed is None else beyond.allowed.text,
    }
    if beyond.allowed is None:
        return MaadError(
            "TOKEN_PROJECT_FORBIDDEN",
            f"your own token does not admit project {beyond.project!r}",
            details,
        )
    return MaadError(
        "ROLE_UPGRADE_DENIED",
        f"role {beyond.requested.text} on {beyond.project!r} is above {beyond.allowed.text}, "
        "the highest your own token has there",
        details,
    )
