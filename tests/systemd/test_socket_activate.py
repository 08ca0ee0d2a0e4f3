"""The daemon behind systemd-socket-activate, as a person tries a socket unit."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

from daemon_bench import BIN, ENVIRONMENT, Instance, eventually


def test_a_connection_starts_it_on_a_unix_socket(tmp_path: Path) -> None:
    instance = Instance(tmp_path, records=0)
    path, log = tmp_path / "mcp.sock", tmp_path / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [
                "systemd-socket-activate",
                f"--listen={path}",
                "--fdname=mcp",
                "--setenv=PATH",
                *(f"--setenv={name}" for name in ENVIRONMENT),
                f"--setenv=MAADD_RUNTIME_DIR={tmp_path / 'run'}",
                str(BIN / "maadd"),
                f"--instance={instance.path}",
                "--transport=unix",
            ],
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            stderr=errors,
        )
    try:
        assert eventually(path.exists)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(20)
            connection.connect(str(path))
            connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
        assert answer.endswith(b'{"ok":true}'), log.read_text()
    finally:
        process.terminate()
        assert process.wait(20) == 0
    # It is the manager's socket, not ours to remove.
    assert path.exists()
