"""Instances and daemons for one test each."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
# Behind our own: helpers there have names of their own, test modules do not.
sys.path.append(str(Path(__file__).parents[1] / "transport"))

from daemon_bench import TRANSCRIPTS, Daemon, Instance, eventually, is_alive

collect_ignore = [] if TRANSCRIPTS.is_dir() else ["test_transcripts.py"]


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return Instance(tmp_path, indexed=True)


@pytest.fixture
def unindexed(tmp_path: Path) -> Instance:
    """The same without its index, which a daemon makes with MAAD_BOOT_REINDEX=1."""
    return Instance(tmp_path)


StartDaemon = Callable[..., Daemon]


@pytest.fixture
def start() -> Iterator[StartDaemon]:
    """Starts daemons; each is killed at the end if it still runs."""
    started: list[Daemon] = []

    def starter(instance: Instance, *flags: str, **how: Any) -> Daemon:
        daemon = Daemon(instance.path, *flags, **how)
        started.append(daemon)
        return daemon

    yield starter
    for daemon in started:
        below = daemon.descendants()
        daemon.stop(signal.SIGKILL)
        assert eventually(lambda ids=below: not any(map(is_alive, ids)), 5)
