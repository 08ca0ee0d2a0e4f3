"""Listening sockets of the http and unix transports (spec 04 §9.7)."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Sequence

from structlog.typing import FilteringBoundLogger

from maadd.protocol.errors import MaadError

_BACKLOG = 2048
_MAX_UNIX_PATH = 107
"""Bytes of a socket path that the system takes."""
_LOOPBACK = ("127.", "::1", "localhost")
_FAMILIES = {"http": (socket.AF_INET, socket.AF_INET6), "unix": (socket.AF_UNIX,)}


def listen_tcp(host: str, port: int, log: FilteringBoundLogger) -> socket.socket:
    """A socket on `host:port`; port 0 takes a free one. Raises INSTANCE_CONFIG_INVALID."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise _refused(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    _warn_beyond_loopback(host, port, log)
    return listening


def listen_unix(path: str, mode: int, log: FilteringBoundLogger) -> socket.socket:
    """A socket at `path` with permission bits `mode`.

    A dead socket at the path is replaced; a live one and any other file are left alone and
    refuse the start with INSTANCE_CONFIG_INVALID, like a path that is too long.
    """
    if len(os.fsencode(path)) > _MAX_UNIX_PATH:
        raise _refused(f"the socket path is longer than {_MAX_UNIX_PATH} bytes: {path}")
    _remove_dead_socket(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    umask = os.umask(0o177)
    try:
        listening.bind(path)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise _refused(f"cannot listen on {path}: {error.strerror or error}") from None
    finally:
        os.umask(umask)
    try:
        os.chmod(path, mode)
    except OSError as error:
        log.warning("unix_socket_mode_failed", mode=oct(mode), error=error.strerror)
    return listening


def check_inherited(
    sockets: Sequence[socket.socket], transport: str, log: FilteringBoundLogger
) -> None:
    """INSTANCE_CONFIG_INVALID unless a service manager's sockets are of the transport's kind."""
    for one in sockets:
        if one.family not in _FAMILIES[transport]:
            kind = "a unix" if one.family == socket.AF_UNIX else "an internet"
            raise _refused(
                f"the service manager passed {kind} socket, which the {transport} transport "
                "cannot serve; make ListenStream= and MAAD_TRANSPORT agree"
            )
        if one.family != socket.AF_UNIX:
            host, port = one.getsockname()[:2]
            _warn_beyond_loopback(host, port, log)


def remove_socket(path: str) -> None:
    """Unlink our socket; fine when somebody was faster."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _warn_beyond_loopback(host: str, port: int, log: FilteringBoundLogger) -> None:
    if not host.startswith(_LOOPBACK):
        log.warning("http_bound_beyond_loopback", host=host, port=port)


def _remove_dead_socket(path: str) -> None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _refused(f"cannot look at {path}: {error.strerror}") from None
    if not stat.S_ISSOCK(found.st_mode):
        raise _refused(f"{path} exists and is no socket; remove it or choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        except OSError as error:
            raise _refused(f"cannot probe {path}: {error.strerror}") from None
        else:
            raise _refused(f"another server listens on {path}")


def _refused(message: str) -> MaadError:
    return MaadError("INSTANCE_CONFIG_INVALID", message)
