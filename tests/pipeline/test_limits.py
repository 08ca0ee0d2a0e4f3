"""The per-session limits with a frozen clock (the vectors of spec 04 §12.1)."""

from __future__ import annotations

import pytest

from maadd.pipeline.limits import Limiter, LimitSettings
from maadd.protocol.errors import MaadError


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def limiter(clock: Clock, **changes: int) -> Limiter:
    values = {
        "writes_per_sec": 10,
        "writes_per_min": 60,
        "concurrent": 5,
        "payload_bytes": 1_048_576,
        "disabled": False,
        **changes,
    }
    return Limiter(LimitSettings(**values), clock)


def refusal(error: MaadError | None) -> dict[str, object]:
    assert error is not None
    assert error.code == "RATE_LIMITED"
    assert error.details is not None
    return error.details


def test_the_eleventh_write_of_a_second_waits_for_a_refill() -> None:
    clock = Clock()
    limits = limiter(clock)
    assert [limits.charge_write("s", None, "maad_create") for _ in range(10)] == [None] * 10
    details = refusal(limits.charge_write("s", None, "maad_create"))
    assert details == {
        "reason": "writes_per_sec",
        "limit": 10,
        "retryAfterMs": 100,
        "tool": "maad_create",
    }
    clock.now += 0.150
    assert limits.charge_write("s", None, "maad_create") is None


def test_the_minute_bucket_holds_sixty_writes() -> None:
    clock = Clock()
    limits = limiter(clock, writes_per_sec=1000)
    for _ in range(60):
        assert limits.charge_write("s", None, "maad_update") is None
        clock.now += 0.001
    assert refusal(limits.charge_write("s", None, "maad_update"))["reason"] == "writes_per_min"
    clock.now += 60
    assert limits.charge_write("s", None, "maad_update") is None


def test_five_calls_may_run_and_a_sixth_when_one_has_ended() -> None:
    limits = limiter(Clock())
    slots = [limits.enter("s", "maad_get") for _ in range(5)]
    with pytest.raises(MaadError) as caught:
        limits.enter("s", "maad_get")
    assert refusal(caught.value)["reason"] == "concurrent"
    assert refusal(caught.value)["retryAfterMs"] is None
    slots[0].leave()
    slots[0].leave()
    limits.enter("s", "maad_get")
    with pytest.raises(MaadError):
        limits.enter("s", "maad_get")


def test_a_closed_session_takes_its_account_with_it() -> None:
    limits = limiter(Clock())
    for _ in range(10):
        limits.charge_write("s", None, "maad_create")
    limits.forget_session("s")
    assert limits.charge_write("s", None, "maad_create") is None


def test_more_sessions_of_one_token_share_its_buckets() -> None:
    limits = limiter(Clock())
    for number in range(10):
        assert limits.charge_write(f"s{number}", "tok-1", "maad_create") is None
    assert refusal(limits.charge_write("s10", "tok-1", "maad_create"))["limit"] == 10
    assert limits.charge_write("s10", "tok-2", "maad_create") is None


def test_a_refund_gives_the_tokens_back() -> None:
    limits = limiter(Clock())
    for _ in range(10):
        limits.charge_write("s", "tok-1", "maad_create")
    limits.refund_write("s", "tok-1")
    assert limits.charge_write("s", "tok-1", "maad_create") is None


@pytest.mark.parametrize(("size", "fits"), [(1_048_576, True), (1_048_577, False)])
def test_the_payload_limit_is_inclusive(size: int, fits: bool) -> None:
    limits = limiter(Clock())
    if fits:
        limits.check_payload("maad_create", size)
        return
    with pytest.raises(MaadError) as caught:
        limits.check_payload("maad_create", size)
    assert refusal(caught.value)["size"] == size


def test_the_off_switch_turns_all_four_off() -> None:
    limits = limiter(Clock(), disabled=True, concurrent=1)
    limits.check_payload("maad_create", 10**9)
    assert all(limits.charge_write("s", "t", "maad_create") is None for _ in range(100))
    with limits.enter("s", "maad_get"), limits.enter("s", "maad_get"):
        pass
