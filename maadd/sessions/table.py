"""The one table of sessions: creation, eviction, idling, death of tokens (spec 04 §4, §9.4)."""

from __future__ import annotations

import heapq
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence

import msgspec
from structlog.typing import FilteringBoundLogger

from maadd.auth.record import TokenRecord, expiry_of
from maadd.auth.timestamps import format_timestamp
from maadd.protocol.errors import MaadError
from maadd.sessions.binding import without_projects
from maadd.sessions.notices import NoticeQueue
from maadd.sessions.session import Binding, CloseReason, Session

Clock = Callable[[], float]
OnOpen = Callable[[Session], None]
OnClose = Callable[[Session, CloseReason], None]
LiveToken = Callable[[str], TokenRecord | None]
"""The record that a token id has in the registry now."""
TokenStatus = Callable[[TokenRecord], str | None]
"""Why a token is dead (`removed`, `revoked`, `expired`), or None while it is active."""

_UNUSED_S = 120.0
"""An unbound session that never called a tool goes after two minutes (spec 04 §9.4)."""


class SessionLimits(msgspec.Struct, frozen=True):
    """Caps on the number of sessions, and the idle time in seconds."""

    total: int
    per_token: int
    idle_s: float

    @property
    def sweep_period_s(self) -> float:
        """How often idle sessions are looked for."""
        return min(max(self.idle_s / 2, 1.0), 60.0)


class ProjectFallout(msgspec.Struct, frozen=True):
    """What removing projects did to the sessions bound to them (spec 04 §3)."""

    cancelled: int
    pruned: int


