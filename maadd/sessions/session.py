"""One client connection and what it is bound to (spec 04 §4.1)."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import msgspec

from maadd.auth.record import TokenRecord
from maadd.protocol.roles import Role
from maadd.sessions.notices import NoticeQueue
from maadd.sessions.record_uri import RecordUri


class Mode(enum.StrEnum):
    """How a session is bound."""

    SINGLE = "single"
    MULTI = "multi"


class BindingSource(enum.StrEnum):
    """Who bound it; an automatic binding (spec 04 §2.3) has no source."""

    CLIENT_TOOL = "client_tool"
    GATEWAY_PIN = "gateway_pin"


class CloseReason(enum.StrEnum):
    """Why a session ended (spec 04 §4.4)."""

    CLIENT = "client"
    TRANSPORT = "transport"
    IDLE = "idle"
    CAPACITY = "capacity"
    SHUTDOWN = "shutdown"
    AUTH = "auth"


class Binding(msgspec.Struct, frozen=True):
    """The projects of a session. Roles are never stored: they are composed on each call
    from the live ceilings and `requested`, the `as` given at bind (spec 04 §5.1)."""

    mode: Mode
    projects: tuple[str, ...]
    requested: Role | None
    source: BindingSource | None

    @property
    def active_project(self) -> str | None:
        """The one project of a single binding."""
        return self.projects[0] if self.mode is Mode.SINGLE else None


class Subscription(msgspec.Struct, frozen=True):
    """What a session wants to be told (spec 04 §11); None stands for all."""

    doc_types: tuple[str, ...] | None
    project: str | None
    created_at: str


@dataclass(slots=True, eq=False)
class Session:
    """The state of one connection. Only the session table and the pipeline change it.

    `created_at` is epoch seconds; `opened` and `last_activity` are on the table's clock.
    `permanent` sessions (stdio) end with their connection, never by idling or eviction.
    `handle` is whatever the transport needs to find again with the session.
    """

    id: str
    transport: str
    token: TokenRecord | None
    remote_addr: str | None
    user_agent: str | None
    notices: NoticeQueue
    created_at: float
    opened: float
    last_activity: float
    permanent: bool = False
    binding: Binding | None = None
    cancelled: bool = False
    subscription: Subscription | None = None
    watched: set[RecordUri] = field(default_factory=set)
    """Records and projects subscribed to as MCP resources."""
    listening: bool = False
    """Whether it stands for one open `subscriptions/listen`, and takes no requests."""
    used: bool = False
    """Whether a tool was ever called."""
    in_flight: int = 0
    """Requests being answered; such a session is neither evicted nor idle."""
    close_reason: CloseReason | None = None
    handle: object = field(default=None, repr=False)

    @property
    def principal(self) -> str | None:
        """The token id that every request of this session must present."""
        return None if self.token is None else self.token.id

    @property
    def last_activity_at(self) -> float:
        """Epoch seconds of the last request."""
        return self.created_at + (self.last_activity - self.opened)
