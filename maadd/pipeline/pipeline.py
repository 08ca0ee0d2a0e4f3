"""One tool call from arguments to envelope: the ordered checks of spec 04 §6.

The order is contract: the first check that fails decides the code. Engine-less tools take
the same way without the steps that concern a worker.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec
from structlog.typing import FilteringBoundLogger

from maadd.auth.caps import ceiling
from maadd.auth.record import TokenRecord
from maadd.auth.registry import TokenRegistry
from maadd.config.instance import Instance, ProjectConfig
from maadd.config.settings import Settings
from maadd.ops.meter import Meter
from maadd.pipeline import envelope
from maadd.pipeline.budget import contract_budget, within_budget
from maadd.pipeline.call_log import AuditSink, CallLog, Trace
from maadd.pipeline.dispatch import Dispatcher, MeasureMemory, account_of, is_replay
from maadd.pipeline.envelope import CallResult, FrontAnswer
from maadd.pipeline.front_tools import EnginelessHandler, FrontTools
from maadd.pipeline.heavy import HeavyGuard
from maadd.pipeline.limits import Limiter
from maadd.pipeline.progress import ProgressRelay, ReportProgress
from maadd.pipeline.strict import LiveAccess
from maadd.pool.pool import WorkerPool
from maadd.protocol.encodable import check_encodable
from maadd.protocol.errors import MaadError, MaadErrors, WireError, errors_of
from maadd.protocol.log_projection import search_members
from maadd.protocol.messages import Call, Identity, Reply, ResultBudget
from maadd.protocol.roles import Role
from maadd.protocol.size import success_text
from maadd.protocol.strict_json import parse_json
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

HealthMerger = Callable[[Caller, ProjectConfig, bytes | None], bytes]
"""Joins the worker's health report (None while it is down) with the front's own blocks."""

_encode = msgspec.json.encode


class FrontState(Protocol):
    """What every call asks of the running front."""

    @property
    def instance(self) -> Instance: ...
    @property
    def generation(self) -> int: ...
    @property
    def draining(self) -> bool: ...


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
        heavy: HeavyGuard,
        measure_memory: MeasureMemory,
        pool: WorkerPool,
        engineless: Mapping[str, EnginelessHandler],
        tokens: TokenRegistry | None,
        merge_health: HealthMerger,
        log: FilteringBoundLogger,
        audit: AuditSink,
        meter: Meter,
    ) -> None:
        self._state = state
        self._settings = settings
        self._tools = {spec.name: spec for spec in tools}
        self._listed = tools
        self._sessions = sessions
        self._limiter = limiter
        self._dispatcher = Dispatcher(state, settings, limiter, heavy, measure_memory, pool)
        self._front_tools = FrontTools(engineless, settings.request_timeout_ms, log)
        self._tokens = tokens
        self._merge_health = merge_health
        self._log = log
        self._told = CallLog(log, audit)
        self._meter = meter
        self._in_flight = 0

    @property
    def in_flight(self) -> int:
        """Calls being answered, and what the front itself has begun for callers that left."""
        return self._in_flight + self._front_tools.in_flight

    @property
    def unanswered(self) -> int:
        """Calls whose callers still wait."""
        return self._in_flight

    def abandon(self) -> None:
        """Let nobody wait any longer for what the front itself has begun."""
        self._front_tools.abandon()

    def listed_tools(self, caller: Caller) -> tuple[ToolSpec, ...]:
        """The tools that are offered; never a matter of the binding.

        With `MAAD_FILTER_TOOLS` those that the token can call on some project.
        """
        if not self._settings.filter_tools:
            return self._listed
        projects = self._state.instance.projects.values()
        reached = [role for p in projects if (role := ceiling(p, caller.token)) is not None]
        best = max(reached, default=None)
        return tuple(
            spec
            for spec in self._listed
            if spec.min_role is None or (best is not None and best >= spec.min_role)
        )

    async def call(
        self,
        caller: Caller,
        tool: str,
        arguments: object,
        *,
        progress: ReportProgress | None = None,
        source: bytes | None = None,
    ) -> CallResult:
        """Answer one call; `progress` hears how far a long one is, `source` is the text of the
        arguments for the tools that judge it. Only the cancellation of the
        calling task gets out as an exception."""
        trace = Trace(tool)
        self._in_flight += 1
        try:
            text = await self._answer(caller, tool, arguments, trace, progress, source)
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
            self._in_flight -= 1
        seconds = time.perf_counter() - trace.started
        self._meter.succeeded(trace.project, tool, seconds)
        self._told.called(caller, trace, None, seconds)
        return CallResult(text, is_error=False)

    async def _answer(
        self,
        caller: Caller,
        tool: str,
        arguments: object,
        trace: Trace,
        progress: ReportProgress | None,
        source: bytes | None,
    ) -> bytes:
        """The steps 0 to 17 of spec 04 §6, in their order."""
        spec = self._known_tool(tool)  # 0
        check_encodable(tool, arguments, as_text=spec.exact_arguments)
        trace.payload = len(_encode(arguments)) if arguments else 2
        args = check_arguments(spec, arguments)
        trace.kind = spec.kind_of(args)
        trace.members = search_members(args)
        refuse_while_draining(self._state.draining)  # 1
        self._check_session(caller, spec)  # 2, 3, 4
        if isinstance(caller, Session):
            caller.used = True
        token = caller.token
        if not spec.routed:
            self._check_everywhere(caller, spec, token)
            self._limiter.check_payload(tool, trace.payload)  # 9
            slot = self._limiter.enter(account_of(caller), tool)  # 10
            answer = await self._front_tools.answer(  # 16
                spec, caller, args, self._state.instance, slot=slot, request_id=trace.request_id
            )
            return self._finish_here(spec, answer, arguments, trace)  # 17
        project, role = self._select(caller, spec, args)  # 5, 6, 7
        trace.project, trace.role = project.name, role
        access = None
        if spec.strict:
            access = LiveAccess(self._state, self._tokens, caller, spec, project)
            access.check()  # 8
        self._limiter.check_payload(tool, trace.payload)  # 9
        slot = self._limiter.enter(account_of(caller), tool)  # 10
        relay = None if progress is None else ProgressRelay(progress, self._log)
        try:
            await self._dispatcher.make_ready(spec, project)  # 11
            call = self._compose(caller, spec, args, arguments, role, trace)  # 12
            if spec.strict:
                call = self._contract_call(spec, call, source)
            asking = self._dispatcher.begin(  # 13, 14
                caller,
                spec,
                args,
                call,
                project,
                slot,
                None if relay is None else relay.offer,
                None if access is None else access.permit,
            )
        except BaseException:
            slot.leave()
            raise
        if call.is_write:
            self._told.begins(spec, args, trace)
        async with relay or contextlib.nullcontext():
            reply = await (asking if access is None else access.guard(asking))  # 15, 16
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
        if known is not None and known.available and known.min_role is not None:
            message = (
                f"{tool} needs the role {known.min_role.text}; this server was started with less "
                f"(--role {known.min_role.text} offers it)"
            )
            details = {"tool": tool, "issues": [{"path": "tool", "message": message}]}
            raise MaadError("INVALID_ARGS", message, details)
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
                self._check_admitted(caller, spec)
        elif spec.min_role is not None:
            names = bound_projects(caller)
            for name in names if spec.admin_everywhere else ():
                found = instance.projects.get(name)
                role = None if found is None else role_on(caller, found, token)
                _require(spec, role, name)

    def _check_admitted(self, caller: StatelessCaller, spec: ToolSpec) -> None:
        """The role on every project that the token admits, of which there must be one."""
        admitted = admitted_projects(caller, self._state.instance)
        if not admitted:
            raise MaadError(
                "TOKEN_PROJECT_FORBIDDEN", "this token admits none of the projects asked for"
            )
        for project in admitted:
            _require(spec, stateless_role(caller, project), project.name)

    def _finish_here(
        self, spec: ToolSpec, answer: FrontAnswer, arguments: object, trace: Trace
    ) -> bytes:
        """Step 17 of an engine-less tool."""
        trace.meta = answer.meta
        source, meta = self._source(spec), self._stamp(trace)
        if answer.rehearsed:
            text = envelope.dry_run(spec.name, _visible(arguments), b"", source=source, meta=meta)
        else:
            text = success_text(_encode(answer.data), source=source, meta=meta)
        return self._within_budget(spec, ToolKind.ENGINELESS, text, None)

    def _compose(
        self,
        caller: Caller,
        spec: ToolSpec,
        args: Any,
        arguments: object,
        role: Role,
        trace: Trace,
    ) -> Call:
        """The message to the worker. Step 12: only of a tool that has a kind."""
        if trace.kind is ToolKind.ENGINELESS:
            raise MaadError("MISSING_OPERATION_KIND", f"{spec.name} has no operation kind")
        return Call(
            request_id=trace.request_id,
            tool=spec.name,
            args=_visible(arguments),
            role=int(role),
            session_id=account_of(caller),
            generation=0,
            deadline_ms=self._settings.request_timeout_ms,
            identity=_identity(caller.token),
            dry_run=self._rehearses(spec, args, trace.kind),
            is_write=trace.kind is ToolKind.WRITE,
        )

    def _contract_call(self, spec: ToolSpec, call: Call, source: bytes | None) -> Call:
        """A strict call with its budget, and with its text where that is judged."""
        budget = ResultBudget(
            contract_budget(self._settings.contract_response_max_bytes),
            self._settings.emit_request_id,
            self._source(spec),
            self._settings.structured_content,
        )
        if not spec.exact_arguments:
            return msgspec.structs.replace(call, budget=budget)
        text = _encode(call.args) if source is None else source
        return msgspec.structs.replace(call, budget=budget, args={}, source=text)

    def _rehearses(self, spec: ToolSpec, args: Any, kind: ToolKind) -> bool:
        """Whether the call only tells what it would do, because the server runs dry."""
        return self._settings.dry_run and kind is ToolKind.WRITE and not spec.changes_nothing(args)

    def _finish(
        self, caller: Caller, spec: ToolSpec, args: Any, call: Call, trace: Trace, reply: Reply
    ) -> bytes:
        """Step 17: stamp, put the envelope together, measure."""
        trace.meta = reply.meta
        if not reply.ok:
            errors = msgspec.json.decode(reply.body, type=list[WireError])
            raise MaadErrors([MaadError(e.code, e.message, e.details) for e in errors])
        if trace.members:
            trace.members |= {"degraded": (reply.meta or {}).get("degraded"), "results": reply.rows}
        meta = self._stamp(trace)
        if call.dry_run and not is_replay(reply):
            items = spec.number_of_items(args)
            text = envelope.dry_run(
                spec.name,
                _would_execute(call) if items is None else {"count": items},
                reply.body,
                source=self._source(spec),
                meta=meta,
            )
        else:
            text = success_text(reply.body, source=self._source(spec), meta=meta)
        if trace.kind is ToolKind.WRITE and meta is not None:
            self._told.warned(caller, trace, meta.get("warnings", ()), reply.audit or {})
        if reply.audit is not None:
            self._told.wrote(caller, trace, reply.audit)
        kind = ToolKind.READ if spec.changes_nothing(args) else trace.kind
        return self._within_budget(spec, kind, text, reply.rows)

    def _within_budget(
        self, spec: ToolSpec, kind: ToolKind, text: bytes, rows: int | None
    ) -> bytes:
        return within_budget(
            spec,
            kind,
            text,
            ordinary_cap=self._settings.response_max_bytes,
            contract_cap=self._settings.contract_response_max_bytes,
            structured=self._settings.structured_content,
            rows=rows,
        )

    def _stamp(self, trace: Trace) -> dict[str, Any] | None:
        """The `_meta` of an answer: the worker's, and the request id where it is asked for."""
        meta = trace.meta
        if self._settings.emit_request_id or (meta is not None and meta.get("replayed")):
            return {"request_id": trace.request_id, **(meta or {})}
        return meta

    def _source(self, spec: ToolSpec) -> str | None:
        return None if self._settings.provenance == "off" else spec.name

    def _fail(self, caller: Caller, trace: Trace, failure: MaadError | MaadErrors) -> CallResult:
        meta = {"request_id": trace.request_id} if self._settings.emit_request_id else None
        first = errors_of(failure)[0]
        code = first.code
        seconds = time.perf_counter() - trace.started
        reason = None if first.details is None else first.details.get("reason")
        self._meter.failed(trace.project, trace.tool, seconds, code, reason)
        self._told.called(caller, trace, code, seconds)
        if code == "SESSION_CANCELLED" and isinstance(caller, Session):
            self._sessions.close(caller, CloseReason.TRANSPORT)
        return CallResult(envelope.failure(failure, meta=meta), True)


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


def _identity(token: TokenRecord | None) -> Identity | None:
    return None if token is None else Identity(token.id, token.agent_id, token.user_id)


def _would_execute(call: Call) -> dict[str, Any]:
    """The arguments as a dry run shows them."""
    if call.source is None:
        return call.args
    return _visible(parse_json(call.source, exact_integers=True))


def _visible(arguments: object) -> dict[str, Any]:
    """The arguments without the names that begin with `_` (spec 04 §1.2)."""
    if not isinstance(arguments, dict):
        return {}
    return {name: value for name, value in arguments.items() if not name.startswith("_")}
