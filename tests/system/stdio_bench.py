"""A server process on standard input and output."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from daemon_bench import BIN, ENVIRONMENT

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


class Stdio:
    """One server process and its two pipes."""

    def __init__(self, project: Path, *flags: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [BIN / "maad", f"--project={project}", "serve", *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={
                **ENVIRONMENT,
                "MAADD_RUNTIME_DIR": str(project.parent / "run"),
                "MAAD_LOG_LEVEL": "error",
                **environment,
            },
        )
        self._number = 1

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        self._number += 1
        self.send(
            {
                "jsonrpc": "2.0",
                "id": self._number,
                "method": "tools/call",
                "params": {"name": tool, "arguments": arguments},
            }
        )
        envelope: dict[str, Any] = json.loads(self.receive()["result"]["content"][0]["text"])
        return envelope

    def initialize(self) -> None:
        self.send(HELLO)
        assert self.receive()["result"]["serverInfo"]["name"] == "maad"
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
