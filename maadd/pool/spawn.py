"""Starts worker processes; the only module of the front that knows the worker's package.

Workers are forked by a fork server that has their modules loaded: a start costs milliseconds
and the memory pages of code are shared. All functions block and belong on a thread.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.process
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Any, NamedTuple

from maadd.pool.runtime_dir import MAX_SOCKET_PATH
from maadd.protocol.messages import WorkerConfig
from maadd_worker.process.entry import PRELOADED, enter

_STATUS_WAIT_S = 5.0
"""For the word of a fork server that is alive and slow; that one is gone is known at once."""
_FORK_SERVER_SOCKET = "/listener-xxxxxxxx"


class WorkerProgram(NamedTuple):
    """What a worker process runs, and the modules that the fork server loads for it."""

    enter: Callable[[WorkerConfig], None]
    preload: tuple[str, ...]


SERVE = WorkerProgram(enter, PRELOADED)
"""The real engine."""


class WorkerProcess:
    """A process of ours. `end_fd` becomes readable when it has ended."""

    def __init__(self, process: multiprocessing.process.BaseProcess, lock: threading.Lock) -> None:
        pid = process.pid
        if pid is None:
            raise ValueError("the process is not started")
        self.pid = pid
        self._process = process
        self._lock = lock
        self._pid_fd = _open_pid_fd(pid)
        self._collected = False
        self._signalling = threading.Lock()
        """No signal goes to a number that the system has given to somebody else by then."""
        self.end_fd = self._pid_fd if self._pid_fd is not None else process.sentinel

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when the process has ended."""
        with self._signalling, contextlib.suppress(ProcessLookupError):
            if self._collected:
                return
            if self._pid_fd is not None:
                signal.pidfd_send_signal(self._pid_fd, number)
            else:
                os.kill(self.pid, number)

    def collect(self) -> int | None:
        """After `end_fd`: the exit code (negative = signal), and release of all descriptors.

        None when the fork server, which alone knows it, is gone.
        """
        with self._signalling:
            self._collected = True
        ended = bool(wait([self._process.sentinel], _STATUS_WAIT_S))
        with self._lock:
            code = self._process.exitcode if ended else None
            if code is not None:
                self._process.close()
        if self._pid_fd is not None:
            os.close(self._pid_fd)
            self._pid_fd = None
        # multiprocessing's stand-in for a status that it could not read.
        return None if code == 255 else code


class Spawner:
    """Starts workers that run `program`; `socket_dir` takes the fork server's socket."""

    def __init__(self, socket_dir: str, program: WorkerProgram = SERVE) -> None:
        self._socket_dir = socket_dir
        self._enter = program.enter
        # multiprocessing's table of children is no place for two threads at once.
        self._lock = threading.Lock()
        self._former: list[int] = []
        """Fork servers that nobody can reach any more, and that stay for their workers."""
        self._forks = "forkserver" in multiprocessing.get_all_start_methods()
        self._context: ForkServerContext | SpawnContext
        if self._forks:
            self._context = multiprocessing.get_context("forkserver")
            self._context.set_forkserver_preload(list(program.preload))
        else:
            self._context = multiprocessing.get_context("spawn")

    def warm(self) -> None:
        """Launch the fork server; it loads the worker's modules on its own time."""
        if self._forks:
            with self._lock, _without_main():
                self._choose_socket_dir()
                multiprocessing.forkserver.ensure_running()

    def start(self, config: WorkerConfig) -> WorkerProcess:
        """A new worker process for `config`."""
        self.warm()
        with self._lock, _without_main():
            process = self._context.Process(
                target=self._enter,
                args=(config,),
                name=f"maadd worker {config.project}",
                daemon=True,
            )
            process.start()
        return WorkerProcess(process, self._lock)

    def renew(self) -> None:
        """Where the fork server's socket was removed, have the next start launch another one.

        The old one stays with its workers, whose exit codes it alone knows.
        """
        if self._forks:
            with self._lock:
                self._give_up_unreachable()

    def stop(self) -> None:
        """End the fork server; to be called when all workers have ended."""
        if self._forks:
            with self._lock:
                self._give_up_unreachable()
                server = _fork_server()
                if server._forkserver_pid is not None:
                    # It may still be loading modules that nobody needs any more.
                    os.kill(server._forkserver_pid, signal.SIGTERM)
                server._stop()
                for pid in self._former:
                    os.kill(pid, signal.SIGTERM)
                    os.waitpid(pid, 0)
                self._former.clear()
                _process_settings().pop("tempdir", None)

    def _give_up_unreachable(self) -> None:
        server = _fork_server()
        if server._forkserver_pid is None or os.path.exists(server._forkserver_address):
            return
        # Each worker has the other end open as well: the server ends with the last of them.
        os.close(server._forkserver_alive_fd)
        self._former.append(server._forkserver_pid)
        server._forkserver_alive_fd = None
        server._forkserver_address = None
        server._forkserver_pid = None

    def _choose_socket_dir(self) -> None:
        """Keeps the fork server's socket out of the system's temporary directory.

        There it would outlive a killed front; ours is swept at the next start.
        """
        if len(os.fsencode(self._socket_dir + _FORK_SERVER_SOCKET)) <= MAX_SOCKET_PATH:
            _process_settings()["tempdir"] = self._socket_dir


def _fork_server() -> Any:
    # Not public. Without it the server ends by itself, but after this process.
    return multiprocessing.forkserver._forkserver


def _process_settings() -> dict[str, object]:
    """Multiprocessing's settings of this process; it has no public way to them."""
    current = multiprocessing.process.current_process()
    settings: dict[str, object] = current._config  # type: ignore[attr-defined]
    return settings


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Hides where `__main__` came from, so that a child does not run the program again.

    A child would import the console script, and with it everything the front has loaded.
    """
    main = sys.modules["__main__"]
    spec, file = main.__spec__, main.__dict__.pop("__file__", None)
    main.__spec__ = None
    try:
        yield
    finally:
        main.__spec__ = spec
        if file is not None:
            main.__file__ = file


def _open_pid_fd(pid: int) -> int | None:
    """A handle that survives the reuse of the process id; None where there is none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
