"""The five token tools: the registry over MCP, within the caller's own reach (spec 04 §8)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from maadd.auth.caps import admitted
from maadd.auth.issue import TokenSpec, check_issue
from maadd.auth.record import ProjectGrant, TokenRecord, public_record, token_state
from maadd.auth.registry import TokenRegistry, token_not_found
from maadd.auth.scope import Requester, live_requester, sees
from maadd.config.instance import Instance
from maadd.config.settings import Settings
from maadd.pipeline.envelope import FrontAnswer
from maadd.protocol.arguments import (
    IssueTokenArgs,
    ListTokensArgs,
    RevokeTokenArgs,
    RotateTokenArgs,
    ShowTokenArgs,
)
from maadd.protocol.errors import MaadError
from maadd.protocol.roles import Role, parse_role
from maadd.sessions.session import Session
from maadd.sessions.views import Caller

_SHOWN_ONCE = "This token is shown once; store it now."

TOKEN_TOOLS = (
    "maad_issue_token",
    "maad_revoke_token",
    "maad_rotate_token",
    "maad_list_tokens",
    "maad_show_token",
)

Handler = Callable[[Caller, Any, Instance, TokenRecord | None], Awaitable[FrontAnswer]]


class Follower(Protocol):
    """What keeps sessions and registry in step."""

    async def catch_up(self) -> None:
        """Take over what another process changed."""
        ...

    def close_dead(self, keep: Session | None) -> int:
        """Close the sessions of dead tokens, all but `keep`; how many."""
        ...


class TokenTools:
    """Their handlers; roles have been checked, what a token reaches is judged here.

    On a server in dry-run mode the changes are judged and not made.
    """

    def __init__(
        self,
        registry: TokenRegistry,
        follower: Follower,
        settings: Settings,
        audit: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._registry = registry
        self._follower = follower
        self._identity_required = settings.token_identity_required
        self._dry_run = settings.dry_run
        self._audit = audit

    def handlers(self) -> Mapping[str, Handler]:
        """Each tool's answer, by name."""
        answers = (self.issue, self.revoke, self.rotate, self.list_visible, self.show)
        return dict(zip(TOKEN_TOOLS, answers, strict=True))

    async def issue(
        self, caller: Caller, args: IssueTokenArgs, instance: Instance, token: TokenRecord | None
    ) -> FrontAnswer:
        """`maad_issue_token`."""
        spec = _spec_of(args)
        advisories = check_issue(
            spec,
            instance.projects,
            now=time.time(),
            identity_required=self._identity_required,
            shown=admitted(token, instance.projects),
        )
        requester = _requester(token)
        issued = await asyncio.to_thread(
            self._registry.issue, spec, requester=requester, rehearse=self._dry_run
        )
        warnings = [{"code": one.code, "message": one.message} for one in advisories]
        meta = {"warnings": warnings} if warnings else None
        if self._dry_run:
            return FrontAnswer(None, meta, rehearsed=True)
        self._note("token_issued", caller, token, token_id=issued.record.id)
        return FrontAnswer(_shown_once(issued.plaintext, issued.record), meta)

    async def revoke(
        self, caller: Caller, args: RevokeTokenArgs, instance: Instance, token: TokenRecord | None
    ) -> FrontAnswer:
        """`maad_revoke_token`; the last one that may administer everything stays."""
        known = self._registry.find(args.id)
        record = await asyncio.to_thread(
            self._registry.revoke,
            args.id,
            keep_last_admin=True,
            requester=_requester(token),
            rehearse=self._dry_run,
        )
        if self._dry_run:
            return FrontAnswer(None, rehearsed=True)
        if known is None or known.revoked_at is None:
            self._note("token_revoked", caller, token, token_id=record.id)
        self._follower.close_dead(_session_of(caller))
        return FrontAnswer({"record": public_record(record)})

    async def rotate(
        self, caller: Caller, args: RotateTokenArgs, instance: Instance, token: TokenRecord | None
    ) -> FrontAnswer:
        """`maad_rotate_token`: the old one ends with this call."""
        rotated = await asyncio.to_thread(
            self._registry.rotate,
            args.id,
            requester=_requester(token),
            rehearse=self._dry_run,
        )
        if self._dry_run:
            return FrontAnswer(None, rehearsed=True)
        record = rotated.record
        self._note("token_rotated", caller, token, token_id=args.id, new_token_id=record.id)
        self._follower.close_dead(_session_of(caller))
        return FrontAnswer(_shown_once(rotated.plaintext, record))

    async def list_visible(
        self, caller: Caller, args: ListTokensArgs, instance: Instance, token: TokenRecord | None
    ) -> FrontAnswer:
        """`maad_list_tokens`; the counts are of the tokens that the caller may see."""
        await self._follower.catch_up()
        now = time.time()
        requester = live_requester(_requester(token), self._registry.records(), now)
        visible = [record for record in self._registry.records() if sees(requester, record)]
        shown = [r for r in visible if args.include_revoked or r.revoked_at is None]
        return FrontAnswer(
            {
                "tokens": [public_record(record) for record in shown],
                "total": len(visible),
                "activeCount": sum(token_state(record, now) == "active" for record in visible),
            }
        )

    async def show(
        self, caller: Caller, args: ShowTokenArgs, instance: Instance, token: TokenRecord | None
    ) -> FrontAnswer:
        """`maad_show_token`."""
        await self._follower.catch_up()
        registered = self._registry.records()
        requester = live_requester(_requester(token), registered, time.time())
        record = self._registry.find(args.id)
        if record is None or not sees(requester, record):
            raise token_not_found()
        return FrontAnswer({"record": public_record(record)})

    def _note(self, event: str, caller: Caller, token: TokenRecord | None, **fields: str) -> None:
        """One audit line: who did it, and to which token."""
        session = _session_of(caller)
        self._audit(
            event,
            {
                "session_id": None if session is None else session.id,
                "actor_token_id": None if token is None else token.id,
                **fields,
                "origin": "tool",
            },
        )


async def refuse_without_registry(
    caller: Caller, args: object, instance: Instance, token: TokenRecord | None
) -> FrontAnswer:
    """What the token tools answer on a server of a single project."""
    raise MaadError(
        "TOKENS_FILE_MISSING",
        "a server of a single project has no token registry; serve an instance with --instance",
    )


def _requester(token: TokenRecord | None) -> Requester | None:
    """Over stdio (no token) nothing limits: whoever owns the process owns the files."""
    return None if token is None else Requester(token)


def _session_of(caller: Caller) -> Session | None:
    """The caller's session, which outlives the death of its token until it has its answer."""
    return caller if isinstance(caller, Session) else None


def _spec_of(args: IssueTokenArgs) -> TokenSpec:
    return TokenSpec(
        _role(args.role),
        tuple(
            ProjectGrant(project.name, None if project.role is None else _role(project.role))
            for project in args.projects
        ),
        args.name,
        args.agent_id,
        args.user_id,
        args.expires_at,
    )


def _role(name: str) -> Role:
    role = parse_role(name)
    if role is None:
        raise ValueError(f"{name!r} passed the argument check and is no role")
    return role


def _shown_once(plaintext: str, record: TokenRecord) -> dict[str, Any]:
    return {"plaintext": plaintext, "record": public_record(record), "warning": _SHOWN_ONCE}
