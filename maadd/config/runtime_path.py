"""Where fronts have their runtime directories (spec 04 §13). Nothing here touches one."""

from __future__ import annotations

import glob
import hashlib
import os
import tempfile
from collections.abc import Mapping

CONTROL_SOCKET = "control.sock"

FRONTS_AT_MOST = 64
"""So many fronts of one project or instance find a place."""


def instance_key(target: str) -> str:
    """16 hex digits for an instance file or project directory, the same for every path to it."""
    return hashlib.sha256(os.fsencode(os.path.realpath(target))).hexdigest()[:16]


def runtime_path(target: str, environ: Mapping[str, str]) -> str:
    """Where the front of `target` (instance file or project directory) has its directory."""
    if explicit := environ.get("MAADD_RUNTIME_DIR"):
        return os.path.abspath(explicit)
    return os.path.join(_base(environ), instance_key(target))


def control_sockets(environ: Mapping[str, str]) -> list[str]:
    """The control sockets of this user's fronts, as far as this environment leads to them;
    some may be left over from fronts that were killed."""
    base = environ.get("MAADD_RUNTIME_DIR") or _base(environ)
    places = (CONTROL_SOCKET, f"*/{CONTROL_SOCKET}", f"*/*/{CONTROL_SOCKET}")
    found = [path for place in places for path in glob.iglob(place, root_dir=base)]
    return [os.path.join(base, path) for path in found[:FRONTS_AT_MOST]]


def _base(environ: Mapping[str, str]) -> str:
    session = environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(session) and os.path.isdir(session):
        return os.path.join(session, "maadd")
    return os.path.join(tempfile.gettempdir(), f"maadd-{os.geteuid()}")
