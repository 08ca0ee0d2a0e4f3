"""A connection that brings calls on one project: another front's, or a command's (spec 04 §10)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec
from structlog.typing import FilteringBoundLogger

from maadd.config.instance import ProjectConfig
from maadd.front.state import RunningFront
from maadd.pool.relay import Relay, refusal_of
from maadd.protocol.control import FromOwner, ToOwner, encode
from maadd.protocol.errors import MaadError
from maadd.protocol.messages import (
    RESYNC,
    Call,
    Cancel,
    Cancelled,
    Event,
    Permit,
    Reply,
    SessionEnded,
)
from maadd.protocol.roles import Role
from maadd.protocol.tools import TOOLS

AuditSink = Callable[[str, dict[str, Any]], None]

_UNREAD_BYTES = 8 * 1_048_576
"""Whoever leaves more than this unread misses changes, and is told so afterwards."""

_OPERATOR = "command-line"
"""The session of the local operator, in logs."""


class Attachment:
    """What is said on one connection. `follows`: by a front, which has logs of its own."""

    def __init__(
        self,
        project: ProjectConfig,
        writer: asyncio.StreamWriter,
        state: RunningFront,
        *,
        follows: bool,
        log: FilteringBoundLogger,
        audit: AuditSink,
    ) -> None:
        self.project = project
        self.follows = follows
        self._writer = writer
        self._state = state
        self._log = log
        self._audit = audit
        self._asked: dict[str, tuple[Call, float]] = {}
        self._missed = False

    @property
    def is_served(self) -> bool:
        """Whether the project still is one of this front's."""
        served = self._state.instance.projects.get(self.project.name)
        return served is not None and served.path == self.project.path

    def take(self, message: ToOwner, relay: Relay) -> None:
        """A message of the other side."""
        match message:
            case Call():
                self._take_call(message, relay)
            case Permit():
                relay.permit(message)
            case SessionEnded():
                if self.is_served:
                    relay.forget_session(message.session_id)
            case Cancel():
                relay.withdraw(message.request_id, expired=message.expired)

    def _take_call(self, message: Call, relay: Relay) -> None:
        if self._state.draining or not self.is_served:
            # For the next owner.
            self.send(Cancelled(message.request_id, withdrawn=True))
            return
        if not self.follows:
            self._asked[message.request_id] = (message, time.perf_counter())
        try:
            relay.take(self._permitted(message))
        except MaadError as failure:
            self.send(refusal_of(message, failure))

    def send(self, message: FromOwner) -> None:
        """A message to the other side, if it is still there."""
        if isinstance(message, Reply):
            self._record(message)
        if not self._writer.is_closing():
            self._writer.write(encode(message))

    def tell(self, event: Event) -> None:
        """A record of the project changed."""
        transport = self._writer.transport
        if transport.get_write_buffer_size() > _UNREAD_BYTES:
            self._missed = True
            return
        if self._missed:
            self._missed = False
            event = msgspec.structs.replace(event, action=RESYNC)
        self.send(event)

    def _permitted(self, call: Call) -> Call:
        """The call as it may be made here; INVALID_ARGS, INSUFFICIENT_ROLE."""
        spec = TOOLS.get(call.tool)
        if spec is None or not spec.routed:
            message = f"this server knows no tool {call.tool!r}; are both of one version?"
            issues = [{"path": "tool", "message": message}]
            raise MaadError("INVALID_ARGS", message, {"tool": call.tool, "issues": issues})
        if not self.follows:
            return call
        ceiling = self._state.instance.projects[self.project.name].role
        if spec.min_role is not None and ceiling < spec.min_role:
            raise MaadError(
                "INSUFFICIENT_ROLE",
                f"{call.tool} needs the role {spec.min_role.text}; the process that owns the "
                f"project was started with {ceiling.text}",
                {"project": self.project.name},
            )
        return msgspec.structs.replace(call, role=int(min(Role(call.role), ceiling)))

    def _record(self, reply: Reply) -> None:
        """The log and audit lines of a command's call."""
        asked = self._asked.pop(reply.request_id, None)
        if asked is None:
            return
        call, started = asked
        self._log.info(
            "tool_call",
            request_id=call.request_id,
            session_id=_OPERATOR,
            project=self.project.name,
            tool=call.tool,
            role=Role(call.role).text,
            payload_size=len(msgspec.json.encode(call.args)),
            latency_ms=round((time.perf_counter() - started) * 1000, 3),
            result="ok" if reply.ok else "error",
            error_code=reply.error_code,
        )
        if reply.audit is not None:
            self._audit(
                "write",
                {
                    "request_id": call.request_id,
                    "session_id": _OPERATOR,
                    "project": self.project.name,
                    "tool": call.tool,
                    **reply.audit,
                    "role": Role(call.role).text,
                },
            )
