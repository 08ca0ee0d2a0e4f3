"""Caps, idling, unused sessions and ends of tokens, as clients meet them (spec 04 §9.4)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from maadd.auth.timestamps import format_timestamp
from maadd.sessions.sweeper import sweep_sessions
from maadd.transport.messages import notification

HELD = {"name": "maad_query", "arguments": {"docType": "note"}}
"""A call that lasts until it is withdrawn."""


def sweep(bench: Any) -> None:
    bench.sessions.sweep(bench.tokens.death_of)


async def opened(client: Any, **pins: str) -> Any:
    assert (await client.hello(**pins)).status_code == 200
    return client


async def bound(client: Any) -> Any:
    return await opened(client, **{"X-Maad-Pin-Project": "main"})


@contextlib.asynccontextmanager
async def busy(bench: Any, client: Any) -> AsyncIterator[None]:
    """The client has a request in flight, which it withdraws in the end."""
    asked = asyncio.create_task(client.post("tools/call", HELD))
    await bench.until(lambda: bench.sessions.get(client.session).in_flight)
    yield
    await client.notify("notifications/cancelled", {"requestId": client.number})
    assert (await asked).status_code == 202  # nothing more is said of it


async def test_one_session_too_many_costs_the_longest_inactive_its_place(open_front: Any) -> None:
    async with open_front() as bench, bench.wire() as client_of:
        bearers = [bench.issue("reader *").plaintext for _ in range(3)]
        sessions = []
        for number in range(128):
            sessions.append(await opened(client_of(bearers[number % 2])))
            bench.now += 1
        assert await sessions[0].ping() == 200
        await opened(client_of(bearers[2]))
        assert bench.closed == [(sessions[1].session, "capacity")]
        gone = await sessions[1].post("ping", {})
        assert (gone.status_code, gone.json()["errors"][0]["code"]) == (404, "SESSION_NOT_FOUND")
        # Answers look the same as for a session that never was.
        sessions[1].headers["Mcp-Session-Id"] = "never"
        assert (await sessions[1].post("ping", {})).content == gone.content
        # No room is left for more of a token than its share, which costs its own oldest.
        await opened(client_of(bearers[0]))
        assert bench.closed[1:] == [(sessions[2].session, "capacity")]
        assert [await one.ping() for one in (sessions[0], sessions[3])] == [200, 200]


async def test_a_token_at_its_share_pays_itself(open_front: Any) -> None:
    async with open_front(session_max=10, session_max_per_token=2) as bench, bench.wire() as of:
        other = await opened(of(bench.issue("reader *").plaintext))
        greedy = bench.issue("reader *").plaintext
        mine = [await opened(of(greedy)) for _ in range(5)]
        assert [await one.ping() for one in (other, *mine)] == [200, 404, 404, 404, 200, 200]
        assert {reason for _, reason in bench.closed} == {"capacity"}


async def test_busy_sessions_stay_and_open_streams_go_last(open_front: Any) -> None:
    async with open_front(session_max=3, session_max_per_token=3) as bench, bench.wire() as of:
        bearer = bench.issue("admin *").plaintext
        working = await bound(of(bearer))
        listening = await opened(of(bearer))
        async with busy(bench, working), listening.stream() as stream:
            quiet = await opened(of(bearer))
            also = await bound(of(bearer))
            assert bench.closed == [(quiet.session, "capacity")]
            async with busy(bench, also):
                last = await bound(of(bearer))
                assert bench.closed[1:] == [(listening.session, "capacity")]
                assert await stream.aread() == b""
                async with busy(bench, last):
                    refused = await of(bearer).hello()
                    error = refused.json()["errors"][0]
                    assert (refused.status_code, error["code"]) == (503, "OVERLOADED")
                    assert error["details"]["reason"] == "sessions"
                    assert error["details"]["retryAfterMs"] > 0
        # A request that has ended holds nothing back.
        await opened(of(bearer))
        assert len(bench.closed) == 3


async def test_idle_sessions_end_and_only_requests_are_activity(open_front: Any) -> None:
    async with open_front(session_idle_ms=100_000) as bench, bench.wire() as of:
        bearer = bench.issue("admin *").plaintext
        idle, active, hearing, working = [await bound(of(bearer)) for _ in range(4)]
        async with hearing.stream() as stream, busy(bench, working):
            bench.now += 99
            sweep(bench)
            assert bench.closed == []
            assert await active.ping() == 200
            told = bench.sessions.get(hearing.session).notices.offer(notification("x", {}))
            assert told
            bench.now += 1
            sweep(bench)
            ended = {(idle.session, "idle"), (hearing.session, "idle")}
            assert set(bench.closed) == ended
            assert b'"method":"x"' in await stream.aread()
            assert bench.logged("idle_sweep") == [
                {"level": "info", "event": "idle_sweep", "swept": 2, "remaining": 2}
            ]
            sweep(bench)
            assert len(bench.logged("idle_sweep")) == 1
        assert [await one.ping() for one in (idle, active, hearing, working)] == [
            404,
            200,
            404,
            200,
        ]


async def test_an_unbound_session_that_called_no_tool_lasts_two_minutes(open_front: Any) -> None:
    async with open_front() as bench, bench.wire() as client_of:
        bearer = bench.issue("admin *").plaintext
        silent, chatting, looking, pinned = (
            await opened(client_of(bearer)),
            await opened(client_of(bearer)),
            await opened(client_of(bearer)),
            await bound(client_of(bearer)),
        )
        async with silent.stream() as stream:
            await looking.data("maad_projects")
            bench.now += 119
            assert await chatting.ping() == 200
            assert (await chatting.post("tools/list", {})).status_code == 200
            sweep(bench)
            assert bench.closed == []
            bench.now += 1
            sweep(bench)
            assert await stream.aread() == b""
        assert set(bench.closed) == {(silent.session, "idle"), (chatting.session, "idle")}
        statuses = [await one.ping() for one in (silent, chatting, looking, pinned)]
        assert statuses == [404, 404, 200, 200]


# -- the moment at which a token expires -----------------------------------------------------


@contextlib.asynccontextmanager
async def swept(bench: Any) -> AsyncIterator[None]:
    """Sessions are swept as in a daemon: each minute, and when a token expires."""
    sweeping = asyncio.create_task(sweep_sessions(bench.sessions, bench.tokens.death_of))
    await asyncio.sleep(0)
    yield
    sweeping.cancel()


async def test_a_token_ends_with_its_last_moment_and_takes_its_streams_along(
    open_front: Any,
) -> None:
    async with open_front() as bench, bench.wire() as client_of, swept(bench):
        lasting = await opened(client_of(bench.issue("reader *").plaintext))
        late = bench.issue("reader *", expires_at="2099-01-01")
        await opened(client_of(late.plaintext))
        brief = bench.issue("reader *", expires_at=format_timestamp(time.time() + 0.4))
        client = await opened(client_of(brief.plaintext))
        async with client.stream() as stream:
            assert await stream.aread() == b""
        assert bench.closed == [(client.session, "auth")]
        (line,) = bench.logged("session_token_evicted")
        assert (line["token_id"], line["reason"]) == (brief.record.id, "expired")
        assert await client.ping() == 401
        assert bench.logged("auth_failure")[-1]["reason"] == "expired"
        refused = await client_of(brief.plaintext).hello()
        assert (refused.status_code, refused.json()["errors"][0]["code"]) == (401, "UNAUTHORIZED")
        assert await lasting.ping() == 200


async def test_an_expiry_that_is_brought_forward_counts_to_the_moment(open_front: Any) -> None:
    """An operator writes another time into the file; nobody waits for the next minute."""
    async with open_front() as bench, bench.wire() as client_of, swept(bench):
        written: dict[str, Any] = {}
        for name, expires in (("long", "2099-01-01"), ("never", None)):
            members = {} if expires is None else {"expires_at": expires}
            token = bench.issue("reader *", name=name, **members)
            written[name] = await opened(client_of(token.plaintext))
        path = Path(bench.tokens.path)
        soon = format_timestamp(time.time() + 0.4)
        text = path.read_text().replace('"2099-01-01T00:00:00.000Z"', f'"{soon}"')
        path.write_text(text.replace('name: "never"\n', f'name: "never"\n  expires_at: "{soon}"\n'))
        async with written["long"].stream() as first, written["never"].stream() as second:
            await bench.follower.reload()
            assert await first.aread() == await second.aread() == b""
        assert {reason for _, reason in bench.closed} == {"auth"}
        assert [await one.ping() for one in written.values()] == [401, 401]
