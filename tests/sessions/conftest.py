"""Tokens, instances and a table with clocks that the test moves."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import structlog

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

    def __init__(self, total: int = 128, per_token: int = 64, idle_s: float = 1800.0) -> None:
        self.now = 1000.0
        self.epoch = 1_900_000_000.0
        self.closed: list[tuple[str, CloseReason]] = []
        self.events: list[dict[str, Any]] = []
        self.table = SessionTable(
            SessionLimits(total, per_token, idle_s),
            _log_into(self.events),
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


def _log_into(events: list[dict[str, Any]]) -> Any:
    def keep(_logger: object, level: str, event: dict[str, Any]) -> Any:
        events.append({"level": level, **event})
        raise structlog.DropEvent

    return structlog.wrap_logger(
        None, processors=[keep], wrapper_class=structlog.make_filtering_bound_logger(logging.INFO)
    )


@pytest.fixture
def make_token() -> Callable[..., TokenRecord]:
    return token


@pytest.fixture
def make_instance() -> Callable[..., Instance]:
    return instance


@pytest.fixture
def make_bench() -> type[Bench]:
    return Bench
