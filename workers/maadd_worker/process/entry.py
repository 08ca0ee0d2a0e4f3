"""Where a new process starts; the front names this function without loading the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from maadd.protocol.messages import WorkerConfig

if TYPE_CHECKING:
    from maadd_worker.engine import Engine

PRELOADED = ("maadd_worker.process.main", "maadd_worker.engine")
"""Modules that the fork server loads once for all workers."""


def enter(config: WorkerConfig) -> None:
    """Serve the project of `config` in this process."""
    from maadd_worker.process.main import run

    run(config, _open_served)


def _open_served(config: WorkerConfig, progress: Callable[[str], None]) -> Engine:
    """An open project with what only a server adds to it."""
    from maadd_worker.engine import Engine

    engine = Engine.open(config, progress)
    engine.offer_instructions()
    engine.start_watching(progress)
    engine.resume_jobs()
    return engine
