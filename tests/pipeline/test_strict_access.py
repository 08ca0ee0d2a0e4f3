"""Access of a strict call, judged anew at each step of it (spec 05 §2)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec
import pytest

from maadd.auth.record import ProjectGrant, TokenRecord
from maadd.auth.timestamps import format_timestamp
from maadd.config.instance import Instance, ProjectConfig
from maadd.pipeline.strict import LiveAccess
from maadd.protocol.errors import MaadError
from maadd.protocol.messages import HistorySettings, Reply
from maadd.protocol.roles import Role
from maadd.protocol.tools import TOOLS
from maadd.sessions.notices import NoticeQueue
from maadd.sessions.session import Binding, BindingSource, CloseReason, Mode, Session
from maadd.sessions.stateless import StatelessCaller

HISTORY = HistorySettings("audit", "audit", "project")
TOKEN = TokenRecord(
    "tok-1", "a" * 64, Role.WRITER, (ProjectGrant("fleet"),), "2026-01-01T00:00:00.000Z"
)


class Registry:
    """The live tokens."""

    def __init__(self, *records: TokenRecord) -> None:
        self.records = {record.id: record for record in records}

    def find(self, token_id: str) -> TokenRecord | None:
        return self.records.get(token_id)


class Given:
    """A session bound to one project, a live instance and live tokens."""

    def __init__(self, tool: str = "maad_create_guarded", transport: str = "http") -> None:
        self.project = ProjectConfig("fleet", "/srv/fleet", Role.ADMIN, None, HISTORY)
        self.instance = Instance("i", "file", None, "/srv", {"fleet": self.project})
        self.tokens: Registry | None = Registry(TOKEN)
        self.session = Session(
            id="s",
            transport=transport,
            token=TOKEN,
            remote_addr=None,
            user_agent=None,
            notices=NoticeQueue(1),
            created_at=0,
            opened=0,
            last_activity=0,
            binding=Binding(Mode.SINGLE, ("fleet",), None, BindingSource.CLIENT_TOOL),
        )
        self.tool = tool

    def access(self) -> LiveAccess:
        return LiveAccess(self, self.tokens, self.session, TOOLS[self.tool], self.project)

    def token(self, **changed: object) -> None:
        assert self.tokens is not None
        self.tokens.records["tok-1"] = msgspec.structs.replace(TOKEN, **changed)

    def bind(self, mode: Mode, *projects: str, requested: Role | None = None) -> None:
        self.session.binding = Binding(mode, projects, requested, BindingSource.CLIENT_TOOL)

    def serve(self, *projects: ProjectConfig) -> None:
        served = {project.name: project for project in projects}
        self.instance = Instance("i", "file", None, "/srv", served)

    def drop_tokens(self) -> None:
        assert self.tokens is not None
        self.tokens.records.clear()


LOSSES: list[tuple[str, Callable[[Given], object]]] = [
    ("SESSION_CANCELLED", lambda g: setattr(g.session, "cancelled", True)),
    ("SESSION_CANCELLED", lambda g: setattr(g.session, "close_reason", CloseReason.AUTH)),
    ("PROJECT_NOT_WHITELISTED", lambda g: setattr(g.session, "binding", None)),
    ("PROJECT_NOT_WHITELISTED", lambda g: g.bind(Mode.SINGLE, "other")),
    ("PROJECT_NOT_WHITELISTED", lambda g: g.bind(Mode.MULTI, "fleet")),
    (
        "PROJECT_NOT_WHITELISTED",
        lambda g: g.serve(ProjectConfig("fleet", "/srv/moved", Role.ADMIN, None, HISTORY)),
    ),
    ("INSUFFICIENT_ROLE", lambda g: g.serve()),
    (
        "INSUFFICIENT_ROLE",
        lambda g: g.serve(ProjectConfig("fleet", "/srv/fleet", Role.READER, None, HISTORY)),
    ),
    ("INSUFFICIENT_ROLE", lambda g: g.bind(Mode.SINGLE, "fleet", requested=Role.READER)),
    ("TOKEN_UNKNOWN", Given.drop_tokens),
    ("TOKEN_UNKNOWN", lambda g: g.token(hash="b" * 64)),
    ("TOKEN_REVOKED", lambda g: g.token(revoked_at="2026-01-02T00:00:00.000Z")),
    ("TOKEN_EXPIRED", lambda g: g.token(expires_at=format_timestamp(time.time() - 1))),
    ("TOKEN_EXPIRED", lambda g: g.token(expires_at="whenever")),
    ("TOKEN_PROJECT_FORBIDDEN", lambda g: g.token(projects=(ProjectGrant("other"),))),
    ("INSUFFICIENT_ROLE", lambda g: g.token(role=Role.READER)),
]


def code_of(check: Callable[[], object]) -> str | None:
    try:
        check()
    except MaadError as failure:
        return failure.code
    return None


def test_unchanged_access_is_access() -> None:
    given = Given()
    given.access().check()
    given.token(expires_at=format_timestamp(time.time() + 60))
    given.access().check()


@pytest.mark.parametrize(("code", "lose"), LOSSES)
def test_each_loss_has_its_code(code: str, lose: Callable[[Given], object]) -> None:
    given = Given()
    access = given.access()
    access.check()
    lose(given)
    assert code_of(access.check) == code
    assert code_of(access.permit) == code


def test_the_first_loss_in_order_is_told() -> None:
    given = Given()
    access = given.access()
    for code, lose in reversed(LOSSES):
        lose(given)
        if code in ("SESSION_CANCELLED", "TOKEN_UNKNOWN", "TOKEN_REVOKED"):
            assert code_of(access.check) is not None
    assert code_of(access.check) == "SESSION_CANCELLED"


def test_a_reader_is_enough_for_a_strict_read() -> None:
    given = Given("maad_document_receipt")
    given.token(role=Role.READER)
    given.access().check()


def test_whoever_holds_the_pipe_of_stdio_needs_no_token() -> None:
    given = Given(transport="stdio")
    given.session.token = None
    given.access().check()
    given = Given(transport="http")
    given.session.token = None
    assert code_of(given.access().check) == "TOKEN_UNKNOWN"
    given = Given()
    given.tokens = None
    assert code_of(given.access().check) == "TOKEN_UNKNOWN"


def test_a_stateless_caller_is_judged_by_its_token() -> None:
    given = Given()
    spec = TOOLS["maad_create_guarded"]
    pinned = StatelessCaller(TOKEN, "fleet", Role.READER)
    for caller, code in ((StatelessCaller(TOKEN), None), (pinned, "INSUFFICIENT_ROLE")):
        access = LiveAccess(given, given.tokens, caller, spec, given.project)
        assert code_of(access.check) == code
    access = LiveAccess(given, given.tokens, StatelessCaller(TOKEN), spec, given.project)
    given.drop_tokens()
    assert code_of(access.check) == "TOKEN_UNKNOWN"


async def _reply(given: Given, lose: bool, failure: MaadError | None = None) -> Reply:
    if lose:
        given.drop_tokens()
    if failure is not None:
        raise failure
    return Reply("r", ok=True, body=b"{}")


def test_a_read_that_lost_access_gives_only_that_away() -> None:
    given = Given("maad_document_receipt")
    assert asyncio.run(given.access().guard(_reply(given, False))).ok
    late = MaadError("REQUEST_TIMEOUT", "too late")
    for failure in (None, late):
        given = Given("maad_document_receipt")
        access = given.access()
        with pytest.raises(MaadError) as lost:
            asyncio.run(access.guard(_reply(given, True, failure)))
        assert lost.value.code == "TOKEN_UNKNOWN"


def test_a_permitted_create_is_acknowledged_whatever_came_after() -> None:
    given = Given()
    access = given.access()
    access.permit()
    assert asyncio.run(access.guard(_reply(given, True))).ok
    unsure = MaadError("WORKER_LOST", "gone", {"writeOutcome": "unknown_reconcile"})
    with pytest.raises(MaadError) as told:
        asyncio.run(access.guard(_reply(given, True, unsure)))
    assert told.value is unsure
