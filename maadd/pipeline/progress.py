"""The progress of a long call on its way from the worker to the client (spec 04 §6, MCP)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType

from structlog.typing import FilteringBoundLogger

from maadd.protocol.messages import CallProgress

ReportProgress = Callable[[float, float | None, str | None], Awaitable[None]]
"""Tells the client how far a call is: done, total, text."""


class ProgressRelay:
    """Around a call: what is offered meanwhile goes to the client, only the latest when the
    client is slower than the worker. All of it is out before the block ends."""

    def __init__(self, report: ReportProgress, log: FilteringBoundLogger) -> None:
        self._report = report
        self._log = log
        self._latest: CallProgress | None = None
        self._sending: asyncio.Task[None] | None = None

    def offer(self, progress: CallProgress) -> None:
        """Take the next word of the worker."""
        self._latest = progress
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())

    async def __aenter__(self) -> ProgressRelay:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if self._sending is None:
            return
        if kind is not None:
            self._sending.cancel()
        await asyncio.wait((self._sending,))

    async def _send(self) -> None:
        try:
            while self._latest is not None:
                progress, self._latest = self._latest, None
                await self._report(progress.done, progress.total, progress.text)
        except Exception:
            # The call itself goes on: its answer shows what became of the client.
            self._log.exception("progress_not_sent")
