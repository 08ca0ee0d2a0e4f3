"""When a failed history step is tried again."""

import pytest

from maadd_worker.history import retry as retry_module
from maadd_worker.history.outcome import GitFailure
from maadd_worker.history.retry import LOCK_POLL_S, LONGEST_RETRY_S, RETRY_S, Retry

REFUSED = GitFailure("GIT_COMMIT_FAILED", "no", {"reason": "hook"})
HUNG = GitFailure("GIT_COMMIT_FAILED", "late", {"reason": "hook"}, timed_out=True)
LOCKED = GitFailure("GIT_COMMIT_FAILED", "held", {"reason": "index-lock"})
MERGING = GitFailure("GIT_COMMIT_FAILED", "busy", {"reason": "merge"})
NOW = 1_000.0


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Time stands still, and there is no jitter."""

    class Clock:
        monotonic = staticmethod(lambda: NOW)

    monkeypatch.setattr(retry_module, "time", Clock)
    monkeypatch.setattr(retry_module, "_JITTER", 0.0)


def delays(retry: Retry, failure: GitFailure, times: int) -> list[float]:
    waits = []
    for number in range(times):
        retry.failed(failure, again=number > 0)
        waits.append(retry.seconds_left(lock_is_held=True))
    return waits


def test_the_delay_doubles_up_to_five_minutes():
    waits = delays(Retry(0.04), REFUSED, 20)
    assert waits[:4] == pytest.approx([0.04, 0.08, 0.16, 0.32])
    assert max(waits) == waits[-1] == LONGEST_RETRY_S


def test_something_new_starts_the_delays_over():
    retry = Retry(1.0)
    delays(retry, REFUSED, 5)
    assert delays(retry, REFUSED, 1) == pytest.approx([1.0])


def test_a_child_that_hung_is_not_started_again_at_once():
    assert delays(Retry(0.04), HUNG, 2) == pytest.approx([RETRY_S, 2 * RETRY_S])


def test_what_somebody_else_will_end_is_tried_every_five_seconds():
    assert delays(Retry(0.04), MERGING, 3) == pytest.approx([RETRY_S] * 3)


def test_a_lock_is_looked_at_often_and_its_end_makes_the_attempt_due():
    retry = Retry()
    retry.failed(LOCKED, again=False)
    assert retry.seconds_left(lock_is_held=True) == LOCK_POLL_S
    assert retry.seconds_left(lock_is_held=False) == 0.0


def test_jitter_spreads_the_attempts(monkeypatch):
    monkeypatch.setattr(retry_module, "_JITTER", 0.25)
    waits = {delays(Retry(1.0), REFUSED, 1)[0] for _ in range(50)}
    assert len(waits) > 10
    assert min(waits) >= 0.75 - 1e-6
    assert max(waits) <= 1.25 + 1e-6
