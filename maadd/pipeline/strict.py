"""The host contracts as seen from the front: access that is judged again and again (spec 05 §2).

A strict call never relies on what was true when it began: not on its binding, not on its
token, not on the role. The last word falls where its create is published (05 §10.2).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import Protocol

from maadd.auth.caps import token_cap
from maadd.auth.record import TokenRecord, expiry_of
from maadd.auth.registry import TokenRegistry
from maadd.config.instance import Instance, ProjectConfig
from maadd.protocol.errors import MaadError
from maadd.protocol.messages import Reply
from maadd.protocol.roles import Role
from maadd.protocol.tools import ToolSpec
from maadd.sessions.access import refuse_cancelled
from maadd.sessions.session import Session
from maadd.sessions.views import Caller


class _Live(Protocol):
    @property
    def instance(self) -> Instance: ...


class LiveAccess:
    """Whether the caller of one strict call may still do what it was admitted to.

    `tokens` is the registry, None where there is none. `permit` is asked once, at the publish
    point of a create; from then on nothing is judged any more.
    """

    def __init__(
        self,
        state: _Live,
        tokens: TokenRegistry | None,
        caller: Caller,
        spec: ToolSpec,
        project: ProjectConfig,
    ) -> None:
        assert spec.min_role is not None
        self._state = state
        self._tokens = tokens
        self._caller = caller
        self._tool = spec.name
        self._needed = spec.min_role
        self._project = project
        self._binding = caller.binding if isinstance(caller, Session) else None
        self._permitted = False

    def check(self) -> None:
        """Raise the first reason why the caller may not go on, in the order of spec 05 §2."""
        caller = self._caller
        if isinstance(caller, Session):
            refuse_cancelled(caller)
            if caller.close_reason is not None:
                raise MaadError("SESSION_CANCELLED", "this session has ended; open a new one")
            self._check_binding(caller)
            requested = None if caller.binding is None else caller.binding.requested
        else:
            requested = caller.pinned_role if caller.pinned == self._project.name else None
        role = self._ceiling()
        self._require(role if requested is None else min(role, requested))
        if caller.token is None and isinstance(caller, Session) and caller.transport == "stdio":
            return  # Whoever started the server holds the pipe.
        self._require(self._token_cap(caller.token))

    def permit(self) -> None:
        """`check` for the last time: what happens after it comes after the write."""
        self.check()
        self._permitted = True

    async def guard(self, asking: Awaitable[Reply]) -> Reply:
        """The reply, unless access was lost meanwhile; then that is the answer, and nothing of
        what was read. A create that was permitted is always acknowledged truthfully."""
        try:
            reply = await asking
        except MaadError:
            self._check_again()
            raise
        self._check_again()
        return reply

    def _check_again(self) -> None:
        if not self._permitted:
            self.check()

    def _check_binding(self, session: Session) -> None:
        before, now = self._binding, session.binding
        if (
            before is None
            or now is None
            or (now.mode, now.active_project) != (before.mode, before.active_project)
            or self._project.name not in now.projects
        ):
            raise self._not_whitelisted()

    def _ceiling(self) -> Role:
        found = self._state.instance.projects.get(self._project.name)
        if found is None:
            raise self._insufficient()
        if found.path != self._project.path:
            raise self._not_whitelisted()
        return found.role

    def _token_cap(self, token: TokenRecord | None) -> Role:
        live = None
        if token is not None and self._tokens is not None:
            live = self._tokens.find(token.id)
        if token is None or live is None or live.hash != token.hash:
            raise MaadError("TOKEN_UNKNOWN", "the token of this session is not registered any more")
        if live.revoked_at is not None:
            raise MaadError("TOKEN_REVOKED", "the token of this session was revoked")
        if expiry_of(live) <= time.time():
            raise MaadError("TOKEN_EXPIRED", "the token of this session has expired")
        cap = token_cap(live, self._project.name)
        if cap is None:
            raise MaadError(
                "TOKEN_PROJECT_FORBIDDEN",
                f"this token does not admit project {self._project.name!r}",
                {"project": self._project.name},
            )
        return cap

    def _require(self, role: Role) -> None:
        if role < self._needed:
            raise self._insufficient()

    def _insufficient(self) -> MaadError:
        return MaadError(
            "INSUFFICIENT_ROLE",
            f"{self._tool} needs the role {self._needed.text} on {self._project.name!r}",
            {"project": self._project.name},
        )

    def _not_whitelisted(self) -> MaadError:
        return MaadError(
            "PROJECT_NOT_WHITELISTED", f"this session may no longer use {self._project.name!r}"
        )
