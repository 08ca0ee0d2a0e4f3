"""Workers of the front: which one serves a project, and keeping it alive."""

from maadd.pool.policy import PoolPolicy, RestartLimits
from maadd.pool.pool import WorkerPool
from maadd.pool.runtime_dir import RuntimeDir
from maadd.pool.snapshot import SweepSnapshot, WorkerExit, WorkerSnapshot

__all__ = [
    "PoolPolicy",
    "RestartLimits",
    "RuntimeDir",
    "SweepSnapshot",
    "WorkerExit",
    "WorkerPool",
    "WorkerSnapshot",
]