class SessionTable:
    """All sessions of this front, least recently active first.

    `clock` is monotonic seconds, `wall` epoch seconds. `on_close` hooks run in order for
    every end of a session; one that raises is logged and stops nothing.
    """

    def __init__(
        self,
        limits: SessionLimits,
        log: FilteringBoundLogger,
        *,
        clock: Clock = time.monotonic,
        wall: Clock = time.time,
        on_open: Sequence[OnOpen] = (),
        on_close: Sequence[OnClose] = (),
    ) -> None:
        self._limits = limits
        self._log = log
        self._clock = clock
        self._wall = wall
        self._on_open = list(on_open)
        self._on_close = list(on_close)
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._expiries: list[tuple[float, str]] = []
        self._swept = clock()
        self._on_expiry: Callable[[], None] = lambda: None
        self.last_sweep_at: str | None = None
        """When idle sessions were last looked for."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def get(self, session_id: str) -> Session | None:
        """The live session with that id; whose it is, is asked by `resume`."""
        session = self._sessions.get(session_id)
        return None if session is None or session.listening else session

    def resume(self, session: Session, token: TokenRecord) -> bool:
        """Take a request of `token` into its session; False when it is another's.

        On a match the token snapshot is refreshed and the idle clock starts again.
        """
        if session.token is None or session.token.id != token.id:
            return False
        session.token = token
        session.last_activity = self._clock()
        self._sessions.move_to_end(session.id)
        return True

    def touch(self, session: Session) -> None:
        """Note a request of a session that needs no token."""
        session.last_activity = self._clock()

    def open(
        self,
        session_id: str,
        *,
        transport: str,
        notices: NoticeQueue,
        token: TokenRecord | None = None,
        remote_addr: str | None = None,
        user_agent: str | None = None,
        binding: Binding | None = None,
        permanent: bool = False,
    ) -> Session:
        """Add a session, evicting another where a cap is reached.

        Raises OVERLOADED (`reason: sessions`) when every candidate has a request in flight.
        """
        if not permanent:
            self._make_room(token)
        now = self._clock()
        session = Session(
            id=session_id,
            transport=transport,
            token=token,
            remote_addr=remote_addr,
            user_agent=user_agent,
            notices=notices,
            created_at=self._wall(),
            opened=now,
            last_activity=now,
            permanent=permanent,
            binding=binding,
        )
        self._sessions[session_id] = session
        if token is not None and token.expires_at is not None:
            heapq.heappush(self._expiries, (expiry_of(token), session_id))
            self._on_expiry()
        for hook in self._on_open:
            hook(session)
        return session

    def tell_of_expiries(self, told: Callable[[], None]) -> None:
        """Call `told` whenever `next_sweep_s` may have become less."""
        self._on_expiry = told

    def follow_expiries(self, live: LiveToken) -> None:
        """Take over when the tokens of the sessions expire, which somebody may have changed."""
        self._expiries = [
            (expiry_of(token), session.id)
            for session in self._sessions.values()
            if session.token is not None
            and (token := live(session.token.id)) is not None
            and token.expires_at is not None
        ]
        heapq.heapify(self._expiries)
        self._on_expiry()

    def add_close_hook(self, hook: OnClose) -> None:
        """Call `hook` at the end of every session, after the hooks before it."""
        self._on_close.append(hook)

    def close(self, session: Session, reason: CloseReason) -> bool:
        """End a session and its stream; False when it had ended already."""
        if session.close_reason is not None:
            return False
        session.close_reason = reason
        self._sessions.pop(session.id, None)
        session.notices.close()
        for hook in self._on_close:
            try:
                hook(session, reason)
            except Exception:
                self._log.exception("session_close_hook_failed", session_id=session.id)
        return True

    def close_all(self, reason: CloseReason) -> None:
        """End every session (shutdown)."""
        for session in self:
            self.close(session, reason)

    def close_dead_tokens(self, status: TokenStatus, *, keep: Session | None = None) -> int:
        """Close the sessions whose token is no longer active, all but `keep`.

        `keep` is the session whose own call killed the token: its answer must still get out.
        """
        closed = 0
        for session in self:
            if session.token is None or session is keep:
                continue
            reason = status(session.token)
            if reason is None:
                continue
            self._log.info(
                "session_token_evicted",
                session_id=session.id,
                token_id=session.token.id,
                reason=reason,
            )
            closed += self.close(session, CloseReason.AUTH)
        return closed

    def remove_projects(self, names: Collection[str]) -> ProjectFallout:
        """Take removed projects out of every binding and subscription.

        A binding that keeps no project is cancelled: its stream ends now, its next call says why
        and ends it. One that only listens has no next call and ends at once.
        """
        cancelled = pruned = 0
        for session in self:
            if session.subscription is not None and session.subscription.project in names:
                session.subscription = None
            session.watched = {uri for uri in session.watched if uri.project not in names}
            if session.binding is None or session.cancelled:
                continue
            rest = without_projects(session.binding, names)
            if rest is None:
                session.cancelled = True
                session.subscription = None
                cancelled += 1
                if session.listening:
                    self.close(session, CloseReason.TRANSPORT)
                elif not session.permanent:
                    session.notices.close()
            elif rest is not session.binding:
                session.binding = rest
                pruned += 1
        return ProjectFallout(cancelled, pruned)

    def sweep(self, status: TokenStatus) -> int:
        """Close the sessions of dead tokens, then idle and never used ones; how many."""
        self.last_sweep_at = format_timestamp(self._wall())
        closed = self.close_dead_tokens(status)
        while self._expiries and self._expiries[0][0] < self._wall():
            heapq.heappop(self._expiries)
        now = self._swept = self._clock()
        idle = [session for session in self._sessions.values() if self._is_idle(session, now)]
        for session in idle:
            self.close(session, CloseReason.IDLE)
        if idle:
            self._log.info("idle_sweep", swept=len(idle), remaining=len(self._sessions))
        return closed + len(idle)

    def next_sweep_s(self) -> float:
        """Seconds until `sweep` is due: a period after the last one, or when a token expires."""
        while self._expiries and self._expiries[0][1] not in self._sessions:
            heapq.heappop(self._expiries)
        due = max(0.0, self._swept + self._limits.sweep_period_s - self._clock())
        if not self._expiries:
            return due
        # A token lives up to and including its last moment.
        return min(due, max(0.0, self._expiries[0][0] - self._wall()) + 0.002)

    def _is_idle(self, session: Session, now: float) -> bool:
        if session.permanent or session.in_flight:
            return False
        if now - session.last_activity >= self._limits.idle_s:
            return True
        unused = session.binding is None and not session.used
        return unused and now - session.opened >= _UNUSED_S

    def _make_room(self, token: TokenRecord | None) -> None:
        evictable = [session for session in self._sessions.values() if not session.permanent]
        if token is not None:
            own = [session for session in evictable if session.principal == token.id]
            if len(own) >= self._limits.per_token:
                self._evict(own)
                return
        if len(evictable) >= self._limits.total:
            self._evict(evictable)

    def _evict(self, candidates: list[Session]) -> None:
        quiet = [session for session in candidates if not session.in_flight]
        victim = next((session for session in quiet if not session.notices.reading), None)
        if victim is None and quiet:
            victim = quiet[0]
        if victim is None:
            raise MaadError(
                "OVERLOADED",
                "every session is busy; try again when a request has finished",
                {"reason": "sessions", "limit": self._limits.total, "retryAfterMs": 1000},
            )
        self.close(victim, CloseReason.CAPACITY)
