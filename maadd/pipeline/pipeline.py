"""One tool call from arguments to envelope: the ordered checks of spec 04 §6.

The order is contract: the first check that fails decides the code. Engine-less tools take
the same way without the steps that concern a worker.
"""

from __future__ import annotations

import inspect
import math
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec
from structlog.typing import FilteringBoundLogger

from maadd.auth.record import TokenRecord
from maadd.config.instance import Instance, ProjectConfig
from maadd.config.settings import Settings
from maadd.ops.logs import log_engine
from maadd.pipeline import envelope
from maadd.pipeline.budget import check_budget
from maadd.pipeline.envelope import CallResult
from maadd.pipeline.limits import Limiter, Slot
from maadd.pipeline.progress import ProgressRelay, ReportProgress
from maadd.pool.pool import WorkerPool
from maadd.protocol.errors import MaadError, MaadErrors, WireError, errors_of
from maadd.protocol.log_projection import project_arguments
from maadd.protocol.messages import Call, CallProgress, Identity, Reply
from maadd.protocol.roles import Role
from maadd.protocol.tools import TOOLS, ToolKind, ToolSpec
from maadd.protocol.validation import check_arguments, unknown_tool_error
from maadd.sessions.access import (
    bind_by_itself,
    bound_projects,
    reach,
    refuse_cancelled,
    refuse_while_draining,
)
from maadd.sessions.binding import role_on
from maadd.sessions.session import CloseReason, Session
from maadd.sessions.stateless import StatelessCaller, admitted_projects, stateless_role
from maadd.sessions.table import SessionTable
from maadd.sessions.views import Caller

EnginelessHandler = Callable[
    [Caller, Any, Instance, TokenRecord | None], dict[str, Any] | Awaitable[dict[str, Any]]
]
"""Answers an engine-less tool: (caller, typed arguments, instance, token) to `data`."""

HealthMerger = Callable[[Caller, ProjectConfig, bytes | None], bytes]
"""Joins the worker's health report (None while it is down) with the front's own blocks."""

AuditSink = Callable[[str, dict[str, Any]], None]

_encode = msgspec.json.encode

_ITEMS_PER_WRITE = 10
"""So many records of a bulk call are charged like one write (spec 04 §12.1)."""

_NOT_DOWN = frozenset({"SHUTTING_DOWN", "OVERLOADED"})
"""Refusals of the pool that say nothing about the state of the project's worker."""


class FrontState(Protocol):
    """What every call asks of the running front."""

    @property
    def instance(self) -> Instance: ...
    @property
    def draining(self) -> bool: ...


class _Trace:
    """What is known of a call so far, for its log line and its failure."""

    __slots__ = ("kind", "meta", "payload", "project", "request_id", "role", "started", "tool")

    def __init__(self, tool: str) -> None:
        self.request_id = str(uuid.uuid4())
        self.started = time.perf_counter()
        self.tool = tool
        self.payload = 0
        self.project: str | None = None
        self.role: Role | None = None
        self.kind = ToolKind.ENGINELESS
        self.meta: dict[str, Any] | None = None


