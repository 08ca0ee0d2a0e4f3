"""The demo's daemon: a real child process, watched through its log."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Mapping

_START_S = 20.0
_STOP_S = 15.0
_KEPT_LINES = 20

MAAD = (sys.executable, "-m", "maadd.cli")
"""The command line of this very installation."""


def clean_environment(runtime_dir: str) -> dict[str, str]:
    """The environment of this process without settings of the user's own daemons."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MAAD_", "MAADD_", "_MAAD"))
    }
    return kept | {"MAADD_RUNTIME_DIR": runtime_dir}


def free_port() -> int:
    """A TCP port that nobody listened on a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Daemon:
    """A running `maadd`; `port` is where it listens."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.port = port
        self.pid = process.pid
        self._process = process
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._listening = asyncio.Event()
        self._reading = asyncio.create_task(self._read_log())

    @classmethod
    async def start(cls, instance_file: str, port: int, environment: Mapping[str, str]) -> Daemon:
        """A daemon that listens. Raises RuntimeError with the end of its log when it does not."""
        process = await asyncio.create_subprocess_exec(
            *MAAD,
            "serve",
            f"--instance={instance_file}",
            "--transport=http",
            f"--http-port={port}",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=dict(environment),
        )
        daemon = cls(process, port)
        try:
            await daemon._wait_until_it_listens()
        except BaseException:
            await daemon.end()
            raise
        return daemon

    @property
    def log_end(self) -> str:
        """The last lines of its log."""
        return "\n".join(self._lines)

    async def stop(self) -> int:
        """Ask it to end, as a service manager would; its exit code."""
        self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(_STOP_S):
            code = await self._process.wait()
        await self._reading
        return code

    async def end(self) -> None:
        """Make sure that it is gone: asked first, killed when it does not listen."""
        if self._process.returncode is None:
            try:
                await self.stop()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()

    async def _wait_until_it_listens(self) -> None:
        listening = asyncio.create_task(self._listening.wait())
        waiting = {listening, self._reading}
        await asyncio.wait(waiting, timeout=_START_S, return_when=asyncio.FIRST_COMPLETED)
        if not listening.done():
            listening.cancel()
            raise RuntimeError(f"the daemon did not start:\n{self.log_end}")

    async def _read_log(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            text = line.decode("utf-8", "replace").rstrip()
            self._lines.append(text)
            if _message(text) == "listening":
                self._listening.set()


def _message(line: str) -> str | None:
    try:
        event = json.loads(line)
    except json.JSONDecodeError:
        return None
    return event.get("msg") if isinstance(event, dict) else None
