"""A call that does not end, and the figures that show it."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any

from daemon_bench import Client, eventually


class StuckCall:
    """A call that is in a worker which stands still. The daemon serves its metrics."""

    def __init__(
        self,
        client: Client,
        metrics: Path,
        project: str = "main",
        *,
        tool: str = "maad_get",
        **arguments: Any,
    ) -> None:
        self._client = client
        self._tool, self._arguments = tool, arguments or {"docId": "nte-1"}
        self.answer: dict[str, Any] | None = None
        """None when the daemon left without one."""
        self.worker: int = client.ok("maad_health")["worker"]["pid"]
        os.kill(self.worker, signal.SIGSTOP)
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()
        held = b'maadd_worker_calls_held{project="%s"} 1' % project.encode()
        assert eventually(lambda: held in scrape(metrics))

    def _ask(self) -> None:
        # The daemon may leave before it can answer.
        with contextlib.suppress(OSError, http.client.HTTPException, AssertionError, ValueError):
            self.answer = self._client.call(self._tool, **self._arguments)

    def join(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive()


def scrape(metrics: Path) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(metrics))
        connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: connection.recv(65_536), b""))
