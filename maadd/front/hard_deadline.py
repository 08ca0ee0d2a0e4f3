"""The end that comes whatever hangs (spec 04 §15)."""

from __future__ import annotations

import math
import os
import signal
import threading

from structlog.typing import FilteringBoundLogger


def end_within(seconds: float, log: FilteringBoundLogger) -> threading.Timer:
    """End this process with exit code 1 after `seconds`, unless the timer is cancelled.

    A thread of its own, since it may be the loop that hangs; where none can be had, an alarm that
    kills. Workers see the end of their pipe.
    """

    def end() -> None:
        try:
            log.error("shutdown_hard_deadline", limit_ms=round(seconds * 1000))
        finally:
            os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    try:
        timer.start()
    except RuntimeError:
        signal.alarm(math.ceil(seconds))
    return timer
