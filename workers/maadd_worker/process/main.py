"""A worker process: its signals, its standard streams, and its end without a front."""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import threading
import time
from multiprocessing import parent_process

from maadd.protocol.messages import WorkerConfig
from maadd_worker.process.log import Log
from maadd_worker.process.loop import WorkerLoop
from maadd_worker.process.replies import stack_of
from maadd_worker.process.served import EngineFactory

EXIT_ORPHANED = 4
"""The front is gone and the write in hand did not end in time."""

_ORPHAN_GRACE_S = 1.5
_SWITCH_INTERVAL_S = 0.0005
_LOG_FLUSH_S = 0.2


def run(config: WorkerConfig, open_engine: EngineFactory) -> None:
    """Serve one project until told to stop; called in a fresh child, on its main thread.

    Ends by `SystemExit`: 0 after a drain, `EXIT_NOT_OPENED`, 1 after a failure of its own.
    """
    front = parent_process()
    if front is None:
        raise RuntimeError("a worker is started by a front")
    front_fd = int(front.sentinel)
    _detach_stdio()
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        # Meant for the front; a terminal and a service manager send them to the whole group.
        signal.signal(ignored, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    # How long a short read may wait for a thread that computes; with Python's 5 ms a busy
    # writer makes every such read ten times as slow.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    settings = config.settings
    log = Log(settings.log_level, config.project, pretty=settings.log_pretty)
    _end_without_front(front_fd, log)
    loop = WorkerLoop(config, open_engine, log)
    signal.signal(signal.SIGTERM, lambda *_: loop.request_stop())
    try:
        code = loop.serve(front_fd)
    except Exception as error:
        log.error("worker_failed", error=type(error).__name__, stack=stack_of(error))
        code = 1
    log.close(_LOG_FLUSH_S)
    sys.exit(code)


def _detach_stdio() -> None:
    """Standard input is empty, and what anything prints goes to standard error.

    In stdio mode the front's standard output belongs to the protocol alone.
    """
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)


def _end_without_front(front_fd: int, log: Log) -> None:
    """Makes sure that the process ends soon after the front did, whatever hangs."""

    def guard() -> None:
        select.select([front_fd], [], [])
        time.sleep(_ORPHAN_GRACE_S)
        log.error("orphan_killed_itself")
        os._exit(EXIT_ORPHANED)

    threading.Thread(target=guard, name="orphan-guard", daemon=True).start()
