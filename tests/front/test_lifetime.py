"""The process around a front: signals before it serves, and an end whatever hangs."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from maadd.front.lifetime import telling_interrupts

HANGING = """
import asyncio, threading
import uvloop
from maadd.front.lifetime import leave_hanging_threads, run_loop
before = set(threading.enumerate())
hangs = threading.Event()
def read():
    hangs.set()
    threading.Event().wait()
async def serve():
    reading = asyncio.create_task(asyncio.to_thread(read))
    await asyncio.to_thread(hangs.wait)
    reading.cancel()
    return 7
code = run_loop(serve(), uvloop.new_event_loop)
print("released", flush=True)
leave_hanging_threads(before, code)
"""

EARLY = """
import os, signal
from maadd.front.lifetime import ignore_early_signals
ignore_early_signals()
os.kill(os.getpid(), signal.SIGHUP)
os.kill(os.getpid(), signal.SIGUSR1)
print("lives")
"""


def run(script: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, timeout=50
    )
    return done.returncode, done.stdout


def test_a_read_that_hangs_does_not_keep_the_process() -> None:
    assert run(HANGING) == (7, "released\n")


def test_a_reload_asked_for_during_the_start_does_not_end_it() -> None:
    assert run(EARLY) == (0, "lives\n")


def test_an_interrupt_that_became_another_error_is_one() -> None:
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), telling_interrupts():
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                raise TypeError("expected a message argument") from None
        with pytest.raises(TypeError), telling_interrupts():
            raise TypeError
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_ignored_interrupt_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with telling_interrupts():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
