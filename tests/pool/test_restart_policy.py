from __future__ import annotations

import pytest

from maadd.pool.policy import RestartLimits
from maadd.pool.restart_policy import Restart, RestartPolicy

STEADY = RestartLimits(jitter=0)


def delays(limits: RestartLimits, deaths: list[float]) -> list[float]:
    policy = RestartPolicy(limits, dice=lambda: 0.5)
    return [policy.died(at).delay_s for at in deaths]


def test_the_delay_doubles_from_a_tenth_of_a_second_to_thirty() -> None:
    found = delays(STEADY, [i * 1000.0 for i in range(11)])
    assert found == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


@pytest.mark.parametrize(
    ("deaths", "failed"),
    [
        ([0, 1, 2, 3], [False] * 4),
        ([0, 1, 2, 3, 4], [False] * 4 + [True]),
        ([0, 15, 30, 45, 60], [False] * 4 + [True]),
        ([0, 15, 30, 45, 61], [False] * 5),
        ([0, 1, 2, 3, 61, 62, 63, 64, 65], [False] * 8 + [True]),
    ],
)
def test_five_deaths_within_a_minute_make_a_project_failed(
    deaths: list[float], failed: list[bool]
) -> None:
    policy = RestartPolicy(STEADY)
    assert [policy.died(at).failed for at in deaths] == failed


def test_a_failed_project_stays_failed_when_its_probe_dies_late() -> None:
    policy = RestartPolicy(STEADY)
    for at in range(5):
        policy.died(at)
    policy.ready(500)
    assert policy.died(559) == Restart(3.2, failed=True)


@pytest.mark.parametrize(("healthy_for", "restart"), [(59.9, 0.4), (60.0, 0.1), (3600.0, 0.1)])
def test_a_minute_of_health_makes_the_past_forgotten(healthy_for: float, restart: float) -> None:
    policy = RestartPolicy(STEADY)
    policy.died(0)
    policy.died(1)
    policy.ready(10)
    assert policy.died(10 + healthy_for).delay_s == restart


def test_health_ends_the_failed_state() -> None:
    policy = RestartPolicy(STEADY)
    for at in range(5):
        policy.died(at)
    policy.ready(10)
    assert policy.died(70) == Restart(0.1, failed=False)


def test_time_between_deaths_without_a_ready_worker_is_no_health() -> None:
    policy = RestartPolicy(STEADY)
    assert [policy.died(at).delay_s for at in (0, 100, 200)] == [0.1, 0.2, 0.4]


@pytest.mark.parametrize(("dice", "delay"), [(0.0, 0.08), (0.5, 0.1), (1.0, 0.12)])
def test_jitter_spreads_the_delay_both_ways(dice: float, delay: float) -> None:
    policy = RestartPolicy(RestartLimits(jitter=0.2), dice=lambda: dice)
    assert policy.died(0).delay_s == pytest.approx(delay)


def test_jitter_never_exceeds_the_greatest_delay() -> None:
    policy = RestartPolicy(RestartLimits(jitter=0.2), dice=lambda: 1.0)
    assert max(policy.died(i * 1000).delay_s for i in range(2000)) == 30.0


def test_a_stop_on_purpose_wipes_the_slate() -> None:
    policy = RestartPolicy(STEADY)
    for at in range(5):
        policy.died(at)
    policy.forget()
    assert policy.died(5) == Restart(0.1, failed=False)
