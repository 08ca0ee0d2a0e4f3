from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from maadd.protocol.errors import WireError
from maadd.protocol.messages import Call, Permit
from maadd_worker.process import write_queue
from maadd_worker.process.write_queue import GROUP_LIMIT, WriteQueue


class Given:
    """A queue, and the writes it gave up."""

    def __init__(self, limit: int = 1000, wait_ms: int = 60_000) -> None:
        self.given_up: list[tuple[str, int, int]] = []
        self.asked: list[str] = []
        self.queue = WriteQueue(limit, wait_ms, self._give_up, self.asked.append)

    def _give_up(self, call: Call, waited_ms: int, depth: int) -> None:
        self.given_up.append((call.request_id, waited_ms, depth))

    def offer(self, *ids: str) -> None:
        for request_id in ids:
            assert self.queue.offer(call(request_id))

    def take(self) -> list[str]:
        return [taken.request_id for taken in self.queue.take(0) or []]


def call(request_id: str) -> Call:
    return Call(request_id, "put", {}, 1, "session", 1, 30_000, is_write=True)


def test_writes_are_taken_in_order_and_in_groups() -> None:
    given = Given()
    ids = [str(n) for n in range(GROUP_LIMIT + 3)]
    given.offer(*ids)
    assert given.take() == ids[:GROUP_LIMIT]
    assert given.take() == ids[GROUP_LIMIT:]
    assert given.take() == []


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer waits for further writes as if for ever."""
    monkeypatch.setattr(write_queue, "_GATHER_S", 60.0)
    monkeypatch.setattr(write_queue, "_GATHER_GAP_S", 60.0)


@pytest.mark.usefixtures("patient")
def test_callers_that_take_turns_are_gathered_into_one_group() -> None:
    given = Given()
    given.offer("a")
    assert given.take() == ["a"]
    given.offer("b")  # while "a" was performed: two callers
    taken: list[str] = []
    writer = threading.Thread(target=lambda: taken.extend(given.take()))
    writer.start()
    given.offer("c")
    writer.join()
    assert taken == ["b", "c"]


@pytest.mark.usefixtures("patient")
def test_a_single_caller_is_never_waited_for() -> None:
    given = Given()
    for request_id in ("a", "b", "c"):
        given.offer(request_id)
        assert given.take() == [request_id]
        given.queue.finish(request_id)
        assert given.take() == []


@pytest.mark.usefixtures("patient")
def test_the_end_of_the_queue_does_not_wait_for_anybody() -> None:
    given = Given()
    given.offer("a")
    given.take()
    given.offer("b")
    given.queue.close()
    assert given.take() == ["b"]


def test_only_waiting_writes_count_against_the_limit() -> None:
    given = Given(limit=2)
    given.offer("a", "b")
    assert not given.queue.offer(call("c"))
    given.take()
    given.offer("c", "d")
    assert given.queue.depth() == 4


def test_a_withdrawn_write_is_not_taken() -> None:
    given = Given()
    given.offer("a", "b")
    assert given.queue.withdraw("a") is True
    assert given.queue.withdraw("a") is None
    assert given.take() == ["b"]


def test_a_taken_write_can_be_withdrawn_until_it_is_admitted() -> None:
    given = Given()
    given.offer("a", "b")
    given.take()
    assert given.queue.withdraw("a") is True
    assert not given.queue.admit("a")
    assert given.queue.admit("b")
    assert given.queue.withdraw("b") is False
    assert given.queue.admit("b")


def test_an_answer_is_wanted_once_and_not_after_a_withdrawal() -> None:
    given = Given()
    given.offer("a", "b")
    given.take()
    given.queue.withdraw("a")
    assert not given.queue.finish("a")
    assert given.queue.finish("b")
    assert not given.queue.finish("b")
    assert given.queue.withdraw("b") is None


def test_a_write_that_waited_too_long_is_given_up_once() -> None:
    given = Given(wait_ms=10)
    given.offer("a", "b")
    given.queue.expire(time.monotonic())
    assert given.given_up == []
    given.queue.expire(time.monotonic() + 1)
    assert [(request_id, depth) for request_id, _, depth in given.given_up] == [("a", 2), ("b", 1)]
    assert given.take() == []


def test_a_taken_write_that_waited_too_long_is_not_admitted() -> None:
    given = Given(wait_ms=0)
    given.offer("a")
    given.take()
    assert not given.queue.admit("a")
    assert [request_id for request_id, _, _ in given.given_up] == ["a"]
    assert not given.queue.finish("a")


def test_time_does_not_touch_an_admitted_write() -> None:
    given = Given(wait_ms=10)
    given.offer("a")
    given.take()
    assert given.queue.admit("a")
    given.queue.expire(time.monotonic() + 1)
    assert given.queue.admit("a")
    assert given.given_up == []


def test_what_a_group_left_unanswered_is_told_with_its_stage() -> None:
    given = Given()
    given.offer("a", "b", "c", "d")
    group = given.queue.take(0) or []
    given.queue.admit("a")
    given.queue.finish("a")
    given.queue.admit("b")
    given.queue.withdraw("c")
    left = [(call.request_id, admitted) for call, admitted in given.queue.unanswered(group)]
    assert left == [("b", True), ("d", False)]


def test_withdrawing_all_spares_what_is_admitted() -> None:
    given = Given()
    given.offer("a", "b")
    given.take()
    given.queue.admit("a")
    given.offer("c")
    given.queue.withdraw_all()
    assert given.take() == []
    assert given.queue.depth() == 1


def test_a_wake_or_a_write_ends_the_wait_and_a_close_ends_it_for_good() -> None:
    given = Given()
    taken: list[list[str] | None] = []
    seen = threading.Semaphore(0)

    def writer() -> None:
        while True:
            group = given.queue.take(None)
            taken.append(None if group is None else [call.request_id for call in group])
            seen.release()
            if group is None:
                return

    thread = threading.Thread(target=writer)
    thread.start()
    given.queue.wake()
    assert seen.acquire(timeout=10)
    given.offer("a")
    assert seen.acquire(timeout=10)
    given.queue.close()
    thread.join(10)
    assert taken == [[], ["a"], None]


def test_a_closed_queue_still_hands_out_what_waits() -> None:
    given = Given()
    given.offer("a")
    given.queue.close()
    assert given.take() == ["a"]
    assert given.queue.take(0) is None


def _permit(given: Given, request_id: str, then: Callable[[], object]) -> WireError | None:
    """What the writer hears, with `then` done once the front was asked."""

    def answer() -> None:
        while not given.asked:
            pass
        then()

    answering = threading.Thread(target=answer)
    answering.start()
    heard = given.queue.permit(request_id)
    answering.join()
    assert given.asked == [request_id]
    return heard


def test_a_permit_is_asked_once_and_waited_for() -> None:
    given = Given()
    given.offer("a")
    given.take()
    assert _permit(given, "a", lambda: given.queue.take_permit(Permit("a"))) is None
    assert given.queue.admit("a")


def test_a_refused_permit_tells_why() -> None:
    given = Given()
    given.offer("a")
    given.take()
    no = WireError("TOKEN_REVOKED", "no more")
    assert _permit(given, "a", lambda: given.queue.take_permit(Permit("a", no))) == no


def test_a_write_withdrawn_at_its_publish_point_waits_no_longer() -> None:
    given = Given()
    given.offer("a")
    given.take()
    heard = _permit(given, "a", lambda: given.queue.withdraw("a"))
    assert heard is not None
    assert heard.code == "REQUEST_TIMEOUT"
    assert not given.queue.admit("a")


def test_without_a_word_before_the_deadline_nothing_is_published() -> None:
    given = Given()
    assert given.queue.offer(Call("a", "put", {}, 1, "s", 1, 0, is_write=True))
    given.take()
    heard = given.queue.permit("a")
    assert heard is not None
    assert heard.details == {"writeOutcome": "not_published"}
    assert not given.queue.wanted("a")


def test_a_call_is_wanted_until_it_is_withdrawn() -> None:
    given = Given()
    given.offer("a")
    given.take()
    assert given.queue.wanted("a")
    given.queue.withdraw("a")
    assert not given.queue.wanted("a")
    assert given.queue.permit("a") is not None
    assert given.asked == []


def test_a_deferred_write_is_answered_later_and_not_missed() -> None:
    given = Given()
    given.offer("a", "b")
    group = given.queue.take(0)
    assert group is not None
    assert given.queue.admit("a")
    given.queue.defer("a")
    assert [(one.request_id, admitted) for one, admitted in given.queue.unanswered(group)] == [
        ("b", False)
    ]
    assert given.queue.withdraw("a") is False
    assert given.queue.depth() == 2
    assert given.queue.finish("a")
    assert given.queue.depth() == 1
