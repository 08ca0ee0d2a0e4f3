"""Sockets of a service manager (spec 04 §9.7)."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import pytest

from maadd.ops.activation import InheritedSockets, take_inherited
from maadd.protocol.errors import MaadError


def environ_for(count: object, names: str = "", pid: int | None = None) -> dict[str, str]:
    meant_for = os.getpid() if pid is None else pid
    found = {"LISTEN_PID": str(meant_for), "LISTEN_FDS": str(count), "OTHER": "x"}
    return found | ({"LISTEN_FDNAMES": names} if names else {})


def at_a_run(*sockets: socket.socket) -> int:
    """Duplicates at consecutive descriptors; the first of them."""
    first = 200
    for place, one in enumerate(sockets, first):
        os.dup2(one.fileno(), place, inheritable=True)
    return first


def test_sockets_are_sorted_by_name_and_kept_from_children() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
        socket.create_server(("127.0.0.1", 0)) as three,
    ):
        environ = environ_for(3, "maadd.socket:metrics:mcp")
        found = take_inherited(environ, first=at_a_run(one, two, three))
        assert environ == {"OTHER": "x"}
        ports = [[s.getsockname()[1] for s in group] for group in (found.mcp, found.metrics)]
        assert ports == [
            [one.getsockname()[1], three.getsockname()[1]],
            [two.getsockname()[1]],
        ]
        for inherited in (*found.mcp, *found.metrics):
            assert not os.get_inheritable(inherited.fileno())
            inherited.close()


def test_without_names_all_carry_mcp() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        found = take_inherited(environ_for(1), first=at_a_run(one))
        assert (len(found.mcp), found.metrics) == (1, ())
        found.mcp[0].close()


@pytest.mark.parametrize(
    "environ", [{}, {"LISTEN_FDS": "1"}, environ_for(1, "mcp", pid=1), environ_for("")]
)
def test_what_is_not_meant_for_this_process_is_left(environ: dict[str, str]) -> None:
    assert take_inherited(environ) == InheritedSockets()
    assert not {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} & set(environ)


def datagram() -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound.bind(("127.0.0.1", 0))
    return bound


@pytest.mark.parametrize("make", [socket.socket, datagram, lambda: socket.socketpair()[0]])
def test_a_socket_that_does_not_listen_is_refused(make: Callable[[], socket.socket]) -> None:
    with make() as one:
        first = at_a_run(one)
        with pytest.raises(MaadError, match="ListenStream"):
            take_inherited(environ_for(1, "mcp"), first=first)


def test_variables_that_contradict_each_other_are_refused() -> None:
    for environ in (environ_for("some"), environ_for(2, "mcp")):
        with pytest.raises(MaadError) as caught:
            take_inherited(environ)
        assert caught.value.code == "INSTANCE_CONFIG_INVALID"


def test_a_descriptor_that_is_no_socket_is_refused() -> None:
    with open(os.devnull) as file:
        first = 210
        os.dup2(file.fileno(), first)
        try:
            with pytest.raises(MaadError, match="is no socket"):
                take_inherited(environ_for(1), first=first)
        finally:
            os.close(first)
