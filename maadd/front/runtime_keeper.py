"""Makes the runtime directory anew when somebody removes it under a running server.

Cleaners of temporary directories do. Workers that run stay connected; without the directory no
other one could start, and no command would find the server.
"""

from __future__ import annotations

import asyncio

from structlog.typing import FilteringBoundLogger

from maadd.front.control import ControlServer
from maadd.pool.pool import WorkerPool
from maadd.pool.runtime_dir import RuntimeDir
from maadd.protocol.errors import MaadError

_LOOK_S = 2.0
_RETRY_MS = 2_000


class RuntimeKeeper:
    """Of one front, from when its sockets are bound."""

    def __init__(
        self,
        runtime: RuntimeDir,
        pool: WorkerPool,
        control: ControlServer,
        log: FilteringBoundLogger,
    ) -> None:
        self._runtime = runtime
        self._pool = pool
        self._control = control
        self._log = log
        self._mending = asyncio.Lock()
        self._told: str | None = None

    async def check(self) -> None:
        """Have lock and sockets in place; PROJECT_UNAVAILABLE with what stands against it."""
        if self._runtime.is_intact:
            return
        async with self._mending:
            if not self._runtime.is_intact:
                await self._restore()

    async def run(self) -> None:
        """Look every two seconds; what fails is logged once."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self.check()
                self._told = None
            except MaadError as failure:
                if failure.message != self._told:
                    self._told = failure.message
                    self._log.error("runtime_directory_lost", reason=failure.message)

    async def _restore(self) -> None:
        path = self._runtime.path
        try:
            self._runtime.restore()
            await self._pool.move_to(self._runtime.workers_endpoint)
            await self._control.start()
        except (MaadError, OSError) as failure:
            reason = failure.message if isinstance(failure, MaadError) else str(failure)
            raise MaadError(
                "PROJECT_UNAVAILABLE",
                f"the runtime directory {path} was removed and cannot be made again: {reason}",
                {"state": "failed", "retryAfterMs": _RETRY_MS},
            ) from failure
        self._log.warning("runtime_directory_restored", path=path)
