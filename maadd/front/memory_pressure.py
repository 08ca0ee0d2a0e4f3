"""Watching memory: when to say that it is short, and which workers to close (spec 04 §12.5)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import msgspec
from structlog.typing import FilteringBoundLogger

from maadd.auth.timestamps import format_timestamp
from maadd.config.instance import ProjectConfig
from maadd.ops.logs import log_engine
from maadd.ops.memory import MIB, CgroupMemory, resident_bytes
from maadd.pipeline.heavy import FreeMemory
from maadd.pool.pool import WorkerPool
from maadd.pool.snapshot import IdleWorker

ReadCgroup = Callable[[], CgroupMemory | None]


class PressureLimits(msgspec.Struct, frozen=True):
    """When memory counts as short (`ratio`, 0 to 1), and how often that is said."""

    interval_ms: int
    ratio: float
    cooldown_s: float


class MemorySample(msgspec.Struct, frozen=True):
    """MiB at one moment; None for what is not limited or not known.

    "Heap" is the worker that is closest to `MAAD_WORKER_MEMORY_MB`, `rss_mb` is this process.
    """

    heap_used_mb: float | None = None
    heap_cap_mb: float | None = None
    rss_mb: float | None = None
    cgroup_current_mb: float | None = None
    cgroup_max_mb: float | None = None

    @property
    def heap_ratio(self) -> float | None:
        """Share of the worker's limit in use."""
        return _ratio(self.heap_used_mb, self.heap_cap_mb)

    @property
    def cgroup_ratio(self) -> float | None:
        """Share of the control group's limit in use."""
        return _ratio(self.cgroup_current_mb, self.cgroup_max_mb)


class PressureSnapshot(msgspec.Struct, frozen=True, rename="camel"):
    """`runtime.memoryPressure` of health."""

    enabled: bool
    interval_ms: int
    threshold_ratio: float
    last_sample_at: str | None
    heap_used_mb: float | None
    heap_cap_mb: float | None
    heap_ratio: float | None
    ratio: float | None
    rss_mb: float | None
    external_mb: None
    array_buffers_mb: None
    cgroup_current_mb: float | None
    cgroup_max_mb: float | None
    cgroup_ratio: float | None
    in_pressure: bool
    heap_in_pressure: bool
    cgroup_in_pressure: bool
    last_pressure_at: str | None
    pressure_fires_total: int


class Alarm(msgspec.Struct, frozen=True):
    """Pressure that is to be told: `edge` at its begin, else because it lasts."""

    reason: str
    edge: bool


class PressureGauge:
    """What the samples amount to."""

    def __init__(self, limits: PressureLimits) -> None:
        self.limits = limits
        self.last = MemorySample()
        self._last_sample_at: str | None = None
        self._last_alarm: float | None = None
        self._last_alarm_at: str | None = None
        self._alarms = 0

    @property
    def heap_in_pressure(self) -> bool:
        """Whether a worker is close to its limit."""
        return _reaches(self.last.heap_ratio, self.limits.ratio)

    @property
    def cgroup_in_pressure(self) -> bool:
        """Whether everything together is close to the control group's."""
        return _reaches(self.last.cgroup_ratio, self.limits.ratio)

    def take(self, sample: MemorySample, *, now: float, wall: float) -> Alarm | None:
        """Take a sample at `now` (monotonic seconds) and `wall` (epoch seconds).

        An alarm on the rising edge, and again each time the cooldown is over while pressure
        lasts; a calm sample arms the edge again.
        """
        self.last = sample
        self._last_sample_at = format_timestamp(wall)
        short = [
            name
            for name, in_pressure in (
                ("heap", self.heap_in_pressure),
                ("cgroup", self.cgroup_in_pressure),
            )
            if in_pressure
        ]
        if not short:
            self._last_alarm = None
            return None
        edge = self._last_alarm is None
        if self._last_alarm is not None and now - self._last_alarm < self.limits.cooldown_s:
            return None
        self._last_alarm = now
        self._last_alarm_at = self._last_sample_at
        self._alarms += 1
        return Alarm("+".join(short), edge)

    def snapshot(self) -> PressureSnapshot:
        """The gauge as health shows it."""
        last = self.last
        heap_ratio = _rounded(last.heap_ratio, 3)
        return PressureSnapshot(
            enabled=self.limits.interval_ms > 0,
            interval_ms=self.limits.interval_ms,
            threshold_ratio=self.limits.ratio,
            last_sample_at=self._last_sample_at,
            heap_used_mb=_rounded(last.heap_used_mb, 1),
            heap_cap_mb=_rounded(last.heap_cap_mb, 1),
            heap_ratio=heap_ratio,
            ratio=heap_ratio,
            rss_mb=_rounded(last.rss_mb, 1),
            external_mb=None,
            array_buffers_mb=None,
            cgroup_current_mb=_rounded(last.cgroup_current_mb, 1),
            cgroup_max_mb=_rounded(last.cgroup_max_mb, 1),
            cgroup_ratio=_rounded(last.cgroup_ratio, 3),
            in_pressure=self.heap_in_pressure or self.cgroup_in_pressure,
            heap_in_pressure=self.heap_in_pressure,
            cgroup_in_pressure=self.cgroup_in_pressure,
            last_pressure_at=self._last_alarm_at,
            pressure_fires_total=self._alarms,
        )


