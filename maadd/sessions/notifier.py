"""Change events of the workers on their way to the sessions that asked for them (spec 04 §11).

Nothing of it is in the way of a write: events are gathered for a moment, joined where they
concern the same record, and put into the bounded queue of each session.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec
from structlog.typing import FilteringBoundLogger

from maadd.auth.record import TokenRecord
from maadd.auth.timestamps import format_timestamp
from maadd.config.instance import Instance, ProjectConfig
from maadd.ops.logs import log_engine
from maadd.protocol.messages import RESYNC, Event
from maadd.sessions.binding import role_on
from maadd.sessions.record_uri import RecordUri
from maadd.sessions.session import Session

UPDATED = "notifications/resources/updated"

WINDOW_S = 0.05
"""Events for one record within this time become one notification."""

_GATHERED_AT_MOST = 1024
"""So many records of a project may wait for the end of the window."""

LiveToken = Callable[[TokenRecord], TokenRecord | None]
"""The present record of a token, or None when it is no longer active."""


class FrontState(Protocol):
    """What is asked of the running front at each delivery."""

    @property
    def instance(self) -> Instance: ...


class _UpdateParams(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The params of the notification. A resync names the project and no record."""

    uri: str
    action: str
    project: str
    updated_at: str
    seq: int
    doc_id: str | None = None
    doc_type: str | None = None
    origin: str | None = None


class _Message(msgspec.Struct, frozen=True):
    method: str
    params: _UpdateParams
    jsonrpc: str = "2.0"


class _Change(msgspec.Struct, frozen=True):
    """What happened to a record within the window: its last event, and whether it was there
    before the first."""

    event: Event
    existed: bool

    def then(self, event: Event) -> _Change | None:
        """With one more event; None when nothing is left to tell."""
        if event.action == "delete" and not self.existed:
            return None
        if event.action == "update" and not self.existed:
            event = msgspec.structs.replace(event, action="create")
        return _Change(event, self.existed)


class _Gathering:
    """The changes of one project since its window opened, the last number that it gave, and
    the last one that was told."""

    __slots__ = ("changes", "seq", "timer", "told")

    def __init__(self) -> None:
        self.changes: dict[str, _Change] = {}
        self.seq = 0
        self.told = 0
        self.timer: asyncio.TimerHandle | None = None


class ChangeNotifier:
    """Takes the events of all projects and fills the queues of subscribed sessions.

    Belongs to the event loop. A session without an open stream misses events; one whose queue
    is full gets a single `resync` for each project it lost events of, and the log a line.
    """

    def __init__(
        self,
        state: FrontState,
        sessions: Iterable[Session],
        live_token: LiveToken,
        log: FilteringBoundLogger,
        *,
        window_s: float = WINDOW_S,
    ) -> None:
        self._state = state
        self._sessions = sessions
        self._live_token = live_token
        self._log = log
        self._window_s = window_s
        self._projects: dict[str, _Gathering] = {}

    def take(self, project: str, event: Event) -> None:
        """Note an event of a project's worker; RESYNC has everybody who listens poll."""
        if event.action == RESYNC:
            self._resync_all(project)
            return
        gathering = self._projects.setdefault(project, _Gathering())
        # Numbers only ever grow, also when a rebuilt index counts from the beginning again.
        gathering.seq = max(gathering.seq + 1, event.seq)
        event = msgspec.structs.replace(event, seq=gathering.seq)
        # Taken out and put in again, so that the changes stay in the order of their numbers.
        known = gathering.changes.pop(event.doc_id, None)
        change = (
            _Change(event, existed=event.action != "create") if known is None else known.then(event)
        )
        if change is not None:
            gathering.changes[event.doc_id] = change
        if len(gathering.changes) >= _GATHERED_AT_MOST:
            self._deliver(project)
        elif gathering.timer is None:
            loop = asyncio.get_running_loop()
            gathering.timer = loop.call_later(self._window_s, self._deliver, project)

    def _deliver(self, project: str) -> None:
        gathering = self._projects[project]
        if gathering.timer is not None:
            gathering.timer.cancel()
            gathering.timer = None
        changes, gathering.changes = gathering.changes, {}
        gathering.told = gathering.seq
        declared = self._state.instance.projects.get(project)
        if declared is None or not changes:
            return
        readers = [session for session in self._sessions if self._may_hear(session, declared)]
        if not readers:
            return
        notices = [(change.event, _encode(project, change.event)) for change in changes.values()]
        for session in readers:
            for event, notice in notices:
                if wants(session, project, event) and not session.notices.offer(notice, project):
                    # Whoever polls now sees the rest of these changes as well.
                    self._log_overflow(session, project)
                    self._resync(session, project)
                    break

    def _resync_all(self, project: str) -> None:
        declared = self._state.instance.projects.get(project)
        if declared is None:
            return
        self._projects.setdefault(project, _Gathering())
        for session in self._sessions:
            if self._may_hear(session, declared) and _listens_to(session, project):
                self._resync(session, project)

    def _resync(self, session: Session, project: str) -> None:
        """Replace what waits in a full queue by the advice to poll."""
        now = format_timestamp(time.time())
        for lost in sorted(session.notices.drop_topics() | {project}):
            seq = self._projects[lost].told
            params = _UpdateParams(str(RecordUri(lost)), RESYNC, lost, now, seq)
            session.notices.insist(msgspec.json.encode(_Message(UPDATED, params)), lost)

    def _log_overflow(self, session: Session, project: str) -> None:
        log_engine(
            self._log,
            "best_effort",
            "notify",
            "deliver",
            "a client does not take its notifications in time; it is told to poll",
            session_id=session.id,
            project=project,
            limit=session.notices.limit,
        )

    def _may_hear(self, session: Session, project: ProjectConfig) -> bool:
        """Whether the session listens, asked for anything, and may still read the project."""
        if session.subscription is None and not session.watched:
            return False
        if session.cancelled or not session.notices.reading or session.binding is None:
            return False
        if project.name not in session.binding.projects:
            return False
        token = session.token
        if token is not None:
            token = self._live_token(token)
            if token is None:
                return False
        return role_on(session, project, token) is not None


def wants(session: Session, project: str, event: Event) -> bool:
    """Whether the session subscribed to this event, by tool or as a resource."""
    watched = session.watched
    if watched and (RecordUri(project) in watched or RecordUri(project, event.doc_id) in watched):
        return True
    subscription = session.subscription
    return (
        subscription is not None
        and subscription.project in (None, project)
        and (subscription.doc_types is None or event.doc_type in subscription.doc_types)
    )


def _listens_to(session: Session, project: str) -> bool:
    """Whether some event of the project would be for this session."""
    if any(uri.project == project for uri in session.watched):
        return True
    subscription = session.subscription
    return subscription is not None and subscription.project in (None, project)


def _encode(project: str, event: Event) -> bytes:
    params = _UpdateParams(
        uri=str(RecordUri(project, event.doc_id)),
        action=event.action,
        project=project,
        updated_at=event.updated_at,
        seq=event.seq,
        doc_id=event.doc_id,
        doc_type=event.doc_type,
        origin=event.origin,
    )
    return msgspec.json.encode(_Message(UPDATED, params))
