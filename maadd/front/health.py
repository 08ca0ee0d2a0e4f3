"""The front's own blocks of `maad_health`, joined with the worker's report (spec 04 §17)."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import msgspec

from maadd import __version__
from maadd.auth.caps import administers_all, admitted
from maadd.auth.record import TokenRecord
from maadd.auth.timestamps import format_timestamp
from maadd.config.instance import Instance, ProjectConfig
from maadd.config.settings import Settings
from maadd.front.memory_pressure import PressureGauge
from maadd.front.reload import ReloadCounts
from maadd.front.state import RunningFront
from maadd.front.token_follower import TokenFollower
from maadd.pipeline.heavy import HeavyGuard
from maadd.pool.pool import WorkerPool
from maadd.sessions.binding import role_on
from maadd.sessions.session import Session
from maadd.sessions.stateless import StatelessCaller
from maadd.sessions.table import SessionTable
from maadd.sessions.views import Caller


class SessionCounts:
    """Sessions opened and closed since the start; fed by the session table's hooks."""

    def __init__(self) -> None:
        self.opened_total = 0
        self.closed_total = 0
        self.last_opened_at: str | None = None
        self.last_closed_at: str | None = None

    def opened(self, now: float) -> None:
        self.opened_total += 1
        self.last_opened_at = format_timestamp(now)

    def closed(self, now: float) -> None:
        self.closed_total += 1
        self.last_closed_at = format_timestamp(now)


class FrontHealth:
    """Answers for the front; `merge` never fails because a worker is down."""

    def __init__(
        self,
        state: RunningFront,
        settings: Settings,
        sessions: SessionTable,
        counts: SessionCounts,
        pool: WorkerPool,
        heavy: HeavyGuard,
        pressure: PressureGauge,
        reloads: ReloadCounts,
        follower: TokenFollower | None,
    ) -> None:
        self._state = state
        self._settings = settings
        self._sessions = sessions
        self._counts = counts
        self._pool = pool
        self._heavy = heavy
        self._pressure = pressure
        self._reloads = reloads
        self._follower = follower
        self.port: int | None = None

    def merge(self, caller: Caller, project: ProjectConfig, report: bytes | None) -> bytes:
        """The whole answer as JSON; `report` is the worker's, None while it is down."""
        everything = administers_all(caller.token)
        data: dict[str, Any] = (
            _absent_worker(project) if report is None else msgspec.json.decode(report)
        )
        if not everything:
            data["projectRoot"] = None
        visible = _visible_projects(caller, self._state.instance)
        data["provenance"] = self._settings.provenance
        data["transport"] = self._transport()
        data["sessions"] = self._session_block(visible)
        data["instance"] = self._instance_block(everything)
        data["runtime"] = {
            "workers": [self._worker_line(one) for one in visible],
            "version": __version__,
            "memoryPressure": msgspec.to_builtins(self._pressure.snapshot()),
            "heavyOpGuard": msgspec.to_builtins(self._heavy.snapshot()),
            "tokenChanges": None if self._follower is None else self._follower.mode,
        }
        data["worker"] = msgspec.to_builtins(self._pool.snapshot(project))
        return msgspec.json.encode(data)

    def _transport(self) -> dict[str, Any]:
        settings = self._settings
        block: dict[str, Any] = {"kind": settings.transport}
        if settings.transport == "http":
            block |= {"host": settings.http_host, "port": self.port}
        elif settings.transport == "unix":
            block["socketPath"] = settings.unix_socket
        block["uptimeSeconds"] = round(self._state.uptime_s, 3)
        return block

    def _session_block(self, visible: list[ProjectConfig]) -> dict[str, Any]:
        by_project: dict[str, dict[str, int]] = {}
        by_identity: Counter[str] = Counter()
        names = {project.name: project for project in visible}
        pinned = subscribed = active = 0
        for session in self._sessions:
            active += 1
            subscribed += session.subscription is not None
            if session.binding is None:
                continue
            pinned += session.binding.source == "gateway_pin"
            shown = [name for name in session.binding.projects if name in names]
            for name in shown:
                role = role_on(session, names[name], session.token)
                if role is not None:
                    roles = by_project.setdefault(name, {})
                    roles[role.text] = roles.get(role.text, 0) + 1
            if shown:
                by_identity[_identity(session.token)] += 1
        return {
            "active": active,
            "pinned": pinned,
            "openedTotal": self._counts.opened_total,
            "closedTotal": self._counts.closed_total,
            "lastOpenedAt": self._counts.last_opened_at,
            "lastClosedAt": self._counts.last_closed_at,
            "idleSweepLastRunAt": self._sessions.last_sweep_at,
            "subscribed": subscribed,
            "byProject": by_project,
            "byIdentity": dict(by_identity),
        }

    def _instance_block(self, everything: bool) -> dict[str, Any]:
        instance = self._state.instance
        return {
            "name": instance.name,
            "source": instance.source,
            "configPath": instance.config_path if everything else None,
            "projectCount": len(instance.projects),
            "lastReloadAt": self._reloads.last_at,
            "reloadsAttempted": self._reloads.attempted,
            "reloadsSucceeded": self._reloads.succeeded,
            "reloadsFailed": self._reloads.failed,
            "projectsAdded": self._reloads.projects_added,
            "projectsRemoved": self._reloads.projects_removed,
        }

    def _worker_line(self, project: ProjectConfig) -> dict[str, Any]:
        snapshot = self._pool.snapshot(project)
        return {
            "project": project.name,
            "state": snapshot.state,
            "rssMb": snapshot.rss_mb,
            "limitMb": self._settings.worker_memory_mb,
        }


def _absent_worker(project: ProjectConfig) -> dict[str, Any]:
    """The engine's part of the report while no engine can be asked."""
    return {
        "projectRoot": project.path,
        "initialized": False,
        "readOnly": project.history.effective_mode == "read",
        "gitAvailable": os.path.lexists(os.path.join(project.path, ".git")),
        "indexExists": None,
        "totalDocuments": None,
        "registeredTypes": None,
        "lastIndexedAt": None,
    }


def _identity(token: TokenRecord | None) -> str:
    return "anonymous" if token is None or token.agent_id is None else token.agent_id


def _visible_projects(caller: Caller, instance: Instance) -> list[ProjectConfig]:
    if isinstance(caller, StatelessCaller) or caller.token is None:
        names = set(instance.projects)
    else:
        assert isinstance(caller, Session)
        names = set(caller.binding.projects) if caller.binding is not None else set()
    if isinstance(caller, StatelessCaller):
        names = set(admitted(caller.token, names))
    return [project for name, project in instance.projects.items() if name in names]
