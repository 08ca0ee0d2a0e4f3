"""What every room asks of the running front, each time anew."""

from __future__ import annotations

import time

from maadd.config.instance import Instance


class RunningFront:
    """The live configuration and whether the server is stopping. One per process."""

    __slots__ = ("draining", "generation", "instance", "started", "started_at")

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.generation = 1
        """Counts the instances that were served; a reload takes the next."""
        self.draining = False
        self.started = time.monotonic()
        self.started_at = time.time()

    def serve(self, instance: Instance) -> None:
        """Serve another instance from now on."""
        self.instance = instance
        self.generation += 1

    @property
    def uptime_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started
