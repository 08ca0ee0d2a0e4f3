"""Equal calls that run at the same time share one execution (spec 04 §12.4, 03 §6.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from maadd.pool.held_calls import OnProgress
from maadd.protocol.messages import CallProgress

T = TypeVar("T")


class _Flight(Generic[T]):
    """One execution, and who waits for it: each with what hears of its progress, if anything."""

    __slots__ = ("task", "waiting")

    def __init__(self, work: Callable[[OnProgress], Coroutine[Any, Any, T]]) -> None:
        self.waiting: list[OnProgress | None] = []
        self.task = asyncio.create_task(work(self._tell))

    def _tell(self, progress: CallProgress) -> None:
        for on_progress in self.waiting:
            if on_progress is not None:
                on_progress(progress)


class SingleFlight(Generic[T]):
    """The executions under way, by what makes calls equal. Belongs to the event loop.

    Whoever waits for one hears of its progress, until the result or until leaving.
    """

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[T]] = {}

    def is_running(self, key: Hashable) -> bool:
        """Whether there is an execution to `join`."""
        return key in self._flights

    async def join(self, key: Hashable, on_progress: OnProgress | None = None) -> T:
        """The result of the execution that runs, or its failure."""
        return await self._wait(key, self._flights[key], on_progress)

    async def lead(
        self,
        key: Hashable,
        work: Callable[[OnProgress], Coroutine[Any, Any, T]],
        on_progress: OnProgress | None = None,
    ) -> T:
        """Execute `work` for everybody who joins; it is cancelled when nobody waits any more."""
        flight = _Flight(work)
        flight.task.add_done_callback(lambda task: self._landed(key, flight, task))
        self._flights[key] = flight
        return await self._wait(key, flight, on_progress)

    async def _wait(self, key: Hashable, flight: _Flight[T], on_progress: OnProgress | None) -> T:
        flight.waiting.append(on_progress)
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting.remove(on_progress)
            if not flight.waiting and not flight.task.done():
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
