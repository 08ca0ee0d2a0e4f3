"""Telling the service manager how we are: the sd_notify protocol (spec 04 §15)."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

_SEND_TIMEOUT_S = 1.0


class ServiceNotifier:
    """Sends state datagrams to `NOTIFY_SOCKET`; does nothing where there is none.

    Each method says whether the datagram left: a service manager that does not listen is no
    reason to fail, one that never hears READY=1 will say so itself.
    """

    def __init__(self, address: str | None, watchdog_s: float | None) -> None:
        self._address = address
        self.watchdog_s = watchdog_s
        """Seconds between two calls of `watchdog`, half of what the manager allows; or None."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> ServiceNotifier:
        """From `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`."""
        address = environ.get("NOTIFY_SOCKET", "")
        if not address.startswith(("/", "@")):
            return cls(None, None)
        return cls(address, _watchdog_interval(environ))

    def ready(self, status: str | None = None) -> bool:
        """Start-up or a reload is over."""
        return self._send("READY=1", *_status(status))

    def reloading(self) -> bool:
        """A reload begins; `ready` ends it, also after a refused one."""
        return self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str | None = None) -> bool:
        """Shutdown begins."""
        return self._send("STOPPING=1", *_status(status))

    def extend(self, seconds: float) -> bool:
        """What is going on (a start, a reload, a stop) may take so long from now on."""
        return self._send(f"EXTEND_TIMEOUT_USEC={round(seconds * 1_000_000)}")

    def status(self, text: str) -> bool:
        """One line about the state, for people."""
        return self._send(*_status(text))

    def watchdog(self) -> bool:
        """A sign of life; send it from the serving loop only."""
        return self._send("WATCHDOG=1")

    def _send(self, *assignments: str) -> bool:
        if self._address is None:
            return False
        # A leading @ stands for the zero byte of an abstract name.
        address = f"\0{self._address[1:]}" if self._address[0] == "@" else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.settimeout(_SEND_TIMEOUT_S)
            try:
                sender.sendto("\n".join(assignments).encode(), address)
            except OSError:
                return False
        return True


def _status(text: str | None) -> tuple[str, ...]:
    return () if text is None else (f"STATUS={' '.join(text.split())}",)


def _watchdog_interval(environ: Mapping[str, str]) -> float | None:
    """Half of `WATCHDOG_USEC` in seconds, unless it is meant for another process."""
    try:
        allowed_us = int(environ.get("WATCHDOG_USEC", ""))
        process = int(environ.get("WATCHDOG_PID") or os.getpid())
    except ValueError:
        return None
    if allowed_us <= 0 or process != os.getpid():
        return None
    return allowed_us / 2_000_000
