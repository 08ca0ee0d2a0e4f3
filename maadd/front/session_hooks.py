"""The session table of a front, and what else has to hear of its sessions (spec 04 §4.4)."""

from __future__ import annotations

import time
from typing import Any

from structlog.typing import FilteringBoundLogger

from maadd.config.settings import Settings
from maadd.front.health import SessionCounts
from maadd.ops.audit import AuditLog
from maadd.ops.meter import Meter
from maadd.pipeline.limits import Limiter
from maadd.pool.pool import WorkerPool
from maadd.sessions.session import CloseReason, Session
from maadd.sessions.table import SessionLimits, SessionTable


def make_sessions(
    settings: Settings,
    counts: SessionCounts,
    limiter: Limiter,
    pool: WorkerPool,
    audit: AuditLog,
    meter: Meter,
    log: FilteringBoundLogger,
) -> SessionTable:
    """A table whose sessions are counted, audited, and forgotten by limiter and workers."""
    limits = SessionLimits(
        settings.session_max, settings.session_max_per_token, settings.session_idle_ms / 1000
    )

    def opened(session: Session) -> None:
        if not session.permanent:
            counts.opened(time.time())
        fields: dict[str, Any] = {
            "session_id": session.id,
            "remote_addr": session.remote_addr,
            "user_agent": session.user_agent,
            "transport": session.transport,
        }
        if session.binding is not None and session.binding.source is not None:
            fields["binding_source"] = session.binding.source
        audit.write("session_open", **fields)

    def closed(session: Session, reason: CloseReason) -> None:
        if not session.permanent:
            counts.closed(time.time())
        meter.closed[reason.value] += 1
        limiter.forget_session(session.id)
        pool.session_ended(session.id)
        audit.write(
            "session_close",
            session_id=session.id,
            reason=reason,
            duration_ms=round((time.time() - session.created_at) * 1000),
        )

    return SessionTable(limits, log, on_open=(opened,), on_close=(closed,))
