"""Equal calls that run at the same time share one execution."""

from __future__ import annotations

import asyncio

import pytest

from maadd.pipeline.single_flight import SingleFlight
from maadd.pool.held_calls import OnProgress
from maadd.protocol.errors import MaadError
from maadd.protocol.messages import CallProgress


class Work:
    """Something that a test lets end."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.cancelled = asyncio.Event()

    async def run(self, tell: OnProgress) -> str:
        self.tell = tell
        self.begun.set()
        try:
            return await self.outcome
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


async def test_those_who_join_get_the_leaders_result() -> None:
    flights: SingleFlight[str] = SingleFlight()
    work = Work()
    leader = asyncio.ensure_future(flights.lead("a", work.run))
    await work.begun.wait()
    followers = [asyncio.ensure_future(flights.join("a")) for _ in range(3)]
    assert flights.is_running("a")
    assert not flights.is_running("b")
    work.outcome.set_result("once")
    assert await asyncio.gather(leader, *followers) == ["once"] * 4
    assert not flights.is_running("a")


async def test_a_failure_is_everybodys() -> None:
    flights: SingleFlight[str] = SingleFlight()
    work = Work()
    leader = asyncio.ensure_future(flights.lead("a", work.run))
    await work.begun.wait()
    follower = asyncio.ensure_future(flights.join("a"))
    await asyncio.sleep(0)
    work.outcome.set_exception(MaadError("BACKEND_ERROR", "broken"))
    for waiting in (leader, follower):
        with pytest.raises(MaadError, match="broken"):
            await waiting


async def test_a_leader_that_leaves_does_not_take_the_work_along() -> None:
    flights: SingleFlight[str] = SingleFlight()
    work = Work()
    leader = asyncio.ensure_future(flights.lead("a", work.run))
    await work.begun.wait()
    follower = asyncio.ensure_future(flights.join("a"))
    await asyncio.sleep(0)
    leader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leader
    work.outcome.set_result("still")
    assert await follower == "still"


async def test_when_nobody_waits_any_more_the_work_is_cancelled() -> None:
    flights: SingleFlight[str] = SingleFlight()
    work = Work()
    waiting = [asyncio.ensure_future(flights.lead("a", work.run))]
    await work.begun.wait()
    waiting.append(asyncio.ensure_future(flights.join("a")))
    await asyncio.sleep(0)
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert not flights.is_running("a")
    await work.cancelled.wait()


async def test_work_begins_even_if_its_caller_leaves_at_once() -> None:
    flights: SingleFlight[str] = SingleFlight()
    work = Work()
    leader = asyncio.ensure_future(flights.lead("a", work.run))
    await asyncio.sleep(0)
    leader.cancel()
    await asyncio.gather(leader, return_exceptions=True)
    await work.cancelled.wait()
    assert work.begun.is_set()


async def test_the_next_call_after_the_end_is_executed_again() -> None:
    flights: SingleFlight[str] = SingleFlight()
    for result in ("first", "second"):
        work = Work()
        work.outcome.set_result(result)
        assert await flights.lead("a", work.run) == result


async def test_all_who_wait_hear_of_the_progress_and_none_who_left() -> None:
    flights: SingleFlight[str] = SingleFlight()
    work = Work()
    heard: dict[str, list[float]] = {"leader": [], "follower": []}
    leader = asyncio.ensure_future(
        flights.lead("a", work.run, lambda p: heard["leader"].append(p.done))
    )
    await work.begun.wait()
    follower = asyncio.ensure_future(flights.join("a", lambda p: heard["follower"].append(p.done)))
    quiet = asyncio.ensure_future(flights.join("a"))
    await asyncio.sleep(0)
    work.tell(CallProgress("r", 1))
    leader.cancel()
    await asyncio.gather(leader, return_exceptions=True)
    work.tell(CallProgress("r", 2))
    work.outcome.set_result("done")
    assert await asyncio.gather(follower, quiet) == ["done", "done"]
    assert heard == {"leader": [1], "follower": [1, 2]}
