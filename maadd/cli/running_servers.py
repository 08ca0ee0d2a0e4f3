"""Where the servers of an instance listen, and telling them of its tokens (spec 04 §7.3, §19)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing

from maadd.cli.control_client import ControlConnection, Unreachable
from maadd.config.instance import load_instance
from maadd.config.runtime_path import CONTROL_SOCKET, runtime_path
from maadd.config.settings import Settings
from maadd.protocol.control import SyncTokens
from maadd.protocol.errors import MaadErrors
from maadd.protocol.ownership import last_owner

_SYNC_S = 1.0
"""How long a command waits for servers to take a change over; they see it by themselves, too."""


def control_endpoints(path: str, settings: Settings) -> Iterator[str]:
    """Where the control socket of the server of an instance file may be: in the runtime
    directory as this environment has it, or where the owner of one of the projects says."""
    yield os.path.join(runtime_path(path, os.environ), CONTROL_SOCKET)
    try:
        projects = load_instance(path, settings).projects.values()
    except MaadErrors:
        # What is wrong with the file is for the server to say.
        return
    for project in projects:
        if (endpoint := last_owner(project.path).endpoint) is not None:
            yield endpoint


def sync_tokens(path: str, tokens_path: str, settings: Settings) -> list[str]:
    """Have the running servers of an instance file act by its token registry as it is now.

    Returns what those say that refuse it. A server that does not answer within a second is left
    to see the change by itself.
    """
    complaints = []
    request = SyncTokens(os.path.abspath(tokens_path))
    give_up = time.monotonic() + _SYNC_S
    for endpoint in dict.fromkeys(control_endpoints(path, settings)):
        if (left := give_up - time.monotonic()) <= 0:
            break
        try:
            with closing(ControlConnection(endpoint, left)) as connection:
                connection.ask(request, left)
        except Unreachable:
            continue
        except MaadErrors as failure:
            complaints.append(str(failure))
    return complaints
