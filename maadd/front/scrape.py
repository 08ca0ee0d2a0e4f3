"""The metrics of a front (spec 04 §9.9): taken on the loop, written as text beside it.

A scrape asks no worker and reads no index: all figures are the front's own counters and the
last heartbeats. Labels hold project and tool names, codes and states, never a token, a path or a
record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import msgspec
from prometheus_client import ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from maadd import __version__
from maadd.front.metrics import Observed
from maadd.ops.meter import BUCKETS_S, Latency
from maadd.pool.snapshot import WorkerGauges
from maadd.pool.supervisor import State

CONTENT_TYPE = CONTENT_TYPE_LATEST

_ABSENT = WorkerGauges(State.ABSENT.value, 0, 0)
_BOUNDS = [*(f"{bound:g}" for bound in BUCKETS_S), "+Inf"]


class Sample(msgspec.Struct, frozen=True):
    """Everything a scrape tells, at one moment."""

    successes: dict[tuple[str, str], int]
    errors: dict[tuple[str, str, str, str], int]
    of_project: dict[str, Latency]
    of_tool: dict[str, Latency]
    refused: dict[tuple[str, str], int]
    calls_in_flight: int
    workers: dict[str, WorkerGauges]
    idle_evictions: int
    sessions: dict[str, int]
    sessions_opened: int
    sessions_closed: dict[str, int]
    subscriptions: int
    reloads: dict[str, int]
    lines_lost: dict[str, int]
    draining: bool


class Scrape:
    """Takes samples of one front."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self._process = ProcessCollector(registry=None)

    def take(self) -> Callable[[], bytes]:
        """What writes the text of this moment; safe in any thread."""
        return partial(write_text, self.sample(), self._process)

    def sample(self) -> Sample:
        """This moment. Call on the loop."""
        seen = self._observed
        meter, projects = seen.meter, seen.state.instance.projects
        meter.keep(projects)
        workers = seen.pool.gauges()
        transports: Counter[str] = Counter()
        subscriptions = 0
        for session in seen.sessions:
            transports[session.transport] += 1
            subscriptions += (session.subscription is not None) + len(session.watched)
        return Sample(
            successes=meter.successes(),
            errors=dict(meter.errors),
            of_project={name: one.copy() for name, one in meter.of_project.items()},
            of_tool={name: one.copy() for name, one in meter.of_tool.items()},
            refused=dict(meter.refused),
            calls_in_flight=seen.calls_in_flight(),
            workers={name: workers.get(name, _ABSENT) for name in projects},
            idle_evictions=seen.pool.sweep_snapshot().evictions_total,
            sessions=dict(transports),
            sessions_opened=seen.counts.opened_total,
            sessions_closed=dict(meter.closed),
            subscriptions=subscriptions,
            reloads={"ok": seen.reloads.succeeded, "refused": seen.reloads.failed},
            lines_lost=seen.lines_lost(),
            draining=seen.state.draining,
        )


def write_text(sample: Sample, process: Collector) -> bytes:
    """The sample in the Prometheus text format, with the front's process figures."""
    return generate_latest(_Families([*families(sample), *process.collect()]))


def families(sample: Sample) -> Iterator[Metric]:
    """Every family of ours."""
    yield _gauge("maadd_build_info", "The version that runs.", "version", {__version__: 1})
    yield GaugeMetricFamily("maadd_draining", "1 while stopping.", int(sample.draining))
    yield from _calls(sample)
    yield from _workers(sample)
    yield _gauge("maadd_sessions", "Open sessions.", "transport", sample.sessions)
    yield CounterMetricFamily(
        "maadd_sessions_opened", "Sessions since the start.", sample.sessions_opened
    )
    yield _counter(
        "maadd_sessions_closed",
        "Sessions that ended; capacity means evicted.",
        ("reason",),
        (((reason,), number) for reason, number in sample.sessions_closed.items()),
    )
    yield GaugeMetricFamily(
        "maadd_subscriptions",
        "Subscriptions of sessions, and resources they watch.",
        sample.subscriptions,
    )
    yield _counter(
        "maadd_http_refused",
        "HTTP requests that reached no tool, by error code.",
        ("code", "reason"),
        sample.refused.items(),
    )
    yield _counter(
        "maadd_instance_reloads",
        "Reloads of the instance file.",
        ("outcome",),
        (((outcome,), number) for outcome, number in sample.reloads.items()),
    )
    yield _counter(
        "maadd_log_lines_lost",
        "Log lines that reached neither their file nor their reader.",
        ("channel",),
        (((channel,), number) for channel, number in sample.lines_lost.items()),
    )


