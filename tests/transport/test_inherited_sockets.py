"""Sockets of a service manager must be of the transport's kind (spec 04 §9.7)."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import structlog

from maadd.protocol.errors import MaadError
from maadd.transport.sockets import check_inherited


def judged(family: socket.AddressFamily, transport: str) -> None:
    with socket.socket(family) as one:
        check_inherited((one,), transport, structlog.wrap_logger(None))


def test_the_kinds_that_fit() -> None:
    judged(socket.AF_UNIX, "unix")
    with socket.create_server(("127.0.0.1", 0)) as one:
        check_inherited((one,), "http", structlog.wrap_logger(None))


@pytest.mark.parametrize(
    ("family", "transport"), [(socket.AF_UNIX, "http"), (socket.AF_INET, "unix")]
)
def test_the_kinds_that_do_not(family: socket.AddressFamily, transport: str) -> None:
    with pytest.raises(MaadError, match="MAAD_TRANSPORT agree") as caught:
        judged(family, transport)
    assert caught.value.code == "INSTANCE_CONFIG_INVALID"


def test_an_address_beyond_loopback_is_told() -> None:
    events: list[dict[str, Any]] = []

    def keep(_logger: object, _level: str, event: dict[str, Any]) -> Any:
        events.append(event)
        raise structlog.DropEvent

    with socket.create_server(("0.0.0.0", 0)) as one:
        check_inherited((one,), "http", structlog.wrap_logger(None, processors=[keep]))
    assert [event["event"] for event in events] == ["http_bound_beyond_loopback"]
