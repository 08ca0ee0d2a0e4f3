"""The process around a front: what it may open, its loop, and its end whatever hangs."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from maadd.protocol.errors import MaadError

LEAST_FILES = 128
"""Open files below which a server cannot keep its sockets, its workers and a few clients."""

_THREADS_S = 1.0


def ignore_early_signals() -> None:
    """Let no reload or rotation that is asked for before it can be done end the process."""
    for number in (signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def telling_interrupts() -> Iterator[None]:
    """Inside, an interrupt stays one. In the middle of an import Python may make a TypeError of
    it."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # ignored, or somebody else's
        return
    noticed = False

    def notice(_number: int, _frame: object) -> None:
        nonlocal noticed
        noticed = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, notice)
    try:
        yield
    except Exception:
        if noticed:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def raise_file_limit() -> None:
    """Take all open files that the system allows; INSTANCE_CONFIG_INVALID for too few of them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError):  # not where a sandbox forbids it
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < LEAST_FILES:
        raise MaadError(
            "INSTANCE_CONFIG_INVALID",
            f"this process may open {limit} files (RLIMIT_NOFILE), a server needs at least "
            f"{LEAST_FILES}; raise `ulimit -n`, or LimitNOFILE= of its unit",
        )


def run_loop(serve: Coroutine[Any, Any, int], make_loop: Callable[[], Any]) -> int:
    """The result of `serve`, on a loop of its own, which an interrupt ends in order.

    Unlike `asyncio.run` it waits for no thread: one that hangs in a read would keep the process.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with asyncio.Runner(loop_factory=lambda: _without_waiting(make_loop())) as runner:
        return runner.run(serve)


def leave_hanging_threads(before: set[threading.Thread], code: int) -> None:
    """End the process with `code` when threads that came after `before` do not end in a second.

    The interpreter would wait for them at its end, for ever.
    """
    give_up = time.monotonic() + _THREADS_S
    later = [one for one in threading.enumerate() if one not in before and not one.daemon]
    for thread in later:
        thread.join(max(0.0, give_up - time.monotonic()))
    if any(thread.is_alive() for thread in later):
        os._exit(code)


def _without_waiting(loop: Any) -> Any:
    async def let_go(_timeout: float | None = None) -> None:
        return  # `close` tells its idle threads to end

    loop.shutdown_default_executor = let_go
    return loop
