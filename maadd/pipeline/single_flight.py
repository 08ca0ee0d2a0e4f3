"""Equal calls that run at the same time share one execution (spec 04 §12.4, 03 §6.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Hashable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class _Flight(Generic[T]):
    __slots__ = ("task", "waiting")

    def __init__(self, task: asyncio.Task[T]) -> None:
        self.task = task
        self.waiting = 0


class SingleFlight(Generic[T]):
    """The executions under way, by what makes calls equal. Belongs to the event loop."""

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[T]] = {}

    def is_running(self, key: Hashable) -> bool:
        """Whether there is an execution to `join`."""
        return key in self._flights

    async def join(self, key: Hashable) -> T:
        """The result of the execution that runs, or its failure."""
        return await self._wait(key, self._flights[key])

    async def lead(self, key: Hashable, work: Coroutine[Any, Any, T]) -> T:
        """Execute `work` for everybody who joins; it is cancelled when nobody waits any more."""
        flight = _Flight(asyncio.create_task(work))
        flight.task.add_done_callback(lambda task: self._landed(key, flight, task))
        self._flights[key] = flight
        return await self._wait(key, flight)

    async def _wait(self, key: Hashable, flight: _Flight[T]) -> T:
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if flight.waiting == 0 and not flight.task.done():
                self._forget(key, flight)
                # Later than the task's first step, so that the work always begins and can
                # give back what was taken for it.
                asyncio.get_running_loop().call_soon(flight.task.cancel)

    def _landed(self, key: Hashable, flight: _Flight[T], task: asyncio.Task[T]) -> None:
        self._forget(key, flight)
        if not task.cancelled():
            # Seen here also when all who waited have left.
            task.exception()

    def _forget(self, key: Hashable, flight: _Flight[T]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
