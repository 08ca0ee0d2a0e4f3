"""What the host contracts need of the engine around them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from maadd.protocol.errors import MaadError
from maadd.protocol.messages import Call
from maadd_worker.contracts.git_reader import GitReader
from maadd_worker.contracts.observation import Preparations
from maadd_worker.contracts.safe_read import Check
from maadd_worker.contracts.snapshots import Snapshots
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.index.store import DocumentRow
from maadd_worker.schema.model import Model
from maadd_worker.write.context import WriteContext


class Surroundings(msgspec.Struct, frozen=True):
    """The project as its writer thread sees it. `epoch` grows with every reload."""

    project: str
    root: ProjectRoot
    mode: str
    epoch: int
    model: Callable[[], Model]
    find: Callable[[str], DocumentRow | None]
    """The live row of an id."""
    write_context: Callable[[], WriteContext]
    preparations: Preparations
    snapshots: Snapshots
    git: GitReader | None
    """None without a repository, or where the history mode is `feed`."""


def cancellation(call: Call, wanted: Callable[[str], bool]) -> Check:
    """What raises REQUEST_TIMEOUT once nobody waits for the call."""

    def check() -> None:
        if not wanted(call.request_id):
            raise MaadError(
                "REQUEST_TIMEOUT",
                f"{call.tool} was cancelled or ran out of time",
                {"tool": call.tool, "limitMs": call.deadline_ms},
            )

    return check
