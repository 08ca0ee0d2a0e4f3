"""Tokens, instances and a table with clocks that the test moves."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from maadd.auth.record import ProjectGrant, TokenRecord
from maadd.config.instance import Instance, ProjectConfig
from maadd.protocol.messages import HistorySettings
from maadd.protocol.roles import Role
from maadd.sessions.notices import NoticeQueue
from maadd.sessions.session import CloseReason, Session
from maadd.sessions.table import SessionLimits, SessionTable


def token(
    token_id: str = "tok-1", role: Role = Role.ADMIN, projects: str = "*", **members: Any
) -> TokenRecord:
    """A token record; `projects` as in `*` or `alpha,beta`."""
    grants = tuple(ProjectGrant(name) for name in projects.split(","))
    return TokenRecord(token_id, "0" * 64, role, grants, "2031-01-01T00:00:00.000Z", **members)


def instance(source: str = "file", **roles: Role) -> Instance:
    """An instance with a project for each keyword, at that ceiling."""
    projects = {
        name: ProjectConfig(
            name, f"/srv/{name}", role, f"about {name}", HistorySettings("feed", None, "inferred")
        )
        for name, role in roles.items()
    }
    return Instance("office", source, None, "/srv", projects)


class Bench:
    """A session table, its clock in seconds, and what it did."""

    def __init__(
        self, log_into: Any, total: int = 128, per_token: int = 64, idle_s: float = 1800.0
    ) -> None:
        self.now = 1000.0
        self.epoch = 1_900_000_000.0
        self.closed: list[tuple[str, CloseReason]] = []
        self.events: list[dict[str, Any]] = []
        self.log = log_into(self.events)
        self.table = SessionTable(
            SessionLimits(total, per_token, idle_s),
            self.log,
            clock=lambda: self.now,
            wall=lambda: self.epoch + self.now - 1000.0,
            on_close=[lambda session, reason: self.closed.append((session.id, reason))],
        )

    def open(self, session_id: str, owner: TokenRecord | None = None, **kw: Any) -> Session:
        return self.table.open(
            session_id,
            transport="http",
            notices=NoticeQueue(4),
            token=owner if owner is not None else token(),
            **kw,
        )

    def sweep(self, *dead: str) -> int:
        """Sweep, with these token ids revoked."""
        return self.table.sweep(lambda record: "revoked" if record.id in dead else None)


@pytest.fixture
def make_token() -> Callable[..., TokenRecord]:
    return token


@pytest.fixture
def make_instance() -> Callable[..., Instance]:
    return instance


@pytest.fixture
def make_bench(log_into: Any) -> Callable[..., Bench]:
    return partial(Bench, log_into)
