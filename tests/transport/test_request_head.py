"""Remote addresses behind proxies, and the brake on failed bearers (spec 04 §9.1, §9.7)."""

from __future__ import annotations

import pytest

from maadd.config.rules import TrustProxy
from maadd.transport.head import Head
from maadd.transport.throttle import FailureThrottle

NOBODY = TrustProxy()
ONE = TrustProxy(hops=1)
BLOCKS = TrustProxy(networks=("10.0.0.0/8", "2001:db8::/32"))


@pytest.mark.parametrize(
    ("trust", "peer", "forwarded", "address"),
    [
        (NOBODY, "10.0.0.1", ["1.1.1.1"], "10.0.0.1"),
        (ONE, "10.0.0.1", [], "10.0.0.1"),
        (ONE, "10.0.0.1", ["6.6.6.6, 1.1.1.1"], "1.1.1.1"),
        (ONE, "10.0.0.1", ["6.6.6.6", "1.1.1.1"], "1.1.1.1"),
        (BLOCKS, "8.8.8.8", ["1.1.1.1"], "8.8.8.8"),
        (BLOCKS, "10.0.0.1", ["6.6.6.6, 1.1.1.1, 10.0.0.7"], "1.1.1.1"),
        (BLOCKS, "2001:db8::1", ["1.1.1.1"], "1.1.1.1"),
        (BLOCKS, "10.0.0.1", ["garbage"], "10.0.0.1"),
        (BLOCKS, "10.0.0.1", ["6.6.6.6, garbage, 10.0.0.9"], "10.0.0.9"),
        (ONE, "10.0.0.1", ["garbage"], "10.0.0.1"),
        (ONE, "10.0.0.1", ["1.2.3.4, "], "10.0.0.1"),
        (ONE, "10.0.0.1", ["1.2.3.4:99"], "1.2.3.4"),
        (ONE, "10.0.0.1", ["[2001:db8::1]:99"], "2001:db8::1"),
        (BLOCKS, "10.0.0.1", ["10.0.0.9"], "10.0.0.9"),
        (BLOCKS, "10.0.0.1", [], "10.0.0.1"),
    ],
)
def test_only_hops_of_trusted_proxies_are_believed(trust, peer, forwarded, address):
    head = Head([(b"x-forwarded-for", value.encode()) for value in forwarded])
    assert head.remote_address(peer, trust) == address


def test_the_throttle_admits_ten_at_once_and_ten_a_second():
    now = [0.0]
    throttle = FailureThrottle(lambda: now[0])
    assert [throttle.admit("a") for _ in range(12)] == [True] * 10 + [False] * 2
    assert throttle.admit("b")
    now[0] += 0.1
    assert [throttle.admit("a") for _ in range(2)] == [True, False]
    now[0] += 60
    assert [throttle.admit("a") for _ in range(11)] == [True] * 10 + [False]


def test_the_throttle_remembers_a_bounded_number_of_addresses():
    throttle = FailureThrottle(lambda: 0.0)
    for number in range(20_000):
        throttle.admit(f"10.{number}")
    assert len(throttle._buckets) == 4096
