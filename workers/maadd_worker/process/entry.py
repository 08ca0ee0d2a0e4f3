"""Where a new process starts; the front names this function without loading the engine."""

from __future__ import annotations

from maadd.protocol.messages import WorkerConfig

PRELOADED = ("maadd_worker.process.main", "maadd_worker.engine")
"""Modules that the fork server loads once for all workers."""


def enter(config: WorkerConfig) -> None:
    """Serve the project of `config` in this process."""
    from maadd_worker.engine import Engine
    from maadd_worker.process.main import run

    run(config, Engine.open)
