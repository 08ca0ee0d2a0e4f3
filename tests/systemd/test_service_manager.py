"""A daemon under a service manager and the restrictions of its unit: notifications, reloads,
sockets, work (spec 04 §15, traps 33, 36)."""

from __future__ import annotations

import http.client
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_bench import Client, Instance
from service_manager import ServiceManager


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[ServiceManager]:
    made = ServiceManager(tmp_path / "instance.yaml")
    yield made
    made.close()


def get(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def test_a_life_under_a_service_manager(tmp_path: Path, manager: ServiceManager) -> None:
    instance = Instance(tmp_path, records=0)
    with (
        socket.create_server(("127.0.0.1", 0)) as mcp,
        socket.create_server(("127.0.0.1", 0)) as metrics,
    ):
        port, metrics_port = mcp.getsockname()[1], metrics.getsockname()[1]
        manager.start({"mcp": mcp, "metrics": metrics}, "--transport=http", WATCHDOG_USEC="400000")
        assert manager.next_notice() == {"READY": "1", "STATUS": "serving 1 projects"}
        manager.await_ping()

        client = Client(port, instance.token)
        client.initialize()
        assert client.ok("maad_use_project", name="main")["effectiveRole"] == "admin"
        written = client.call("maad_create", docType="note", fields={"title": "Restricted"})
        assert written["_meta"]["history"]["outcome"] == "committed"
        status, text = get(metrics_port, "/metrics")
        assert (status, b'maadd_sessions{transport="http"} 1.0' in text) == (200, True)
        assert get(port, "/metrics")[0] == 404
        assert get(metrics_port, "/mcp")[0] == 404

        before = time.monotonic_ns() // 1000
        manager.signal(signal.SIGHUP)
        begun = manager.next_notice()
        assert begun["RELOADING"] == "1"
        assert before <= int(begun["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
        assert set(manager.next_notice()) == {"EXTEND_TIMEOUT_USEC"}
        told = manager.next_notice()
        assert (told["READY"], told["STATUS"][-26:]) == ("1", "reloads: 1 done, 0 refused")

        good = instance.path.read_text()
        instance.path.write_text("name: [")
        manager.signal(signal.SIGHUP)
        assert manager.next_notice()["RELOADING"] == "1"
        manager.next_notice()
        told = manager.next_notice()
        assert (told["READY"], told["STATUS"][-26:]) == ("1", "reloads: 1 done, 1 refused")
        assert client.ok("maad_current_session")["activeProject"] == "main"

        refused = manager.reload()
        assert refused.returncode == 1
        assert "INSTANCE_RELOAD_FAILED" in refused.stderr
        for _ in range(3):
            told = manager.next_notice()
        assert told["READY"] == "1"
        instance.path.write_text(good)
        assert manager.reload().returncode == 0
        for _ in range(3):
            told = manager.next_notice()
        assert told["STATUS"].endswith("2 done, 2 refused")

        # An open stream does not keep it from ending.
        stream = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        stream.request("GET", "/mcp", headers={**client._headers, "Accept": "text/event-stream"})
        assert stream.getresponse().status == 200
        manager.signal(signal.SIGTERM)
        assert manager.next_notice() == {"STOPPING": "1", "STATUS": "draining"}
        assert manager.next_notice() == {"EXTEND_TIMEOUT_USEC": "25000000"}
        assert manager.process.wait(20) == 0
        # The port stays open for the next start: a client waits in the queue.
        with socket.create_connection(("127.0.0.1", port)) as waiting:
            assert waiting.getpeername()[1] == port
