"""What the opening and the end of a session leave behind: counts, limits, audit (spec 04 §4.4)."""

from __future__ import annotations

import time
from typing import Any

from maadd.front.health import SessionCounts
from maadd.ops.audit import AuditLog
from maadd.ops.meter import Meter
from maadd.pipeline.limits import Limiter
from maadd.sessions.session import CloseReason, Session


class SessionTrail:
    """The hooks of a front's session table."""

    def __init__(
        self, counts: SessionCounts, limiter: Limiter, audit: AuditLog, meter: Meter
    ) -> None:
        self._counts = counts
        self._limiter = limiter
        self._audit = audit
        self._meter = meter

    def opened(self, session: Session) -> None:
        """A session begins."""
        if not session.permanent:
            self._counts.opened(time.time())
        fields: dict[str, Any] = {
            "session_id": session.id,
            "remote_addr": session.remote_addr,
            "user_agent": session.user_agent,
            "transport": session.transport,
        }
        if session.binding is not None and session.binding.source is not None:
            fields["binding_source"] = session.binding.source
        self._audit.write("session_open", **fields)

    def closed(self, session: Session, reason: CloseReason) -> None:
        """A session ended."""
        if not session.permanent:
            self._counts.closed(time.time())
        self._meter.closed[reason.value] += 1
        self._limiter.forget_session(session.id)
        self._audit.write(
            "session_close",
            session_id=session.id,
            reason=reason,
            duration_ms=round((time.time() - session.created_at) * 1000),
        )
