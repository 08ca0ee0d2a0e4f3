"""Shutdown has a last moment (spec 04 §15)."""

from __future__ import annotations

import subprocess
import sys

import structlog

from maadd.front.hard_deadline import end_within

HANGING = """\
from maadd.front.hard_deadline import end_within
from maadd.ops.logs import open_ops_log
end_within(0.01, open_ops_log())
while True:
    pass
"""


def test_a_process_whose_loop_hangs_ends_with_one() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1
    assert '"msg":"shutdown_hard_deadline"' in done.stderr


def test_an_end_in_time_calls_it_off() -> None:
    timer = end_within(3600, structlog.wrap_logger(None))
    timer.cancel()
    timer.join(10)
    assert not timer.is_alive()
