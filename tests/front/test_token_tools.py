"""The five token tools: checks, reach, sessions, audit, dry run (spec 04 §8)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from maadd.auth.record import TokenRecord, hash_plaintext
from maadd.auth.registry import TokenRegistry
from maadd.protocol.errors import MaadError
from maadd.protocol.validation import decode_arguments
from maadd.sessions.stateless import StatelessCaller
from maadd.tools.tokens import TokenTools, refuse_without_registry

ROOT = "admin *"


class Tools:
    """The tools on a bench, called as the caller whose token is given."""

    def __init__(self, bench: Any) -> None:
        self.bench = bench
        self._tools = TokenTools(bench.tokens, bench.follower, bench.settings, bench.audit)

    async def answer(self, token: TokenRecord | None, tool: str, session: Any = None, **args: Any):
        name = f"maad_{tool}"
        handler = self._tools.handlers()[name]
        caller = session
        if caller is None:
            caller = StatelessCaller(token) if token else self.bench.open(f"s{time.monotonic_ns()}")
        instance = self.bench.state.instance
        return await handler(caller, decode_arguments(name, args), instance, token)

    async def data(self, token: TokenRecord | None, tool: str, **args: Any) -> dict[str, Any]:
        answer = await self.answer(token, tool, **args)
        shown: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(answer.data))
        assert "hash" not in str(shown)
        return shown

    async def error(self, token: TokenRecord | None, tool: str, **args: Any) -> MaadError:
        with pytest.raises(MaadError) as caught:
            await self.answer(token, tool, **args)
        return caught.value


@pytest.fixture
def make_tools(make_bench: Any) -> Any:
    return lambda *projects, **settings: Tools(
        make_bench(*(projects or ("alpha", "beta:writer", "vault")), **settings)
    )


# -- issue -------------------------------------------------------------------------------


async def test_issue_shows_the_plaintext_once(make_tools: Any) -> None:
    tools = make_tools()
    data = await tools.data(
        None,
        "issue_token",
        role="writer",
        projects=[{"name": "alpha"}, {"name": "vault", "role": "reader"}],
        name="night",
        agentId="agt-1",
        userId="u-1",
        expiresAt="2099-01-01",
    )
    assert set(data) == {"plaintext", "record", "warning"}
    record = data["record"]
    assert record.pop("id").startswith("tok-")
    assert record.pop("createdAt")
    assert record == {
        "role": "writer",
        "projects": [{"name": "alpha"}, {"name": "vault", "role": "reader"}],
        "name": "night",
        "agentId": "agt-1",
        "userId": "u-1",
        "expiresAt": "2099-01-01T00:00:00.000Z",
    }
    (stored,) = tools.bench.tokens.records()
    assert stored.hash == hash_plaintext(data["plaintext"])
    assert data["plaintext"] not in str(tools.bench.audited)


async def test_a_token_without_identity_is_warned_of(make_tools: Any) -> None:
    tools = make_tools()
    answer = await tools.answer(None, "issue_token", role="reader", projects=[{"name": "*"}])
    assert [warning["code"] for warning in answer.meta["warnings"]] == ["TOKEN_IDENTITY_REQUIRED"]
    named = {"role": "reader", "projects": [{"name": "*"}], "agentId": "a"}
    assert (await tools.answer(None, "issue_token", **named)).meta is None


GOOD: dict[str, Any] = {"role": "reader", "projects": [{"name": "alpha"}], "agentId": "a"}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"projects": []}, "INVALID_ARGS"),
        ({"projects": [{"name": "alpha"}, {"name": "alpha"}]}, "INVALID_ARGS"),
        ({"projects": [{"name": "nowhere"}]}, "TOKEN_PROJECT_UNKNOWN"),
        ({"projects": [{"name": "alpha", "role": "writer"}]}, "TOKEN_ROLE_ABOVE_GLOBAL"),
        (
            {"role": "admin", "projects": [{"name": "beta", "role": "admin"}]},
            "ROLE_UPGRADE_DENIED",
        ),
        ({"role": "admin", "projects": [{"name": "beta"}]}, None),
        ({"expiresAt": "soon"}, "INVALID_ARGS"),
        ({"expiresAt": "2020-01-01"}, "INVALID_ARGS"),
        ({"role": "boss"}, "INVALID_ARGS"),
        ({"projects": ["alpha"]}, "INVALID_ARGS"),
        ({"agentId": "two\nlines"}, "INVALID_ARGS"),
    ],
)
async def test_what_may_be_issued(
    make_tools: Any, change: dict[str, Any], code: str | None
) -> None:
    tools = make_tools()
    args = {**GOOD, **change}
    if code is None:
        assert (await tools.data(None, "issue_token", **args))["plaintext"]
        return
    assert (await tools.error(None, "issue_token", **args)).code == code
    assert tools.bench.tokens.records() == ()


async def test_the_earlier_rule_decides(make_tools: Any) -> None:
    tools = make_tools(token_identity_required=True)
    args = {
        "role": "reader",
        "projects": [{"name": "nowhere", "role": "admin"}],
        "expiresAt": "2020-01-01",
    }
    assert (await tools.error(None, "issue_token", **args)).code == "TOKEN_PROJECT_UNKNOWN"
    args["projects"] = [{"name": "beta", "role": "admin"}]
    assert (await tools.error(None, "issue_token", **args)).code == "TOKEN_ROLE_ABOVE_GLOBAL"
    args["role"] = "admin"
    assert (await tools.error(None, "issue_token", **args)).code == "ROLE_UPGRADE_DENIED"
    args["projects"] = [{"name": "beta"}]
    assert (await tools.error(None, "issue_token", **args)).code == "INVALID_ARGS"
    del args["expiresAt"]
    assert (await tools.error(None, "issue_token", **args)).code == "TOKEN_IDENTITY_REQUIRED"


async def test_a_caller_hands_out_no_more_than_it_has(make_tools: Any) -> None:
    tools = make_tools()
    caller = tools.bench.issue("admin alpha,vault:writer")
    everything = {**GOOD, "projects": [{"name": "*"}]}
    error = await tools.error(caller, "issue_token", **everything)
    assert error.code == "TOKEN_PROJECT_FORBIDDEN"
    assert error.details == {"project": "*", "requested": "reader", "allowed": None}
    too_high = {**GOOD, "role": "admin", "projects": [{"name": "vault"}]}
    error = await tools.error(caller, "issue_token", **too_high)
    assert error.code == "ROLE_UPGRADE_DENIED"
    assert error.details == {"project": "vault", "requested": "admin", "allowed": "writer"}
    assert (await tools.data(caller, "issue_token", **GOOD))["record"]["role"] == "reader"


async def test_a_caller_hands_out_no_more_time_than_it_has(make_tools: Any) -> None:
    tools = make_tools()
    caller = tools.bench.issue(ROOT, expires_at="2098-01-01")
    error = await tools.error(caller, "issue_token", **GOOD, expiresAt="2099-01-01")
    assert error.code == "ROLE_UPGRADE_DENIED"
    assert error.details["field"] == "expiresAt"
    assert (await tools.error(caller, "issue_token", **GOOD)).code == "ROLE_UPGRADE_DENIED"
    assert await tools.data(caller, "issue_token", **GOOD, expiresAt="2097-01-01")


# -- revoke and rotate -------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["revoke_token", "rotate_token"])
async def test_the_sessions_of_a_dead_token_end_but_for_the_callers(
    make_tools: Any, tool: str
) -> None:
    tools = make_tools()
    own, other = tools.bench.issue(ROOT), tools.bench.issue(ROOT)
    mine = tools.bench.open("mine", "alpha", token=own)
    tools.bench.open("mine too", "alpha", token=own)
    tools.bench.open("other", "alpha", token=other)
    await tools.answer(own, tool, session=mine, id=own.id)
    assert tools.bench.closed == [("mine too", "auth")]
    tools.bench.sessions.sweep(tools.bench.tokens.death_of)
    assert tools.bench.closed == [("mine too", "auth"), ("mine", "auth")]


async def test_rotate_answers_the_new_token(make_tools: Any) -> None:
    tools = make_tools()
    old = tools.bench.issue("writer alpha", agent_id="a")
    data = await tools.data(None, "rotate_token", id=old.id)
    assert set(data) == {"plaintext", "record", "warning"}
    assert data["record"]["id"] != old.id
    assert data["record"]["agentId"] == "a"
    assert tools.bench.tokens.find(old.id).revoked_at is not None


async def test_revoke_keeps_the_first_time(make_tools: Any) -> None:
    tools = make_tools()
    tools.bench.issue(ROOT)
    victim = tools.bench.issue(ROOT)
    first = await tools.data(None, "revoke_token", id=victim.id)
    assert first == await tools.data(None, "revoke_token", id=victim.id)
    assert first["record"]["revokedAt"]
    assert len(tools.bench.audited) == 1


@pytest.mark.parametrize("tool", ["revoke_token", "rotate_token", "show_token"])
async def test_out_of_reach_is_unknown_to_the_letter(make_tools: Any, tool: str) -> None:
    tools = make_tools()
    root, caller = tools.bench.issue(ROOT), tools.bench.issue("admin alpha")
    hidden = await tools.error(caller, tool, id=root.id)
    absent = await tools.error(caller, tool, id="tok-000000000000")
    assert hidden.wire() == absent.wire()
    assert hidden.code == "TOKEN_NOT_FOUND"
    assert (await tools.error(None, tool, id="tok-000000000000")).wire() == absent.wire()
    assert await tools.data(caller, tool, id=caller.id)


async def test_the_last_administrator_of_everything_stays(make_tools: Any) -> None:
    tools = make_tools()
    first, second = tools.bench.issue(ROOT), tools.bench.issue(ROOT)
    await tools.data(first, "revoke_token", id=second.id)
    tools.bench.issue("admin alpha,beta,vault")
    for caller in (first, None):
        error = await tools.error(caller, "revoke_token", id=first.id)
        assert error.code == "LAST_ADMIN_TOKEN"
    assert await tools.data(first, "rotate_token", id=first.id)


@pytest.mark.parametrize(
    ("state", "code"), [("revoked", "TOKEN_REVOKED"), ("expired", "TOKEN_EXPIRED")]
)
async def test_a_dead_token_is_not_rotated(make_tools: Any, state: str, code: str) -> None:
    tools = make_tools()
    record = tools.bench.issue(ROOT)
    _make_dead(tools.bench, record, state)
    assert (await tools.error(None, "rotate_token", id=record.id)).code == code


@pytest.mark.parametrize(
    ("state", "code"),
    [("revoked", "TOKEN_REVOKED"), ("expired", "TOKEN_EXPIRED"), ("gone", "TOKEN_UNKNOWN")],
)
@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("issue_token", GOOD),
        ("revoke_token", {"id": "tok-1"}),
        ("rotate_token", {"id": "tok-1"}),
        ("list_tokens", {}),
        ("show_token", {"id": "tok-1"}),
    ],
)
async def test_a_caller_whose_token_died_elsewhere_gets_nothing(
    make_tools: Any, state: str, code: str, tool: str, args: dict[str, Any]
) -> None:
    tools = make_tools()
    caller = tools.bench.issue(ROOT)
    _make_dead(tools.bench, caller, state)
    assert (await tools.error(caller, tool, **args)).code == code


# -- list and show -----------------------------------------------------------------------


async def test_the_list_shows_what_the_caller_reaches(make_tools: Any) -> None:
    tools = make_tools()
    root, caller = tools.bench.issue(ROOT), tools.bench.issue("admin alpha")
    fits, revoked = tools.bench.issue("reader alpha"), tools.bench.issue("writer alpha")
    tools.bench.tokens.revoke(revoked.id)
    listed = await tools.data(caller, "list_tokens")
    assert [record["id"] for record in listed["tokens"]] == [caller.id, fits.id]
    assert (listed["total"], listed["activeCount"]) == (3, 2)
    listed = await tools.data(caller, "list_tokens", includeRevoked=True)
    assert [record["id"] for record in listed["tokens"]] == [caller.id, fits.id, revoked.id]
    everything = await tools.data(None, "list_tokens")
    assert everything["tokens"][0]["id"] == root.id
    assert (everything["total"], everything["activeCount"]) == (4, 3)


async def test_expired_tokens_are_always_listed(make_tools: Any) -> None:
    tools = make_tools()
    record = tools.bench.issue(ROOT)
    _make_dead(tools.bench, record, "expired")
    listed = await tools.data(None, "list_tokens")
    assert [shown["id"] for shown in listed["tokens"]] == [record.id]
    assert (listed["total"], listed["activeCount"]) == (1, 0)


async def test_list_and_show_know_what_another_process_did(make_tools: Any) -> None:
    tools = make_tools()
    record = tools.bench.issue(ROOT)
    other = TokenRegistry.load(tools.bench.tokens.path)
    fresh = other.rotate(record.id).record
    assert (await tools.data(None, "show_token", id=fresh.id))["record"]["id"] == fresh.id
    assert (await tools.data(None, "list_tokens"))["activeCount"] == 1


# -- audit, dry run, no registry ---------------------------------------------------------


async def test_every_change_is_audited_with_its_actor(make_tools: Any) -> None:
    tools = make_tools()
    caller = tools.bench.issue(ROOT)
    session = tools.bench.open("s1", "alpha", token=caller)
    issued = await tools.answer(caller, "issue_token", session=session, **GOOD)
    rotated = await tools.answer(
        caller, "rotate_token", session=session, id=issued.data["record"]["id"]
    )
    await tools.answer(caller, "revoke_token", session=session, id=rotated.data["record"]["id"])
    first, second = issued.data["record"]["id"], rotated.data["record"]["id"]
    actor = {"session_id": "s1", "actor_token_id": caller.id, "origin": "tool"}
    assert tools.bench.audited == [
        {"event": "token_issued", "token_id": first, **actor},
        {"event": "token_rotated", "token_id": first, "new_token_id": second, **actor},
        {"event": "token_revoked", "token_id": second, **actor},
    ]


async def test_a_server_in_dry_run_mode_changes_no_token(make_tools: Any) -> None:
    tools = make_tools(dry_run=True)
    first, second = tools.bench.issue(ROOT), tools.bench.issue(ROOT)
    written = Path(tools.bench.tokens.path).read_bytes()
    for tool, args in (
        ("issue_token", GOOD),
        ("revoke_token", {"id": first.id}),
        ("rotate_token", {"id": second.id}),
    ):
        answer = await tools.answer(None, tool, **args)
        assert (answer.rehearsed, answer.data) == (True, None)
    assert Path(tools.bench.tokens.path).read_bytes() == written
    assert tools.bench.audited == []
    assert tools.bench.closed == []
    error = await tools.error(None, "revoke_token", id="tok-000000000000")
    assert error.code == "TOKEN_NOT_FOUND"
    assert (await tools.data(None, "list_tokens"))["total"] == 2


async def test_without_a_registry_there_is_nothing_to_manage(make_bench: Any) -> None:
    bench = make_bench()
    with pytest.raises(MaadError) as caught:
        await refuse_without_registry(bench.open("s"), None, bench.state.instance, None)
    assert caught.value.code == "TOKENS_FILE_MISSING"


def _make_dead(bench: Any, record: TokenRecord, state: str) -> None:
    """Edit the file, as another process would."""
    path = Path(bench.tokens.path)
    if state == "revoked":
        TokenRegistry.load(str(path)).revoke(record.id)
    elif state == "expired":
        # The record is the last one.
        path.write_text(f'{path.read_text()}  expires_at: "2020-01-01T00:00:00.000Z"\n')
    else:
        path.write_text("tokens: []\n")
