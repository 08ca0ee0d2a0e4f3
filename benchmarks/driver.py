"""A load driver for MCP over HTTP: raw keep-alive connections, each one call at a time.

It parses no more of an answer than it must, so that the measured server, not the driver,
sets the pace.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Load:
    """The outcome of one run: answers a second, latencies in milliseconds, failures."""

    rate: float
    p50_ms: float
    p99_ms: float
    count: int
    failures: int


class Connection:
    """One keep-alive HTTP connection."""

    def __init__(self, port: int, path: str, headers: dict[str, str]) -> None:
        self._port = port
        self._path = path
        self.headers = headers
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def post(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Send one POST and read its whole answer."""
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        assert self._reader is not None
        head = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        self._writer.write(
            f"POST {self._path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{head}"
            f"content-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        raw = await self._reader.readuntil(b"\r\n\r\n")
        status = int(raw[9:12])
        headers = {}
        for line in raw.decode("latin-1").split("\r\n")[1:-2]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if "content-length" in headers:
            return status, headers, await self._reader.readexactly(int(headers["content-length"]))
        if headers.get("transfer-encoding") != "chunked":
            return status, headers, b""
        parts = []
        while size := int(await self._reader.readline(), 16):
            parts.append(await self._reader.readexactly(size + 2))
        await self._reader.readline()
        return status, headers, b"".join(part[:-2] for part in parts)

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            await self._writer.wait_closed()


async def open_session(port: int, token: str, project: str) -> Connection:
    """A connection that is initialized and bound to `project`."""
    connection = Connection(
        port,
        "/mcp",
        {
            "authorization": f"Bearer {token}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        },
    )
    hello = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        },
    }
    status, headers, body = await connection.post(json.dumps(hello).encode())
    if status != 200:
        raise RuntimeError(f"initialize answered {status}: {body[:300]!r}")
    connection.headers["mcp-session-id"] = headers["mcp-session-id"]
    await connection.post(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    await connection.post(call_body("maad_use_project", {"name": project}))
    return connection


def call_body(tool: str, arguments: dict[str, object]) -> bytes:
    """The JSON-RPC request of one tool call."""
    return json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        },
        separators=(",", ":"),
    ).encode()


async def run_load(
    connections: list[Connection],
    bodies: Callable[[int], Iterator[bytes]],
    seconds: float,
    good: Callable[[int, bytes], bool],
) -> Load:
    """Every connection sends the bodies of its own iterator until the time is over."""
    latencies: list[float] = []
    failures = 0
    deadline = time.perf_counter() + seconds

    async def drive(number: int, connection: Connection) -> None:
        nonlocal failures
        for body in bodies(number):
            started = time.perf_counter()
            if started >= deadline:
                return
            status, _, answer = await connection.post(body)
            latencies.append(time.perf_counter() - started)
            if not good(status, answer):
                failures += 1

    started = time.perf_counter()
    await asyncio.gather(*(drive(number, one) for number, one in enumerate(connections)))
    elapsed = time.perf_counter() - started
    latencies.sort()
    count = len(latencies)
    return Load(
        rate=count / elapsed,
        p50_ms=latencies[count // 2] * 1000,
        p99_ms=latencies[min(count - 1, int(count * 0.99))] * 1000,
        count=count,
        failures=failures,
    )


def is_success(status: int, answer: bytes) -> bool:
    """Whether a tool call came to its end."""
    return status == 200 and b'{\\"ok\\":true' in answer


def data_of(answer: bytes) -> dict[str, Any]:
    """The `data` of a tool call's envelope."""
    message = json.loads(answer[answer.index(b'{"jsonrpc"') :])
    data: dict[str, Any] = json.loads(message["result"]["content"][0]["text"])["data"]
    return data


def figures(load: Load) -> dict[str, float]:
    """A run in which every call succeeded, for the table."""
    if load.failures:
        raise RuntimeError(f"{load.failures} of {load.count} calls failed")
    return {
        "per_s": round(load.rate, 1),
        "p50_ms": round(load.p50_ms, 3),
        "p99_ms": round(load.p99_ms, 3),
    }
