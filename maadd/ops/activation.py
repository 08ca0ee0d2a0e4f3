"""Sockets that the service manager opened before it started us (spec 04 §9.7, sd_listen_fds).

They arrive as descriptors from 3 on. Names tell what each is for: `metrics` is ours, all others
carry MCP.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

import msgspec

from maadd.protocol.errors import MaadError

METRICS_NAME = "metrics"

_FIRST = 3
_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


class InheritedSockets(msgspec.Struct, frozen=True):
    """Listening sockets by their use; both empty without socket activation."""

    mcp: tuple[socket.socket, ...] = ()
    metrics: tuple[socket.socket, ...] = ()


def take_inherited(environ: MutableMapping[str, str], *, first: int = _FIRST) -> InheritedSockets:
    """The sockets meant for this process; call once. The variables go, so that no child takes
    them for its own.

    Raises INSTANCE_CONFIG_INVALID for variables or descriptors that are not what they say.
    """
    meant_for, amount, names = (environ.pop(name, "") for name in _VARIABLES)
    if not amount or meant_for != str(os.getpid()):
        return InheritedSockets()
    try:
        number = int(amount)
    except ValueError:
        raise _refused(f"LISTEN_FDS={amount!r} is no number") from None
    named = names.split(":") if names else [""] * number
    if len(named) != number:
        raise _refused(f"LISTEN_FDNAMES has {len(named)} names for {number} descriptors")
    mcp: list[socket.socket] = []
    metrics: list[socket.socket] = []
    for descriptor, name in enumerate(named, first):
        (metrics if name == METRICS_NAME else mcp).append(_listening(descriptor, name))
    return InheritedSockets(tuple(mcp), tuple(metrics))


def _listening(descriptor: int, name: str) -> socket.socket:
    said = f"descriptor {descriptor} ({name or 'unnamed'}) of the service manager"
    try:
        os.set_inheritable(descriptor, False)
        found = socket.socket(fileno=descriptor)
    except OSError as error:
        raise _refused(f"{said} is no socket: {error.strerror}") from None
    if found.type != socket.SOCK_STREAM or not found.getsockopt(
        socket.SOL_SOCKET, socket.SO_ACCEPTCONN
    ):
        found.close()
        raise _refused(f"{said} does not listen for streams; use ListenStream= and Accept=no")
    found.setblocking(False)
    return found


def _refused(message: str) -> MaadError:
    return MaadError("INSTANCE_CONFIG_INVALID", message)
