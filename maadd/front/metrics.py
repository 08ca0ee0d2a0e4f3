"""Serving the metrics beside the front, where they are asked for (spec 04 §9.9)."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from maadd.config.settings import Settings
from maadd.front.health import SessionCounts
from maadd.front.reload import ReloadCounts
from maadd.front.state import RunningFront
from maadd.ops.meter import Meter
from maadd.pool.pool import WorkerPool
from maadd.protocol.errors import MaadError
from maadd.sessions.table import SessionTable


@dataclass(frozen=True, slots=True)
class Observed:
    """What the metrics are read from; `calls_in_flight` is the pipeline's, `lines_lost` counts
    by channel what the logs could not take."""

    state: RunningFront
    meter: Meter
    sessions: SessionTable
    counts: SessionCounts
    pool: WorkerPool
    reloads: ReloadCounts
    calls_in_flight: Callable[[], int]
    lines_lost: Callable[[], dict[str, int]]


@asynccontextmanager
async def serving_metrics(
    settings: Settings,
    inherited: Sequence[socket.socket],
    observed: Observed,
    log: FilteringBoundLogger,
) -> AsyncIterator[None]:
    """Serve them inside, when the settings or the service manager name a place.

    A place that cannot be had refuses the start; a stdio server goes on without, since several
    of them share one environment. Nothing is imported for a front without metrics.
    """
    at = settings.metrics_address
    if at is None and not inherited:
        yield
        return
    from maadd.front.scrape import CONTENT_TYPE, Scrape
    from maadd.transport.metrics_http import MetricsServer

    server = MetricsServer(Scrape(observed).take, CONTENT_TYPE, log)
    try:
        await server.start(at, inherited)
    except MaadError as failure:
        if settings.transport != "stdio":
            raise
        log.warning("metrics_unavailable", code=failure.code, message=failure.message)
        yield
        return
    try:
        yield
    finally:
        await server.close()
