"""The queue between whoever notifies and a session's stream (spec 04 §11)."""

from __future__ import annotations

import asyncio

from maadd.sessions.notices import NoticeQueue


def test_without_a_reader_nothing_is_kept():
    queue = NoticeQueue(4)
    assert not queue.offer(b"lost")
    assert queue.attach()
    assert asyncio.run(queue.take(0)) == []


def test_there_is_one_reader_at_a_time():
    queue = NoticeQueue(4)
    assert queue.attach()
    assert not queue.attach()
    queue.detach()
    assert queue.attach()


def test_a_full_queue_refuses_and_can_be_replaced():
    queue = NoticeQueue(2)
    queue.attach()
    assert [queue.offer(b"%d" % n) for n in range(3)] == [True, True, False]
    assert queue.replace(b"resync")
    assert asyncio.run(queue.take(0)) == [b"resync"]


def test_a_waiting_reader_is_woken_by_what_comes():
    async def scenario():
        queue = NoticeQueue(4)
        queue.attach()
        waiting = asyncio.create_task(queue.take(None))
        await asyncio.sleep(0)
        queue.offer(b"news")
        assert await waiting == [b"news"]
        waiting = asyncio.create_task(queue.take(None))
        await asyncio.sleep(0)
        queue.detach()
        assert await waiting is None

    asyncio.run(scenario())


def test_closing_lets_the_rest_out_and_then_ends():
    async def scenario():
        queue = NoticeQueue(4)
        queue.attach()
        queue.offer(b"last")
        queue.close()
        assert await queue.take(None) == [b"last"]
        assert await queue.take(None) is None
        queue.detach()
        assert not queue.attach()

    asyncio.run(scenario())
