"""The listener of the metrics: who may ask, and what for (spec 04 §9.9, trap 30)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
import uvloop

from maadd.protocol.errors import MaadError
from maadd.transport.metrics_http import MetricsServer

TYPE = "text/plain; version=1.0.0"


def serve(
    at: int | str | None,
    ask: Callable[[list[Any]], Awaitable[list[bytes]]],
    *,
    inherited: tuple[socket.socket, ...] = (),
    render: Callable[[], bytes] = lambda: b"maadd_up 1\n",
) -> tuple[list[bytes], list[dict[str, Any]]]:
    """What `ask`, given the listener's log, came back with, and the log."""
    events: list[dict[str, Any]] = []

    def keep(_logger: object, _level: str, event: dict[str, Any]) -> Any:
        events.append(event)
        raise structlog.DropEvent

    async def main() -> list[bytes]:
        server = MetricsServer(lambda: render, TYPE, structlog.wrap_logger(None, processors=[keep]))
        await server.start(at, inherited)
        try:
            return await ask(events)
        finally:
            await server.close()

    return uvloop.run(main()), events


def asking(*requests: bytes, path: str | None = None) -> Any:
    """Sends each request on a connection of its own."""

    async def ask(events: list[Any]) -> list[bytes]:
        answers = []
        for request in requests:
            if path is None:
                host, _, port = events[0]["address"].rpartition(":")
                reader, writer = await asyncio.open_connection(host, int(port))
            else:
                reader, writer = await asyncio.open_unix_connection(path)
            writer.write(request)
            answers.append(await reader.read())
            writer.close()
        return answers

    return ask


def request(line: str = "GET /metrics", host: str = "127.0.0.1:9464", *headers: str) -> bytes:
    lines = [f"{line} HTTP/1.1", f"Host: {host}", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode()


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def test_a_scrape_is_answered_whatever_address_it_names() -> None:
    hosts = ("127.0.0.1:9464", "localhost:9464", "LOCALHOST", "[::1]:9464", "10.1.2.3", "[fd00::1]")
    answers, _ = serve(free_port(), asking(*(request(host=host) for host in hosts)))
    for answer in answers:
        head, _, body = answer.partition(b"\r\n\r\n")
        assert status(answer) == 200, answer
        assert f"content-type: {TYPE}".encode() in head
        assert b"x-content-type-options: nosniff" in head
        assert body == b"maadd_up 1\n"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (request("GET /metrics", "127.0.0.1", "Origin: http://evil.example"), 403),
        (request("GET /metrics", "evil.example", "Origin: http://evil.example"), 403),
        (request("GET /metrics", "127.0.0.1", "Origin: null"), 403),
        (request("GET /metrics", "127.0.0.1", "Origin: http://127.0.0.1"), 403),
        (request("GET /metrics", "evil.example:9464"), 403),
        (request("GET /metrics", "localhost.evil.example"), 403),
        (request("GET /metrics", ""), 403),
        (request("OPTIONS /metrics", "127.0.0.1", "Origin: http://evil.example"), 403),
        (request("GET /"), 404),
        (request("GET /mcp"), 404),
        (request("GET /metrics/"), 404),
        (request("POST /metrics"), 405),
        (b"nonsense\r\n\r\n", 400),
    ],
)
def test_everything_else_is_refused(asked: bytes, expected: int) -> None:
    (answer,), _ = serve(free_port(), asking(asked))
    assert status(answer) == expected
    assert b"maadd_up" not in answer
    assert b"access-control" not in answer.lower()


def test_the_body_behind_an_offer_of_another_protocol_is_no_scrape() -> None:
    inner = request()
    asked = request("POST /", "127.0.0.1", "Upgrade: h2c", f"Content-Length: {len(inner)}").replace(
        b"Connection: close", b"Connection: close, Upgrade"
    )
    (answer,), _ = serve(free_port(), asking(asked + inner))
    assert status(answer) == 404
    assert answer.count(b"HTTP/1.1 ") == 1


def test_a_unix_socket_serves_any_host_and_no_page(tmp_path: Path) -> None:
    path = str(tmp_path / "m.sock")
    asked = request(host="scraper"), request("GET /metrics", "scraper", "Origin: http://scraper")
    answers, events = serve(path, asking(*asked, path=path))
    assert [status(answer) for answer in answers] == [200, 403]
    assert events[0]["address"] == path
    assert not Path(path).exists()


def test_a_socket_of_the_service_manager_is_used_and_left(tmp_path: Path) -> None:
    path = str(tmp_path / "passed.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(path)
        listening.listen()
        (answer,), _ = serve(None, asking(request(), path=path), inherited=(listening.dup(),))
    assert status(answer) == 200
    assert Path(path).exists()


def test_a_failure_to_write_them_is_logged_and_named() -> None:
    def fail() -> bytes:
        raise RuntimeError("broken")

    (answer,), events = serve(free_port(), asking(request()), render=fail)
    assert status(answer) == 500
    assert b"INTERNAL" in answer
    assert events[-1]["event"] == "metrics_failed"


def test_an_address_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(MaadError) as caught:
        serve(taken.getsockname()[1], asking(request()))
    assert caught.value.code == "INSTANCE_CONFIG_INVALID"