def choose_evictions(gauge: PressureGauge, idle: Sequence[IdleWorker]) -> list[str]:
    """The projects whose idle workers (least recently used first) are to be closed.

    As many as bring the control group back below the ratio, and each that is itself close to
    a worker's limit.
    """
    sample, ratio = gauge.last, gauge.limits.ratio
    chosen: list[str] = []
    excess_mb = 0.0
    if gauge.cgroup_in_pressure:
        excess_mb = (sample.cgroup_current_mb or 0.0) - ratio * (sample.cgroup_max_mb or 0.0)
    for worker in idle:
        own = gauge.heap_in_pressure and _reaches(_ratio(worker.rss_mb, sample.heap_cap_mb), ratio)
        if own or (gauge.cgroup_in_pressure and excess_mb >= 0):
            chosen.append(worker.project)
            excess_mb -= worker.rss_mb
    return chosen


async def watch_memory(
    gauge: PressureGauge,
    pool: WorkerPool,
    read_cgroup: ReadCgroup,
    log: FilteringBoundLogger,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Sample for ever, once per interval; log alarms and close idle workers under pressure.

    `clock` is monotonic seconds; the cooldown between two alarms follows it.
    """
    while gauge.limits.interval_ms > 0:
        sample = take_sample(pool, read_cgroup)
        alarm = gauge.take(sample, now=clock(), wall=time.time())
        if alarm is not None:
            _log_alarm(gauge, alarm, log)
        chosen = choose_evictions(gauge, pool.idle_workers())
        if chosen:
            await pool.evict(chosen)
        await asyncio.sleep(gauge.limits.interval_ms / 1000)


def take_sample(pool: WorkerPool, read_cgroup: ReadCgroup) -> MemorySample:
    """The figures of this moment; those of workers by their last heartbeats."""
    workers = [s.rss_mb for s in pool.snapshots().values() if s.rss_mb is not None]
    cap = pool.memory_limit_mb
    own = resident_bytes()
    cgroup = read_cgroup()
    return MemorySample(
        heap_used_mb=max(workers, default=None),
        heap_cap_mb=None if cap is None else float(cap),
        rss_mb=None if own is None else own / MIB,
        cgroup_current_mb=None if cgroup is None else cgroup.current / MIB,
        cgroup_max_mb=None if cgroup is None or cgroup.limit is None else cgroup.limit / MIB,
    )


def free_memory(
    pool: WorkerPool, project: ProjectConfig, cgroup: CgroupMemory | None
) -> FreeMemory:
    """What the project's worker has left of its own limit, and all together of theirs."""
    around = None if cgroup is None or cgroup.limit is None else cgroup.limit / MIB
    limits = [limit for limit in (around, pool.memory_limit_mb) if limit is not None]
    used = pool.snapshot(project).rss_mb
    return FreeMemory(
        heap_mb=min(limits) - used if limits and used is not None else None,
        cgroup_mb=None if cgroup is None or around is None else around - cgroup.current / MIB,
    )


def _log_alarm(gauge: PressureGauge, alarm: Alarm, log: FilteringBoundLogger) -> None:
    shown = gauge.snapshot()
    log_engine(
        log,
        "degraded",
        "engine",
        "memory_pressure",
        f"memory is short ({alarm.reason}); idle workers are closed",
        reason=alarm.reason,
        heap_used_mb=shown.heap_used_mb,
        heap_cap_mb=shown.heap_cap_mb,
        heap_ratio=shown.heap_ratio,
        ratio=shown.ratio,
        rss_mb=shown.rss_mb,
        external_mb=None,
        array_buffers_mb=None,
        cgroup_current_mb=shown.cgroup_current_mb,
        cgroup_max_mb=shown.cgroup_max_mb,
        cgroup_ratio=shown.cgroup_ratio,
        threshold_ratio=shown.threshold_ratio,
        edge=alarm.edge,
    )


def _ratio(used: float | None, cap: float | None) -> float | None:
    return None if used is None or not cap else used / cap


def _reaches(ratio: float | None, threshold: float) -> bool:
    return ratio is not None and ratio >= threshold


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