def _calls(sample: Sample) -> Iterator[Metric]:
    calls: Counter[tuple[str, str, str]] = Counter()
    for (project, tool), number in sample.successes.items():
        calls[project, tool, "ok"] += number
    failures: Counter[tuple[str, str, str]] = Counter()
    for (project, tool, code, reason), number in sample.errors.items():
        calls[project, tool, "error"] += number
        failures[project, code, reason] += number
    yield _counter(
        "maadd_calls", "Answered tool calls.", ("project", "tool", "outcome"), calls.items()
    )
    yield _counter(
        "maadd_call_errors",
        "Tool calls that were answered with an error, by its code.",
        ("project", "code", "reason"),
        failures.items(),
    )
    yield _histogram(
        "maadd_project_call_seconds", "Time to answer a call.", "project", sample.of_project
    )
    yield _histogram("maadd_tool_call_seconds", "Time to answer a call.", "tool", sample.of_tool)
    yield GaugeMetricFamily(
        "maadd_calls_in_flight", "Calls being answered.", sample.calls_in_flight
    )


def _workers(sample: Sample) -> Iterator[Metric]:
    states = GaugeMetricFamily(
        "maadd_worker_state", "1 for the state the worker is in.", labels=("project", "state")
    )
    for project, worker in sample.workers.items():
        for state in State:
            states.add_metric((project, state.value), int(worker.state == state.value))
    yield states
    workers = sample.workers.items()
    yield _counter(
        "maadd_worker_restarts",
        "Deaths of the worker that were followed by a start.",
        ("project",),
        (((project,), worker.restarts) for project, worker in workers),
    )
    figures: tuple[tuple[str, str, Mapping[str, int | None]], ...] = (
        (
            "maadd_worker_calls_held",
            "Calls handed to the worker and not yet answered.",
            {project: worker.held for project, worker in workers},
        ),
        (
            "maadd_worker_queue_depth",
            "Calls that wait or run in the worker.",
            {project: worker.queue_depth for project, worker in workers},
        ),
        (
            "maadd_worker_memory_bytes",
            "Resident memory of the worker.",
            {project: worker.rss_bytes for project, worker in workers},
        ),
        (
            "maadd_pending_history_writes",
            "Writes that are on disk and not yet in Git.",
            {project: worker.pending_history for project, worker in workers},
        ),
        (
            "maadd_index_lag_files",
            "Changed files that the index does not show yet.",
            {project: worker.pending_changes for project, worker in workers},
        ),
    )
    for name, text, values in figures:
        yield _gauge(name, text, "project", values)
    yield CounterMetricFamily(
        "maadd_worker_evictions", "Idle workers that were closed.", sample.idle_evictions
    )


class _Families:
    """Finished families, in the form that the exposition asks for."""

    def __init__(self, made: list[Metric]) -> None:
        self._made = made

    def collect(self) -> list[Metric]:
        return self._made


def _gauge(name: str, text: str, label: str, values: Mapping[str, int | None]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=(label,))
    for key, value in values.items():
        if value is not None:
            family.add_metric((key,), value)
    return family


def _counter(
    name: str, text: str, labels: tuple[str, ...], values: Iterable[tuple[tuple[str, ...], int]]
) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


def _histogram(name: str, text: str, label: str, latencies: dict[str, Latency]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=(label,))
    for key, latency in latencies.items():
        seen = 0
        buckets: list[tuple[str, float]] = []
        for bound, number in zip(_BOUNDS, latency.buckets, strict=True):
            seen += number
            buckets.append((bound, seen))
        family.add_metric((key,), buckets, latency.total_s)
    return family
