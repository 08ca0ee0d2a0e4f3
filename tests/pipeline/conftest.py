"""A pipeline in front of a worker that notes every call and answers what the test tells it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import structlog

from maadd.auth.record import TokenRecord
from maadd.config.instance import Instance, ProjectConfig
from maadd.config.settings import Settings
from maadd.ops.meter import Meter
from maadd.pipeline.front_tools import EnginelessHandler
from maadd.pipeline.heavy import FreeMemory, HeavyGuard, heavy_limits
from maadd.pipeline.limits import Limiter, LimitSettings
from maadd.pipeline.pipeline import Pipeline
from maadd.protocol.messages import Call, HistorySettings, Reply
from maadd.protocol.roles import Role
from maadd.protocol.tools import registered_tools
from maadd.sessions.notices import NoticeQueue
from maadd.sessions.session import Binding, BindingSource, Mode, Session
from maadd.sessions.table import SessionLimits, SessionTable


class Worker:
    """Stands for the pool: `answers` are handed out in turn, then an empty success.

    With `hold` calls are answered when it is set; `arrived` tells of each call.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.answers: list[Reply] = []
        self.hold: asyncio.Event | None = None
        self.arrived: asyncio.Queue[Call] = asyncio.Queue()

    async def ensure_ready(self, project: ProjectConfig, timeout_s: float) -> None:
        """Always ready."""

    def require_ready(self, project: ProjectConfig) -> None:
        """Always ready."""

    async def call(
        self,
        project: ProjectConfig,
        call: Call,
        *,
        is_write: bool,
        timeout_s: float,
        on_end: Callable[[], None],
        on_progress: object = None,
        strict: bool = False,
        on_permit: object = None,
    ) -> Reply:
        self.calls.append(call)
        self.arrived.put_nowait(call)
        try:
            if self.hold is not None:
                await self.hold.wait()
        finally:
            on_end()
        if self.answers:
            return msgspec.structs.replace(self.answers.pop(0), request_id=call.request_id)
        return Reply(call.request_id, ok=True, body=b"{}")


@dataclass
class State:
    instance: Instance
    generation: int = 1
    draining: bool = False


class Bench:
    """One bound session, a clock that the test moves, and the pipeline."""

    def __init__(self, settings: Settings) -> None:
        self.now = 100.0
        self.logged: list[dict[str, Any]] = []
        self.worker = Worker()
        project = ProjectConfig(
            "fleet", "/srv/fleet", Role.ADMIN, None, HistorySettings("feed", None, "inferred")
        )
        instance = Instance("office", "synthetic", None, "/srv", {"fleet": project})
        log = structlog.wrap_logger(
            None,
            processors=[self._note],
            wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        )
        self.limiter = Limiter(
            LimitSettings(
                settings.rl_writes_per_sec,
                settings.rl_writes_per_min,
                settings.rl_concurrent,
                settings.rl_payload_bytes,
                disabled=False,
            ),
            lambda: self.now,
        )
        self._sessions = SessionTable(SessionLimits(9, 9, 1800.0), log)
        self.session = self.open("s1")
        self.state = State(instance)
        self.free = FreeMemory(None, None)
        self.heavy = HeavyGuard(heavy_limits(settings), lambda: self.now)
        self.audited: list[dict[str, Any]] = []
        self.engineless: dict[str, EnginelessHandler] = {}
        self.pipeline = Pipeline(
            state=self.state,
            settings=settings,
            tools=registered_tools(),
            sessions=self._sessions,
            limiter=self.limiter,
            heavy=self.heavy,
            measure_memory=lambda project: self.free,
            pool=self.worker,
            tokens=None,
            engineless=self.engineless,
            merge_health=lambda caller, project, body: body or b"{}",
            log=log,
            meter=Meter(),
            audit=lambda event, fields: self.audited.append({"event": event, **fields}),
        )

    def open(self, session_id: str, token: TokenRecord | None = None) -> Session:
        """One more session."""
        return self._sessions.open(
            session_id, transport="http", notices=NoticeQueue(4), token=token
        )

    def _note(self, _logger: object, _level: str, event: Any) -> Any:
        self.logged.append(dict(event))
        raise structlog.DropEvent

    @staticmethod
    def lowered_binding() -> Binding:
        """The binding of a session that asked for no more than to read."""
        return Binding(Mode.SINGLE, ("fleet",), Role.READER, BindingSource.CLIENT_TOOL)

    async def ask(self, session: Session, tool: str, **args: Any) -> Any:
        """The envelope of a call by that session."""
        result = await self.pipeline.call(session, tool, args)
        return msgspec.json.decode(result.text)

    def call(self, tool: str, **args: Any) -> Any:
        """The envelope of one call."""
        result = asyncio.run(self.pipeline.call(self.session, tool, args))
        answer = msgspec.json.decode(result.text)
        assert answer["ok"] is not result.is_error
        return answer

    def error(self, tool: str, **args: Any) -> Any:
        """The first error of a call that must fail."""
        return self.call(tool, **args)["errors"][0]


@pytest.fixture
def make_bench() -> Callable[..., Bench]:
    return lambda **settings: Bench(Settings(**settings))
