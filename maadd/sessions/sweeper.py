"""The task that ends idle sessions and those of dead tokens in time (spec 04 §9.4)."""

from __future__ import annotations

import asyncio
import contextlib

from maadd.sessions.table import SessionTable, TokenStatus


async def sweep_sessions(table: SessionTable, status: TokenStatus) -> None:
    """Sweep `table` each period, and at the moment a token of a session expires; never returns."""
    nearer = asyncio.Event()
    table.tell_of_expiries(nearer.set)
    while True:
        delay = table.next_sweep_s()
        nearer.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await nearer.wait()
                continue
        table.sweep(status)