class Pipeline:
    """Calls tools for sessions and stateless callers; domain failures become envelopes."""

    def __init__(
        self,
        *,
        state: FrontState,
        settings: Settings,
        tools: tuple[ToolSpec, ...],
        sessions: SessionTable,
        limiter: Limiter,
        pool: WorkerPool,
        engineless: Mapping[str, EnginelessHandler],
        merge_health: HealthMerger,
        log: FilteringBoundLogger,
        audit: AuditSink,
    ) -> None:
        self._state = state
        self._settings = settings
        self._tools = {spec.name: spec for spec in tools}
        self._listed = tools
        self._sessions = sessions
        self._limiter = limiter
        self._pool = pool
        self._engineless = engineless
        self._merge_health = merge_health
        self._log = log
        self._audit = audit
        self.in_flight = 0

    def listed_tools(self, caller: Caller) -> tuple[ToolSpec, ...]:
        """The tools that are offered; never a matter of the binding."""
        return self._listed

    async def call(
        self,
        caller: Caller,
        tool: str,
        arguments: object,
        *,
        progress: ReportProgress | None = None,
    ) -> CallResult:
        """Answer one call; `progress` hears how far a long one is. Only the cancellation of the
        calling task gets out as an exception."""
        trace = _Trace(tool)
        self.in_flight += 1
        try:
            text = await self._answer(caller, tool, arguments, trace, progress)
        except (MaadError, MaadErrors) as failure:
            return self._fail(caller, trace, failure)
        except Exception:
            self._log.exception("tool_call_failed", request_id=trace.request_id, tool=tool)
            outcome = (
                {"writeOutcome": "unknown_reconcile"} if trace.kind is ToolKind.WRITE else None
            )
            unexpected = MaadError(
                "INTERNAL",
                f"an unexpected failure; the server's log has it under {trace.request_id}",
                outcome,
            )
            return self._fail(caller, trace, unexpected)
        finally:
            self.in_flight -= 1
        self._log_call(caller, trace, None)
        return CallResult(text, is_error=False)

    async def _answer(
        self,
        caller: Caller,
        tool: str,
        arguments: object,
        trace: _Trace,
        progress: ReportProgress | None,
    ) -> bytes:
        """The steps 0 to 17 of spec 04 §6, in their order."""
        spec = self._known_tool(tool)  # 0
        trace.payload = len(_encode(arguments)) if arguments else 2
        args = check_arguments(spec, arguments)
        trace.kind = spec.kind_of(args)
        refuse_while_draining(self._state.draining)  # 1
        self._check_session(caller, spec)  # 2, 3, 4
        if isinstance(caller, Session):
            caller.used = True
        token = caller.token
        if not spec.routed:
            self._check_everywhere(caller, spec, token)
            self._limiter.check_payload(tool, trace.payload)  # 9
            with self._limiter.enter(_account(caller), tool):  # 10
                return await self._answer_here(caller, spec, args, token)
        project, role = self._select(caller, spec, args)  # 5, 6, 7
        trace.project, trace.role = project.name, role
        self._limiter.check_payload(tool, trace.payload)  # 9
        slot = self._limiter.enter(_account(caller), tool)  # 10
        try:
            call, paid = await self._prepare(caller, spec, args, arguments, project, role, trace)
        except BaseException:
            slot.leave()
            raise
        reply = await self._ask_worker(project, call, slot, progress)  # 15, 16
        if paid and _is_replay(reply):
            self._limiter.refund_write(_account(caller), _token_id(caller), paid)
        if spec.name == "maad_health" and reply.ok:
            body = self._merge_health(caller, project, reply.body or None)
            reply = msgspec.structs.replace(reply, body=body)
        return self._finish(caller, spec, args, call, trace, reply)  # 17

    def _known_tool(self, tool: str) -> ToolSpec:
        spec = self._tools.get(tool)
        if spec is not None:
            return spec
        known = TOOLS.get(tool)
        if known is not None and known.available and self._settings.tools:
            raise MaadError(
                "INSUFFICIENT_ROLE",
                f"{tool} is switched off on this server (MAAD_TOOLS)",
                {"reason": "allowlist"},
            )
        raise unknown_tool_error(tool)

    def _check_session(self, caller: Caller, spec: ToolSpec) -> None:
        refuse_cancelled(caller)
        instance = self._state.instance
        if not isinstance(caller, Session) or caller.binding is not None:
            return
        if instance.source == "synthetic" and spec.strict:
            raise MaadError(
                "SESSION_UNBOUND",
                f"{spec.name} binds nothing by itself; call an ordinary tool first",
            )
        if spec.min_role is not None:
            bind_by_itself(caller, instance)

    def _select(self, caller: Caller, spec: ToolSpec, args: Any) -> tuple[ProjectConfig, Role]:
        project, role = reach(caller, args.project, self._state.instance)
        _require(spec, role, project.name)
        return project, role

    def _check_everywhere(self, caller: Caller, spec: ToolSpec, token: TokenRecord | None) -> None:
        """The gate of engine-less tools: bound at all, and for the tools of the whole instance
        the role on every bound (or admitted) project. The others judge the role themselves."""
        instance = self._state.instance
        if isinstance(caller, StatelessCaller):
            if spec.admin_everywhere:
                for project in admitted_projects(caller, instance):
                    _require(spec, stateless_role(caller, project), project.name)
        elif spec.min_role is not None:
            names = bound_projects(caller)
            for name in names if spec.admin_everywhere else ():
                found = instance.projects.get(name)
                role = None if found is None else role_on(caller, found, token)
                _require(spec, role, name)

    async def _answer_here(
        self, caller: Caller, spec: ToolSpec, args: Any, token: TokenRecord | None
    ) -> bytes:
        handler = self._engineless[spec.name]
        data = handler(caller, args, self._state.instance, token)
        if inspect.isawaitable(data):
            data = await data
        text = envelope.success(_encode(data), source=self._source(spec), meta=None)
        self._check_budget(spec, ToolKind.ENGINELESS, text, None)
        return text

    async def _prepare(
        self,
        caller: Caller,
        spec: ToolSpec,
        args: Any,
        arguments: object,
        project: ProjectConfig,
        role: Role,
        trace: _Trace,
    ) -> tuple[Call, int]:
        """Steps 11 to 14: a ready worker, the kind, bulk size and write rate; the call to send,
        and what was paid for it."""
        timeout_s = self._settings.request_timeout_ms / 1000
        if spec.name != "maad_health":
            await self._pool.ensure_ready(project, timeout_s)  # 11
        kind = trace.kind
        if kind is ToolKind.ENGINELESS:  # 12
            raise MaadError("MISSING_OPERATION_KIND", f"{spec.name} has no operation kind")
        verdict, paid = self._charge(caller, spec, args, kind)  # 14
        if kind is ToolKind.WRITE:
            log_engine(
                self._log,
                "info",
                "mcp",
                "tool_call",
                "arguments of a write",
                request_id=trace.request_id,
                tool=spec.name,
                project=project.name,
                args=project_arguments(spec, args),
            )
        call = Call(
            request_id=trace.request_id,
            tool=spec.name,
            args=_visible(arguments),
            role=int(role),
            session_id=_account(caller),
            generation=0,
            deadline_ms=self._settings.request_timeout_ms,
            identity=_identity(caller.token),
            dry_run=self._rehearses(spec, args, kind),
            is_write=kind is ToolKind.WRITE,
            verdict=verdict,
        )
        return call, paid

    async def _ask_worker(
        self, project: ProjectConfig, call: Call, slot: Slot, progress: ReportProgress | None
    ) -> Reply:
        if progress is None:
            return await self._perform(project, call, slot, None)
        async with ProgressRelay(progress, self._log) as relay:
            return await self._perform(project, call, slot, relay.offer)

    async def _perform(
        self,
        project: ProjectConfig,
        call: Call,
        slot: Slot,
        on_progress: Callable[[CallProgress], None] | None,
    ) -> Reply:
        try:
            return await self._pool.call(
                project,
                call,
                is_write=call.is_write,
                timeout_s=self._settings.request_timeout_ms / 1000,
                on_end=slot.leave,
                on_progress=on_progress,
            )
        except MaadError as failure:
            # Health answers also while the worker is down (spec 03 §6.3).
            if call.tool == "maad_health" and failure.code not in _NOT_DOWN:
                return Reply(call.request_id, ok=True, body=b"")
            raise

    def _rehearses(self, spec: ToolSpec, args: Any, kind: ToolKind) -> bool:
        """Whether the call only tells what it would do, because the server runs dry."""
        return self._settings.dry_run and kind is ToolKind.WRITE and not spec.changes_nothing(args)

    def _charge(
        self, caller: Caller, spec: ToolSpec, args: Any, kind: ToolKind
    ) -> tuple[WireError | None, int]:
        """Judge the size of a write and pay for it. With an idempotency key a refusal travels
        to the worker, which knows whether the call is a replay."""
        if kind is not ToolKind.WRITE:
            return None, 0
        items = spec.number_of_items(args)
        cost = 1 if items is None else max(1, math.ceil(items / _ITEMS_PER_WRITE))
        refusal = self._excess(spec, items) or self._limiter.charge_write(
            _account(caller), _token_id(caller), spec.name, cost
        )
        if refusal is None:
            return None, cost
        if spec.idempotency_key and args.idempotency_key:
            return refusal.wire(), 0
        raise refusal

    def _excess(self, spec: ToolSpec, items: int | None) -> MaadError | None:
        """BULK_LIMIT_EXCEEDED for more records than one call may write. The cleanup tools have
        a limit of their own, which the worker judges."""
        limit = self._settings.bulk_max_items
        if items is None or spec.confirm or items <= limit:
            return None
        return MaadError(
            "BULK_LIMIT_EXCEEDED",
            f"{spec.name} takes at most {limit} records a call, this one has {items}; send them "
            "in several calls",
            {
                "tool": spec.name,
                "received": items,
                "limit": limit,
                "suggestedChunkSize": limit,
            },
        )

    def _finish(
        self, caller: Caller, spec: ToolSpec, args: Any, call: Call, trace: _Trace, reply: Reply
    ) -> bytes:
        """Step 17: stamp, put the envelope together, measure."""
        trace.meta = reply.meta
        if not reply.ok:
            errors = msgspec.json.decode(reply.body, type=list[WireError])
            raise MaadErrors([MaadError(e.code, e.message, e.details) for e in errors])
        meta = self._stamp(trace)
        if call.dry_run and not _is_replay(reply):
            items = spec.number_of_items(args)
            text = envelope.dry_run(
                spec.name,
                call.args if items is None else {"count": items},
                reply.body,
                source=self._source(spec),
                meta=meta,
            )
        else:
            text = envelope.success(reply.body, source=self._source(spec), meta=meta)
        if reply.audit is not None:
            self._audit("write", self._audit_line(caller, trace, reply.audit))
        kind = ToolKind.READ if spec.changes_nothing(args) else trace.kind
        self._check_budget(spec, kind, text, reply.rows)
        return text

    def _check_budget(self, spec: ToolSpec, kind: ToolKind, text: bytes, rows: int | None) -> None:
        check_budget(
            spec,
            kind,
            text,
            ordinary_cap=self._settings.response_max_bytes,
            contract_cap=self._settings.contract_response_max_bytes,
            structured=self._settings.structured_content,
            rows=rows,
        )

    def _stamp(self, trace: _Trace) -> dict[str, Any] | None:
        """The `_meta` of an answer: the worker's, and the request id where it is asked for."""
        meta = trace.meta
        if self._settings.emit_request_id or (meta is not None and meta.get("replayed")):
            return {"request_id": trace.request_id, **(meta or {})}
        return meta

    def _source(self, spec: ToolSpec) -> str | None:
        return None if self._settings.provenance == "off" else spec.name

    def _fail(self, caller: Caller, trace: _Trace, failure: MaadError | MaadErrors) -> CallResult:
        meta = {"request_id": trace.request_id} if self._settings.emit_request_id else None
        code = errors_of(failure)[0].code
        self._log_call(caller, trace, code)
        if code == "SESSION_CANCELLED" and isinstance(caller, Session):
            self._sessions.close(caller, CloseReason.TRANSPORT)
        return CallResult(envelope.failure(envelope.encode_errors(failure), meta=meta), True)

    def _log_call(self, caller: Caller, trace: _Trace, code: str | None) -> None:
        self._log.info(
            "tool_call",
            request_id=trace.request_id,
            session_id=caller.id if isinstance(caller, Session) else None,
            project=trace.project,
            tool=trace.tool,
            role=None if trace.role is None else trace.role.text,
            payload_size=trace.payload,
            latency_ms=round((time.perf_counter() - trace.started) * 1000, 3),
            result="ok" if code is None else "error",
            error_code=code,
        )

    def _audit_line(self, caller: Caller, trace: _Trace, written: dict[str, Any]) -> dict[str, Any]:
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


def _require(spec: ToolSpec, role: Role | None, project: str) -> None:
    """INSUFFICIENT_ROLE unless `role` reaches the tool's minimum."""
    if spec.min_role is None or (role is not None and role >= spec.min_role):
        return
    have = "none" if role is None else role.text
    raise MaadError(
        "INSUFFICIENT_ROLE",
        f"{spec.name} needs the role {spec.min_role.text} on {project!r}, this session has {have}",
        {"project": project},
    )


def _is_replay(reply: Reply) -> bool:
    return reply.meta is not None and bool(reply.meta.get("replayed"))


def _account(caller: Caller) -> str:
    """What limits are counted by: the session, or the token where there is none."""
    return caller.id if isinstance(caller, Session) else f"token:{caller.token.id}"


def _token_id(caller: Caller) -> str | None:
    return None if caller.token is None else caller.token.id


def _identity(token: TokenRecord | None) -> Identity | None:
    return None if token is None else Identity(token.id, token.agent_id, token.user_id)


def _visible(arguments: object) -> dict[str, Any]:
    """The arguments without the names that begin with `_` (spec 04 §1.2)."""
    if not isinstance(arguments, dict):
        return {}
    return {name: value for name, value in arguments.items() if not name.startswith("_")}
