"""The sd_notify protocol, against real datagram sockets (spec 04 §15)."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from maadd.ops.notify import ServiceNotifier


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A listening socket and the text of NOTIFY_SOCKET that names it."""
    name = f"@maadd-test-{uuid.uuid4()}" if request.param == "abstract" else str(tmp_path / "n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(name.replace("@", "\0", 1))
        listener.settimeout(10)
        yield listener, name


def test_states(manager: tuple[socket.socket, str]) -> None:
    listener, name = manager
    notifier = ServiceNotifier.from_environ({"NOTIFY_SOCKET": name})
    for sent, datagram in (
        (notifier.ready(), b"READY=1"),
        (notifier.ready("serving 3 projects"), b"READY=1\nSTATUS=serving 3 projects"),
        (notifier.status("two\nlines"), b"STATUS=two lines"),
        (notifier.stopping(), b"STOPPING=1"),
        (notifier.extend(25.5), b"EXTEND_TIMEOUT_USEC=25500000"),
        (notifier.watchdog(), b"WATCHDOG=1"),
    ):
        assert sent
        assert listener.recv(4096) == datagram


def test_reloading_carries_the_monotonic_time_in_the_same_datagram(
    manager: tuple[socket.socket, str],
) -> None:
    listener, name = manager
    before = time.monotonic_ns() // 1000
    assert ServiceNotifier.from_environ({"NOTIFY_SOCKET": name}).reloading()
    state, moment = listener.recv(4096).decode().split("\n")
    assert state == "RELOADING=1"
    assert before <= int(moment.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000


@pytest.mark.parametrize(
    "environ",
    [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "relative"}, {"NOTIFY_SOCKET": "vsock:2:1"}],
)
def test_without_a_service_manager_nothing_happens(environ: dict[str, str]) -> None:
    notifier = ServiceNotifier.from_environ({**environ, "WATCHDOG_USEC": "1000000"})
    assert not notifier.ready()
    assert notifier.watchdog_s is None


def test_a_manager_that_does_not_listen_is_no_failure(tmp_path: Path) -> None:
    for address in (str(tmp_path / "gone"), f"/{'x' * 200}"):
        assert not ServiceNotifier.from_environ({"NOTIFY_SOCKET": address}).ready()


@pytest.mark.parametrize(
    ("environ", "interval"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_fed_at_half_its_time(
    environ: dict[str, str], interval: float | None
) -> None:
    notifier = ServiceNotifier.from_environ({"NOTIFY_SOCKET": "/run/n", **environ})
    assert notifier.watchdog_s == interval
