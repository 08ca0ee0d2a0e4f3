"""A front for the length of a block, and the rooms of one that has no workers:
an instance on disk, its tokens, sessions and pool, and what they log and audit."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from maadd.auth.issue import TokenSpec, parse_grants
from maadd.auth.record import TokenRecord
from maadd.auth.registry import TokenRegistry
from maadd.config.instance import load_instance, synthesize_instance
from maadd.config.settings import Settings
from maadd.front.reload import Reloader
from maadd.front.state import RunningFront
from maadd.front.token_follower import TokenFollower
from maadd.ops.notify import ServiceNotifier
from maadd.pool.policy import PoolPolicy
from maadd.pool.pool import WorkerPool
from maadd.pool.spawn import Spawner
from maadd.protocol.roles import Role, parse_role
from maadd.sessions.notices import NoticeQueue
from maadd.sessions.session import Binding, BindingSource, Mode, Session
from maadd.sessions.table import SessionLimits, SessionTable

# Worker processes find the test engine by the path they inherit.
sys.path.insert(0, str(Path(__file__).parent))
# Behind our own: the client that the tests of whole daemons use.
sys.path.append(str(Path(__file__).parents[1] / "system"))

from front_bench import opened_front
from threaded_front import ThreadedFront


class Bench:
    """Everything of a front but its transports and workers. Make it inside the event loop."""

    def __init__(self, folder: Path, log_into: Any, *projects: str, **settings: Any) -> None:
        self.folder = folder
        self.settings = Settings(**settings)
        self.events: list[dict[str, Any]] = []
        self.audited: list[dict[str, Any]] = []
        self.closed: list[tuple[str, str]] = []
        self.log = log_into(self.events)
        self.path = folder / "instance.yaml"
        self.declare(*projects)
        if projects:
            instance = load_instance(str(self.path), self.settings)
        else:
            instance = synthesize_instance(str(folder), Role.ADMIN, self.settings)
        self.state = RunningFront(instance)
        self.sessions = SessionTable(
            SessionLimits(100, 100, 1800.0),
            self.log,
            on_close=[lambda session, reason: self.closed.append((session.id, str(reason)))],
        )
        self.tokens = TokenRegistry.load(instance.tokens_path)
        self.follower = self.follow()
        self.pool = WorkerPool(
            spawner=Spawner(str(folder)),
            endpoint="ipc:///nowhere",
            control_endpoint=None,
            settings=self.settings.worker(),
            policy=PoolPolicy(),
            on_event=lambda project, event: None,
            log=self.log,
        )
        self.reloader = Reloader(
            state=self.state,
            settings=self.settings,
            sessions=self.sessions,
            pool=self.pool,
            follower=self.follower if projects else None,
            log=self.log,
            audit=self.audit,
            notifier=ServiceNotifier(None, None),
            on_change=lambda: None,
        )

    def declare(self, *projects: str, name: str = "office") -> None:
        """Write the instance file; a project is `name`, `name:role` or `name:role:more yaml`."""
        lines = [f"name: {name}", "projects:"]
        for text in projects:
            project, role, more = (*text.split(":", 2), "", "")[:3]
            (self.folder / project).mkdir(exist_ok=True)
            members = f"name: {project}, path: {self.folder / project}, role: {role or 'admin'}"
            lines.append(f"  - {{{members}{', ' + more if more else ''}}}")
        self.path.write_text("\n".join(lines) + "\n")

    def follow(self, *, poll_s: float = 0, watch: bool = False) -> TokenFollower:
        return TokenFollower(
            self.tokens, self.sessions, self.log, self.audit, poll_s=poll_s, watch=watch
        )

    def audit(self, event: str, fields: dict[str, Any]) -> None:
        self.audited.append({"event": event, **fields})

    def issue(self, text: str, **members: str) -> TokenRecord:
        """`admin *,vault:reader`: role and grants."""
        role, grants = text.split(" ")
        parsed = parse_role(role)
        assert parsed is not None
        return self.tokens.issue(TokenSpec(parsed, parse_grants(grants), **members)).record

    def open(
        self, session_id: str, *projects: str, token: TokenRecord | None = None, multi: bool = False
    ) -> Session:
        """A session bound to these projects."""
        binding = None
        if projects:
            mode = Mode.MULTI if multi or len(projects) > 1 else Mode.SINGLE
            binding = Binding(mode, projects, None, BindingSource.CLIENT_TOOL)
        return self.sessions.open(
            session_id, transport="http", notices=NoticeQueue(4), token=token, binding=binding
        )

    def logged(self, name: str) -> list[dict[str, Any]]:
        """The lines of that name."""
        return [event for event in self.events if event["event"] == name]


@pytest.fixture
def make_bench(tmp_path: Path, log_into: Any) -> Callable[..., Bench]:
    """`make_bench("alpha", "beta:writer", tokens_poll_ms=100)`."""
    return partial(Bench, tmp_path, log_into)


@pytest.fixture
def open_front(
    tmp_path: Path, log_into: Any
) -> Iterator[Callable[..., contextlib.AbstractAsyncContextManager[Any]]]:
    """`async with open_front() as bench`, or with roles and settings."""
    runtime = tempfile.mkdtemp(prefix="maadd-test-")
    yield partial(opened_front, tmp_path, runtime, log_into)
    shutil.rmtree(runtime)


@pytest.fixture(scope="module")
def all_fronts(tmp_path_factory: pytest.TempPathFactory, log_into: Any) -> Iterator[ThreadedFront]:
    runtime = tempfile.mkdtemp(prefix="maadd-test-")
    folder = tmp_path_factory.mktemp("fronts")
    fronts = ThreadedFront(
        folder, runtime, log_into, "main", "other", "slow", "mute", "dying", "broken"
    )
    yield fronts
    fronts.close()
    shutil.rmtree(runtime)


@pytest.fixture
def fronts(all_fronts: ThreadedFront) -> Iterator[ThreadedFront]:
    """`fronts.serve(rl_writes_per_sec=2)`: listening fronts over workers that hold calls."""
    yield all_fronts
    all_fronts.end_test()
