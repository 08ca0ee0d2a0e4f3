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

from maadd.config.instance import Instance, ProjectConfig
from maadd.config.settings import Settings
from maadd.pipeline.limits import Limiter, LimitSettings
from maadd.pipeline.pipeline import Pipeline
from maadd.protocol.messages import Call, HistorySettings, Reply
from maadd.protocol.roles import Role
from maadd.protocol.tools import registered_tools
from maadd.sessions.notices import NoticeQueue
from maadd.sessions.session import Session
from maadd.sessions.table import SessionLimits, SessionTable


class Worker:
    """Stands for the pool: `answers` are handed out in turn, then an empty success."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.answers: list[Reply] = []

    async def ensure_ready(self, project: ProjectConfig, timeout_s: float) -> None:
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
    ) -> Reply:
        self.calls.append(call)
        on_end()
        if self.answers:
            return msgspec.structs.replace(self.answers.pop(0), request_id=call.request_id)
        return Reply(call.request_id, ok=True, body=b"{}")


@dataclass
class State:
    instance: Instance
    draining: bool = False


class Bench:
    """One bound session, a clock that the test moves, and the pipeline."""

    def __init__(self, settings: Settings) -> None:
        self.now = 100.0
        self.worker = Worker()
        project = ProjectConfig(
            "fleet", "/srv/fleet", Role.ADMIN, None, HistorySettings("feed", None, "inferred")
        )
        instance = Instance("office", "synthetic", None, "/srv", {"fleet": project})
        log = structlog.wrap_logger(
            None,
            processors=[_drop],
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
        sessions = SessionTable(SessionLimits(9, 9, 1800.0), log)
        self.session: Session = sessions.open(
            "s1", transport="stdio", notices=NoticeQueue(4), token=None
        )
        self.pipeline = Pipeline(
            state=State(instance),
            settings=settings,
            tools=registered_tools(),
            sessions=sessions,
            limiter=self.limiter,
            pool=self.worker,  # type: ignore[arg-type]
            engineless={},
            merge_health=lambda caller, project, body: body or b"{}",
            log=log,
            audit=lambda event, fields: None,
        )

    def call(self, tool: str, **args: Any) -> Any:
        """The envelope of one call."""
        result = asyncio.run(self.pipeline.call(self.session, tool, args))
        answer = msgspec.json.decode(result.text)
        assert answer["ok"] is not result.is_error
        return answer

    def error(self, tool: str, **args: Any) -> Any:
        """The first error of a call that must fail."""
        return self.call(tool, **args)["errors"][0]


def _drop(_logger: object, _level: str, _event: dict[str, Any]) -> Any:
    raise structlog.DropEvent


@pytest.fixture
def make_bench() -> Callable[..., Bench]:
    return lambda **settings: Bench(Settings(**settings))
