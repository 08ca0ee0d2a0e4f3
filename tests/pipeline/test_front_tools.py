"""Tools that the front answers itself, and which tools are listed (spec 04 §5.2, §6)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from maadd.auth.record import ProjectGrant, TokenRecord
from maadd.pipeline.envelope import FrontAnswer
from maadd.protocol.roles import Role
from maadd.protocol.tools import TOOLS
from maadd.sessions.stateless import StatelessCaller


def token(role: Role, *projects: str) -> TokenRecord:
    grants = tuple(ProjectGrant(name) for name in projects)
    return TokenRecord("tok-1", "0" * 64, role, grants, "2026-01-01T00:00:00.000Z")


class Handler:
    """Answers when it is told to."""

    def __init__(self, bench: Any, tool: str) -> None:
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.ended = False
        bench.engineless[tool] = self.answer

    async def answer(self, *_: Any) -> dict[str, Any]:
        self.begun.set()
        await self.go_on.wait()
        self.ended = True
        return {"done": True}


def test_an_answer_may_carry_metadata(make_bench: Any) -> None:
    bench = make_bench()
    warnings = [{"code": "X", "message": "y"}]
    bench.engineless["maad_issue_token"] = lambda *_: FrontAnswer({"a": 1}, {"warnings": warnings})
    answer = bench.call("maad_issue_token", role="reader", projects=[{"name": "*"}])
    assert answer == {"ok": True, "data": {"a": 1}, "_meta": {"warnings": warnings}}


def test_a_rehearsed_change_answers_in_the_shape_of_a_dry_run(make_bench: Any) -> None:
    bench = make_bench(provenance="on")
    bench.engineless["maad_revoke_token"] = lambda *_: FrontAnswer(None, rehearsed=True)
    assert list(bench.call("maad_revoke_token", id="tok-9", _trace="x").items()) == [
        ("ok", True),
        ("dryRun", True),
        ("tool", "maad_revoke_token"),
        ("wouldExecute", {"id": "tok-9"}),
        ("_source", "maad_revoke_token"),
    ]


async def test_what_was_begun_goes_on_when_its_caller_leaves(make_bench: Any) -> None:
    bench = make_bench(rl_concurrent=1)
    handler = Handler(bench, "maad_instance_reload")
    call = asyncio.create_task(bench.ask(bench.session, "maad_instance_reload"))
    await handler.begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert bench.pipeline.in_flight == 1
    refused = await bench.ask(bench.session, "maad_instance_reload")
    assert refused["errors"][0]["code"] == "RATE_LIMITED"
    handler.go_on.set()
    while bench.pipeline.in_flight:
        await asyncio.sleep(0)
    assert handler.ended
    assert (await bench.ask(bench.session, "maad_instance_reload"))["ok"]


@pytest.mark.parametrize(
    ("tool", "outcome"),
    [("maad_instance_reload", {"writeOutcome": "unknown_reconcile"}), ("maad_list_tokens", {})],
)
async def test_the_request_timeout_holds_here_too(
    make_bench: Any, tool: str, outcome: dict[str, str]
) -> None:
    bench = make_bench(request_timeout_ms=20)
    handler = Handler(bench, tool)
    (error,) = (await bench.ask(bench.session, tool))["errors"]
    assert error["code"] == "REQUEST_TIMEOUT"
    assert error["details"] == {"tool": tool, "limitMs": 20, **outcome}
    handler.go_on.set()
    while bench.pipeline.in_flight:
        await asyncio.sleep(0)
    assert handler.ended


@pytest.mark.parametrize(
    ("tool", "code", "details"),
    [
        (
            "maad_instance_reload",
            "WORKER_LOST",
            {"tool": "maad_instance_reload", "writeOutcome": "unknown_reconcile"},
        ),
        ("maad_list_tokens", "SHUTTING_DOWN", None),
    ],
)
async def test_a_server_that_waits_no_longer_says_so(
    make_bench: Any, tool: str, code: str, details: dict[str, str] | None
) -> None:
    bench = make_bench()
    handler = Handler(bench, tool)
    call = asyncio.create_task(bench.ask(bench.session, tool))
    await handler.begun.wait()
    bench.pipeline.abandon()
    (error,) = (await call)["errors"]
    assert (error["code"], error.get("details")) == (code, details)
    handler.go_on.set()


async def test_a_failure_of_a_handler_is_an_envelope(make_bench: Any) -> None:
    bench = make_bench()

    async def broken(*_: Any) -> dict[str, Any]:
        raise RuntimeError("a secret text")

    bench.engineless["maad_list_tokens"] = broken
    (error,) = (await bench.ask(bench.session, "maad_list_tokens"))["errors"]
    assert error["code"] == "INTERNAL"
    assert "secret" not in error["message"]


def test_a_single_project_binds_itself_for_tools_of_the_instance(make_bench: Any) -> None:
    bench = make_bench()
    bench.engineless["maad_list_tokens"] = lambda *_: {"tokens": []}
    assert bench.session.binding is None
    assert bench.call("maad_list_tokens")["ok"]


async def test_a_token_without_any_project_is_no_admin_everywhere(make_bench: Any) -> None:
    bench = make_bench()
    bench.engineless["maad_list_tokens"] = lambda *_: {"tokens": []}
    for projects, code in (("gone", "TOKEN_PROJECT_FORBIDDEN"), ("fleet", None)):
        caller = StatelessCaller(token(Role.ADMIN, projects))
        result = await bench.pipeline.call(caller, "maad_list_tokens", {})
        errors = msgspec.json.decode(result.text).get("errors")
        assert (errors and errors[0]["code"]) == code


def listed(bench: Any, caller: Any) -> set[str]:
    return {spec.name for spec in bench.pipeline.listed_tools(caller)}


def available(*roles: Role | None) -> set[str]:
    return {name for name, spec in TOOLS.items() if spec.available and spec.min_role in roles}


@pytest.mark.parametrize(
    ("role", "projects", "roles"),
    [
        (Role.ADMIN, ("*",), (None, Role.READER, Role.WRITER, Role.ADMIN)),
        (Role.WRITER, ("fleet",), (None, Role.READER, Role.WRITER)),
        (Role.READER, ("fleet",), (None, Role.READER)),
        (Role.ADMIN, ("gone",), (None,)),
    ],
)
def test_the_listing_follows_the_reach_of_the_token(
    make_bench: Any, role: Role, projects: tuple[str, ...], roles: tuple[Role | None, ...]
) -> None:
    bench = make_bench(filter_tools=True)
    owner = token(role, *projects)
    assert listed(bench, bench.open("s2", owner)) == available(*roles)
    assert listed(bench, StatelessCaller(owner)) == available(*roles)


def test_the_listing_never_follows_the_binding(make_bench: Any) -> None:
    bench = make_bench(filter_tools=True)
    everything = listed(bench, bench.session)
    bench.session.binding = bench.lowered_binding()
    assert listed(bench, bench.session) == everything


def test_unless_it_is_asked_for_everybody_sees_every_tool(make_bench: Any) -> None:
    bench = make_bench()
    caller = StatelessCaller(token(Role.READER, "gone"))
    assert listed(bench, caller) == available(None, *Role)
