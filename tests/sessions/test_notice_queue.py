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


def test_a_full_queue_refuses():
    queue = NoticeQueue(2)
    queue.attach()
    assert [queue.offer(b"%d" % n) for n in range(3)] == [True, True, False]
    assert asyncio.run(queue.take(0)) == [b"0", b"1"]


def test_notices_with_a_topic_can_be_dropped_and_replaced_over_the_limit():
    queue = NoticeQueue(3)
    queue.attach()
    queue.offer(b"one", "a")
    queue.offer(b"kept")
    queue.offer(b"two", "b")
    assert queue.drop_topics() == {"a", "b"}
    for topic in ("a", "b", "c"):
        queue.insist(topic.encode(), topic)
    assert asyncio.run(queue.take(0)) == [b"kept", b"a", b"b", b"c"]
    queue.detach()
    queue.insist(b"lost", "a")
    assert queue.attach()
    assert asyncio.run(queue.take(0)) == []


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
