"""The sweeping task: tokens end to the moment, not at the next period (spec 04 §9.4)."""

from __future__ import annotations

import asyncio
import time

import structlog

from maadd.auth.timestamps import format_timestamp
from maadd.sessions.notices import NoticeQueue
from maadd.sessions.session import CloseReason
from maadd.sessions.sweeper import sweep_sessions
from maadd.sessions.table import SessionLimits, SessionTable


def test_a_session_ends_when_its_token_expires(make_token):
    async def scenario():
        ended: asyncio.Future[CloseReason] = asyncio.get_running_loop().create_future()
        table = SessionTable(
            SessionLimits(10, 10, 1800.0),
            structlog.get_logger(),
            on_close=[lambda _session, reason: ended.set_result(reason)],
        )
        expiry = time.time() + 0.2
        owner = make_token(expires_at=format_timestamp(expiry))
        sweeping = asyncio.create_task(
            sweep_sessions(table, lambda _token: "expired" if time.time() > expiry else None)
        )
        await asyncio.sleep(0)
        session = table.open("s", transport="http", notices=NoticeQueue(1), token=owner)
        session.notices.attach()
        assert await session.notices.take(10) is None
        assert await ended is CloseReason.AUTH
        sweeping.cancel()

    asyncio.run(scenario())
