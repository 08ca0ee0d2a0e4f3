"""The task that ends idle sessions and those of dead tokens in time (spec 04 §9.4)."""

from __future__ import annotations

import asyncio
import contextlib

from maadd.sessions.session import Session
from maadd.sessions.table import SessionTable, TokenStatus


async def sweep_sessions(table: SessionTable, status: TokenStatus) -> None:
    """Sweep `table` each period, and at the moment a token of a session expires; never returns."""
    opened = asyncio.Event()

    def expiry_may_be_nearer(session: Session) -> None:
        if session.token is not None and session.token.expires_at is not None:
            opened.set()

    table.add_open_hook(expiry_may_be_nearer)
    while True:
        delay = table.next_sweep_s()
        opened.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await opened.wait()
                continue
        table.sweep(status)
