"""Progress of a request as notifications ahead of its answer (MCP, spec 04 §6)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from maadd.pipeline.progress import ReportProgress
from maadd.transport.messages import Request, notification

Emit = Callable[[bytes], Awaitable[None]]
"""Sends one more message to the client before the answer of the request it belongs to."""


def progress_reporter(request: Request, emit: Emit | None) -> ReportProgress | None:
    """What reports the progress of `request`; None when nobody asked for it or nothing takes it."""
    token = request.progress_token
    if token is None or emit is None:
        return None

    async def report(done: float, total: float | None = None, text: str | None = None) -> None:
        params: dict[str, Any] = {"progressToken": token, "progress": done}
        if total is not None:
            params["total"] = total
        if text is not None:
            params["message"] = text
        await emit(notification("notifications/progress", params))

    return report
