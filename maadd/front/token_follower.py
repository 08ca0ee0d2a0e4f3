"""Taking over what others change in tokens.yaml, and ending what dead tokens left (spec 04 §7.3).

Changes are seen by watching the registry's folder, where that can be done, and by looking at
the file now and then. Either leads to the same cheap comparison of file stamps.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from structlog.typing import FilteringBoundLogger

from maadd.auth.record import TokenRecord, expiry_of, token_state
from maadd.auth.registry import TokenRegistry
from maadd.auth.scope import Requester, sees
from maadd.protocol.errors import MaadError
from maadd.sessions.session import Session
from maadd.sessions.table import SessionTable

AuditSink = Callable[[str, dict[str, Any]], None]

_EXPIRY_CHECK_S = 30.0
"""How often expiries are looked for, for the audit log; sessions end at the moment itself."""

_WATCH_STEP_MS = 100
_WATCH_DEBOUNCE_MS = 200
_WATCH_RECHECK_MS = 2_000
"""How long a watch goes on without asking whether its folder is still the same."""


class TokensReloaded(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a reload of the registry came to; after an `error` the old tokens go on."""

    reloaded: bool
    total: int
    active: int
    sessions_closed: int
    error: dict[str, Any] | None = None


class WatchedPlace(msgspec.Struct, frozen=True):
    """A folder; a watch of one that was replaced sees nothing."""

    path: str
    device: int
    inode: int


class TokenFollower:
    """Keeps the registry in step with its file, and the sessions with the registry."""

    def __init__(
        self,
        registry: TokenRegistry,
        sessions: SessionTable,
        log: FilteringBoundLogger,
        audit: AuditSink,
        *,
        poll_s: float,
        watch: bool,
    ) -> None:
        self._registry = registry
        self._sessions = sessions
        self._log = log
        self._audit = audit
        self._poll_s = poll_s
        self._watches = watch
        self._expired_until = time.time()
        self._reading = asyncio.Lock()

    @property
    def mode(self) -> str:
        """How changes are seen: `watch`, only by `poll`, or `off`: not before a reload."""
        if self._watches:
            return "watch"
        return "poll" if self._poll_s > 0 else "off"

    def follows(self, path: str) -> bool:
        """Whether the registry is the file at `path`."""
        return os.path.realpath(self._registry.path) == os.path.realpath(path)

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._note_expiries())
            if self._poll_s > 0:
                group.create_task(self._poll())
            if self._watches:
                group.create_task(self._watch())

    async def catch_up(self) -> None:
        """Read the file if it is another than the one last read; a bad one is logged once."""
        if not self._registry.changed_on_disk():
            return
        try:
            await self.reload()
        except MaadError as failure:
            self._log.warning("tokens_reload_failed", code=failure.code, message=failure.message)

    async def reload(self, keep: Session | None = None) -> TokensReloaded:
        """Read the file and close the sessions of dead tokens, all but `keep`.

        Raises TOKENS_FILE_INVALID; the tokens known until then go on.
        """
        registry = self._registry
        # One after another: each change is to be audited once.
        async with self._reading:
            before = {record.id: record for record in registry.records()}
            counts = await asyncio.to_thread(registry.reload)
            self._log.info("tokens_reload", total=counts.total, active=counts.active)
            self._audit_changes(before, registry.records())
        closed = self.close_dead(keep)
        return TokensReloaded(True, counts.total, counts.active, closed)

    async def try_reload(self, keep: Session | None = None) -> TokensReloaded:
        """`reload` whose failure is part of the result."""
        try:
            return await self.reload(keep)
        except MaadError as failure:
            self._log.warning("tokens_reload_failed", code=failure.code, message=failure.message)
            counts = self._registry.counts()
            error = {"code": failure.code, "message": failure.message}
            return TokensReloaded(False, counts.total, counts.active, 0, error)

    def visible_counts(self, token: TokenRecord) -> tuple[int, int]:
        """How many tokens, and active ones, the holder of `token` may see."""
        requester, now = Requester(token), time.time()
        visible = [record for record in self._registry.records() if sees(requester, record)]
        return len(visible), sum(token_state(record, now) == "active" for record in visible)

    def close_dead(self, keep: Session | None) -> int:
        """Close the sessions of tokens that the registry knows as dead, all but `keep`; how
        many. The others end when it says so now."""
        closed = self._sessions.close_dead_tokens(self._registry.death_of, keep=keep)
        self._sessions.follow_expiries(self._registry.find)
        return closed

    def audit_expiries(self, now: float) -> None:
        """One audit line for each token that expired since the last time, until `now` (epoch
        seconds)."""
        since, self._expired_until = self._expired_until, now
        for record in self._registry.records():
            if record.revoked_at is None and since <= expiry_of(record) < now:
                fields = {"token_id": record.id, "expired_at": record.expires_at}
                self._audit("token_expired", fields)

    def _audit_changes(
        self, before: Mapping[str, TokenRecord], after: tuple[TokenRecord, ...]
    ) -> None:
        """What another process did. Who it was, only the owner of the files can know."""
        for record in after:
            old = before.get(record.id)
            if old is None:
                self._audit("token_issued", {"token_id": record.id, "origin": "file"})
            if record.revoked_at is not None and (old is None or old.revoked_at is None):
                self._audit("token_revoked", {"token_id": record.id, "origin": "file"})
        for token_id in before.keys() - {record.id for record in after}:
            self._audit("token_removed", {"token_id": token_id, "origin": "file"})

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            await self.catch_up()

    async def _note_expiries(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRY_CHECK_S)
            self.audit_expiries(time.time())

    async def _watch(self) -> None:
        while True:
            try:
                await self._watch_place(_place_to_watch(self._registry.path))
            except OSError as error:
                self._log.warning(
                    "tokens_watch_unavailable",
                    reason=error.strerror or type(error).__name__,
                    poll_ms=round(self._poll_s * 1000),
                )
                self._watches = False
                return

    async def _watch_place(self, place: WatchedPlace) -> None:
        """Catch up with each event there; return when another place is to be watched."""
        from watchfiles import awatch

        stop = asyncio.Event()
        events = awatch(
            place.path,
            recursive=False,
            watch_filter=None,
            step=_WATCH_STEP_MS,
            debounce=_WATCH_DEBOUNCE_MS,
            rust_timeout=_WATCH_RECHECK_MS,
            yield_on_timeout=True,
            stop_event=stop,
            force_polling=False,
        )
        async with contextlib.aclosing(events):
            try:
                # What changed before the watch began.
                await self.catch_up()
                async for _ in events:
                    await self.catch_up()
                    if _place_to_watch(self._registry.path) != place:
                        return
            finally:
                stop.set()


def _place_to_watch(registry_path: str) -> WatchedPlace:
    """The folder where the registry really lies, or the one around it until somebody issues the
    first token.

    Raises OSError when there is neither.
    """
    folder = os.path.dirname(os.path.realpath(registry_path))
    path = folder if os.path.isdir(folder) else os.path.dirname(folder)
    status = os.stat(path)
    return WatchedPlace(path, status.st_dev, status.st_ino)
