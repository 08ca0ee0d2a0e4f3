"""No sequence of events publishes a document that its host did not expect (spec 05 §6, §10)."""

from __future__ import annotations

import pytest
from guarded_machine import GuardedCreates
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

_ANY_TIME = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def test_only_promised_documents_are_ever_published() -> None:
    run_state_machine_as_test(
        GuardedCreates, settings=settings(max_examples=6, stateful_step_count=14, **_ANY_TIME)
    )


@pytest.mark.soak
def test_only_promised_documents_over_long_sequences() -> None:
    run_state_machine_as_test(
        GuardedCreates, settings=settings(max_examples=300, stateful_step_count=40, **_ANY_TIME)
    )
