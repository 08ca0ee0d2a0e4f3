"""What the logs say of a call (spec 04 §16), and what is known of it until then."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from structlog.typing import FilteringBoundLogger

from maadd.ops.logs import log_engine
from maadd.protocol.log_projection import project_arguments
from maadd.protocol.roles import Role
from maadd.protocol.tools import ToolKind, ToolSpec
from maadd.sessions.session import Session
from maadd.sessions.views import Caller

AuditSink = Callable[[str, dict[str, Any]], None]


class Trace:
    """What is known of a call so far, for its log line and its failure."""

    __slots__ = (
        "kind", "members", "meta", "payload", "project", "request_id", "role", "started", "tool",
    )  # fmt: skip

    def __init__(self, tool: str) -> None:
        self.request_id = _new_request_id()
        self.started = time.perf_counter()
        self.tool = tool
        self.payload = 0
        self.project: str | None = None
        self.role: Role | None = None
        self.kind = ToolKind.ENGINELESS
        self.meta: dict[str, Any] | None = None
        self.members: dict[str, Any] = {}
        """Members of its log line that only some tools have."""


class CallLog:
    """Writes the lines of calls, to the ops log and to the audit channel."""

    def __init__(self, log: FilteringBoundLogger, audit: AuditSink) -> None:
        self._log = log
        self._audit = audit

    def begins(self, spec: ToolSpec, args: Any, trace: Trace) -> None:
        """A write is handed to its worker."""
        log_engine(
            self._log,
            "info",
            "mcp",
            "tool_call",
            "arguments of a write",
            request_id=trace.request_id,
            tool=spec.name,
            project=trace.project,
            args=project_arguments(spec, args),
        )

    def warned(
        self,
        caller: Caller,
        trace: Trace,
        warnings: Sequence[dict[str, Any]],
        written: dict[str, Any],
    ) -> None:
        """A line for each warning of a write, without its message, which may quote a value."""
        for warning in warnings:
            self._log.warning(
                "validation_warning",
                request_id=trace.request_id,
                session_id=caller.id if isinstance(caller, Session) else None,
                project=trace.project,
                tool=trace.tool,
                doc_id=written.get("doc_id"),
                doc_type=written.get("doc_type"),
                field=warning.get("field"),
                code=warning.get("code"),
            )

    def called(self, caller: Caller, trace: Trace, code: str | None, seconds: float) -> None:
        """The end of any call; `code` is that of its first error."""
        self._log.info(
            "tool_call",
            request_id=trace.request_id,
            session_id=caller.id if isinstance(caller, Session) else None,
            project=trace.project,
            tool=trace.tool,
            role=None if trace.role is None else trace.role.text,
            payload_size=trace.payload,
            latency_ms=round(seconds * 1000, 3),
            result="ok" if code is None else "error",
            error_code=code,
            **trace.members,
        )

    def wrote(self, caller: Caller, trace: Trace, written: dict[str, Any]) -> None:
        """A line of the audit channel about what a write has changed."""
        self._audit("write", _audit_line(caller, trace, written))


def _audit_line(caller: Caller, trace: Trace, written: dict[str, Any]) -> dict[str, Any]:
    """The members of the audit channel's `write` line (spec 03 §2.6)."""
    line = {
        "request_id": trace.request_id,
        "session_id": caller.id if isinstance(caller, Session) else None,
        "project": trace.project,
        "tool": trace.tool,
        **written,
    }
    token = caller.token
    if token is not None:
        line["token_id"] = token.id
        line |= {
            name: value
            for name, value in (("agent_id", token.agent_id), ("user_id", token.user_id))
            if value is not None
        }
    if trace.role is not None:
        line["role"] = trace.role.text
    return line


def _new_request_id() -> str:
    """A random UUID (version 4) as text; `uuid.uuid4` takes three times as long."""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
