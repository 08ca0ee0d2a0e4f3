"""The end of a request in time, however slowly the answer trickles in (spec 02 §6.5).

Timeouts of an HTTP client limit each read. Here the connection is shut down once the time of
the whole request is over, which ends the read that waits.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any


class Line:
    """The latest connection of a client that has one at a time, seen through its `trace`.

    The socket is a duplicate: that of the client is replaced when TLS starts.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._over = False

    def trace(self, event: str, info: dict[str, Any]) -> None:
        """Hears of a new connection from httpcore."""
        if event != "connection.connect_tcp.complete":
            return
        made: socket.socket = info["return_value"].get_extra_info("socket")
        with self._lock:
            self._close()
            self._socket = made.dup()
            if self._over:
                self._shut_down()

    @contextlib.contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Shut the connection down when the block takes longer, and when it raises;
        `is_over` tells whether it was the time."""
        with self._lock:
            self._over = False
        timer = threading.Timer(seconds, self._end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except BaseException:
            with self._lock:
                self._shut_down()
            raise
        finally:
            timer.cancel()
            timer.join()

    @property
    def is_over(self) -> bool:
        """Whether the latest limit was reached."""
        return self._over

    def _end(self) -> None:
        with self._lock:
            self._over = True
            self._shut_down()

    def _shut_down(self) -> None:
        if self._socket is not None:
            # The other side may have gone first.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._close()

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
