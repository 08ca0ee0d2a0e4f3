"""A daemon over HTTP on a generated project, for as long as a measurement lasts."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ceilings import GIT_ENV, git

BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Daemon:
    """A running daemon: its port, a bearer token, its process id."""

    port: int
    token: str
    pid: int


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def init_repository(project: Path) -> None:
    """The repository that `maad init` makes, with every record committed."""
    maad("init", str(project))
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "corpus")


def maad(*arguments: str) -> str:
    """Run one command; its standard output."""
    done = subprocess.run(
        [str(BIN / "maad"), *arguments], check=True, capture_output=True, text=True, env=GIT_ENV
    )
    return done.stdout


@contextmanager
def serve(
    instance: Path,
    project: Path,
    *,
    history: str | None = None,
    settings: Mapping[str, str] | None = None,
    **others: Path,
) -> Iterator[Daemon]:
    """Serve `project` as "bench", and others by their names, with role admin until the block
    ends; `history` is the mode of "bench", None the one that the server finds; `settings` are
    more variables of the daemon."""
    instance.mkdir(exist_ok=True)
    config = instance / "instance.yaml"
    projects = [
        {"name": name, "path": str(path), "role": "admin"}
        for name, path in {"bench": project, **others}.items()
    ]
    if history is not None:
        projects[0]["history_mode"] = history
    config.write_text(json.dumps({"name": "bench", "projects": projects}))
    token = maad(
        "auth", "issue-token", f"--instance={config}", "--role=admin", "--projects=*"
    ).strip()
    port = free_port()
    environment = {
        **GIT_ENV,
        "MAAD_RL_DISABLE": "1",
        "MAAD_SESSION_MAX_PER_TOKEN": "128",
        "MAADD_RUNTIME_DIR": str(instance / "run"),
        "MAAD_LOG_LEVEL": os.environ.get("MAAD_LOG_LEVEL", "info"),
        **(settings or {}),
    }
    with (instance / "daemon.log").open("wb") as log:
        process = subprocess.Popen(
            [
                str(BIN / "maadd"),
                f"--instance={config}",
                "--transport=http",
                f"--http-port={port}",
            ],
            env=environment,
            stderr=log,
        )
        try:
            _wait(port, process)
            yield Daemon(port, token, process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
    raise RuntimeError("the daemon ended at start; see daemon.log")
