"""Stands in for systemd: a notification socket, and sockets handed to the daemon."""

from __future__ import annotations

import json
import os
import queue
import shlex
import signal
import socket
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

from daemon_bench import BIN, ENVIRONMENT
from units import FOLDER, INSTALLED, values

_STARTER = Path(__file__).parent / "start_like_systemd.py"


class ServiceManager:
    """Starts one daemon and hears its notifications."""

    def __init__(self, instance: Path) -> None:
        self._instance = instance
        self._notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._name = f"@maadd-manager-{uuid.uuid4()}"
        self._notices.bind(self._name.replace("@", "\0", 1))
        self._heard: queue.Queue[bytes] = queue.Queue()
        # The system keeps only a few datagrams for a reader; pings would push out the others.
        threading.Thread(target=self._listen, daemon=True).start()
        self._log = instance.parent / "daemon.log"
        self.watchdog_pings = 0
        self.process: subprocess.Popen[bytes]

    def start(self, sockets: dict[str, socket.socket], *flags: str, **environment: str) -> None:
        """Start the daemon with these listening sockets, by name."""
        numbers = []
        for place, listening in enumerate(sockets.values(), 100):
            os.dup2(listening.fileno(), place)
            numbers.append(place)
        try:
            with self._log.open("wb") as log:
                self.process = subprocess.Popen(
                    [sys.executable, str(_STARTER), str(BIN / "maadd"),
                     f"--instance={self._instance}", *flags],
                    env={
                        **ENVIRONMENT,
                        "MAADD_RUNTIME_DIR": str(self._instance.parent / "run"),
                        "NOTIFY_SOCKET": self._name,
                        "LISTEN_FDS": str(len(sockets)),
                        "LISTEN_FDNAMES": ":".join(sockets),
                        **environment,
                    },
                    stdin=subprocess.DEVNULL,
                    stderr=log,
                    pass_fds=numbers,
                )  # fmt: skip
        finally:
            for place in numbers:
                os.close(place)

    @property
    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def next_notice(self) -> dict[str, str]:
        """The next datagram that is no watchdog ping."""
        while True:
            text = self._heard.get(timeout=20).decode()
            if text != "WATCHDOG=1":
                return dict(line.split("=", 1) for line in text.splitlines())
            self.watchdog_pings += 1

    def await_ping(self) -> None:
        assert self._heard.get(timeout=20) == b"WATCHDOG=1"

    def _listen(self) -> None:
        while text := self._notices.recv(4096):
            self._heard.put(text)

    def reload(self) -> subprocess.CompletedProcess[str]:
        """Run the unit's `ExecReload=` as the service's user would."""
        (command,) = values(FOLDER / "maadd.service", "ExecReload")
        words = command.replace(INSTALLED, f"{BIN}/").replace(
            "${MAAD_INSTANCE}", str(self._instance)
        )
        return subprocess.run(
            shlex.split(words),
            env={**ENVIRONMENT, "MAADD_RUNTIME_DIR": str(self._instance.parent / "run")},
            capture_output=True,
            text=True,
            check=False,
        )

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(20)
        # An empty datagram ends the thread.
        self._notices.sendto(b"", self._notices.getsockname())
