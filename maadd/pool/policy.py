"""The numbers that supervision follows (spec 04 §13, §15; defaults of spec 07)."""

from __future__ import annotations

import msgspec


class RestartLimits(msgspec.Struct, frozen=True):
    """When a worker that died is started again, and when its project counts as failed."""

    first_delay_s: float = 0.1
    max_delay_s: float = 30.0
    jitter: float = 0.2
    """Share of the delay by which it varies up and down, so that restarts spread."""
    healthy_s: float = 60.0
    """A worker that was ready this long makes its past forgotten."""
    window_s: float = 60.0
    max_deaths: int = 5
    """Deaths within the window that make the project failed."""


class PoolPolicy(msgspec.Struct, frozen=True):
    """Limits and waits of the pool; times in seconds."""

    worker_queue: int = 256
    """Calls that one worker may hold."""
    worker_max: int = 32
    memory_limit_mb: int | None = None
    """A worker above it is drained and replaced."""
    idle_timeout_s: float = 1800.0
    """An unused worker closes after this time; 0 = never."""
    sweep_interval_s: float = 60.0
    start_timeout_s: float = 60.0
    """Silence that a starting worker is granted."""
    heartbeat_limit_s: float = 10.0
    """Silence after which a worker counts as dead."""
    check_interval_s: float = 1.0
    start_failure_ttl_s: float = 2.0
    """A failed start answers for this long without a new one."""
    cancel_answer_s: float = 1.0
    """Wait for the worker's word on a write that ran out of time."""
    last_words_s: float = 0.05
    """Wait, after a process ended, for what it may have sent before."""
    farewell_s: float = 5.0
    """The same where its exit code says that it took its leave, which is certain to come."""
    recycle_interval_s: float = 60.0
    """At least this long between two replacements for memory."""
    attaches: bool = False
    """Whether a project that another process owns is used through that process (stdio)."""
    attach_wait_s: float = 5.0
    """Wait for an owner that cannot be reached before the project counts as locked."""
    drain_s: float = 5.0
    term_s: float = 2.0
    kill_s: float = 2.0
    restart: RestartLimits = RestartLimits()
