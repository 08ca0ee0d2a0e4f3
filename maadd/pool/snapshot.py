"""What health shows of the workers (spec 03 §6.3)."""

from __future__ import annotations

import datetime

import msgspec

from maadd.protocol.errors import WireError


class WorkerExit(msgspec.Struct, frozen=True):
    """How a worker process ended: when (ISO 8601, UTC), and exit code or signal name."""

    at: str
    code: int | None
    signal: str | None


class WorkerSnapshot(msgspec.Struct, frozen=True, rename="camel"):
    """The `worker` block of a project. `state`: absent, starting, ready, draining, backoff,
    failed. Times are ISO 8601 in UTC, `rss_mb` is in MiB."""

    pid: int | None
    state: str
    started_at: str | None
    restarts: int
    last_heartbeat_at: str | None
    rss_mb: float | None
    queue_depth: int
    last_error: WireError | None
    last_exit: WorkerExit | None


class WorkerGauges(msgspec.Struct, frozen=True):
    """What the metrics show of a project's worker: its figures are those of its last heartbeat,
    None before the first and without a worker.

    `restarts` counts starts after a death; `held` the calls that the front handed over and that
    are not answered.
    """

    state: str
    restarts: int
    held: int
    rss_bytes: int | None = None
    queue_depth: int | None = None
    pending_history: int | None = None
    pending_changes: int | None = None


class IdleWorker(msgspec.Struct, frozen=True):
    """A worker without a call, and what closing it would free in MiB (0 before it said so)."""

    project: str
    rss_mb: float


class SweepSnapshot(msgspec.Struct, frozen=True, rename="camel"):
    """Counters of the sweep that closes idle workers (spec 04 §13)."""

    evictions_total: int = 0
    last_eviction_at: str | None = None
    last_eviction_projects: tuple[str, ...] = ()
    sweeps_run: int = 0
    last_sweep_at: str | None = None


def now_text() -> str:
    """The time of day as health shows it."""
    now = datetime.datetime.now(datetime.UTC)
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
