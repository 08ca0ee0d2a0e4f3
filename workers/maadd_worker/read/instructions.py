"""`maad_instructions` check: the managed files beside those of this version (spec 03 §6.5)."""

from __future__ import annotations

from typing import Any

from maadd.protocol.arguments import InstructionsArgs
from maadd_worker.instructions.manifest import ENGINE
from maadd_worker.outcome import Outcome
from maadd_worker.read.context import ReadContext


def instructions(context: ReadContext, args: InstructionsArgs) -> Outcome:
    """The state of every managed file, and whether a refresh is possible here."""
    return Outcome(
        {
            "engineVersion": ENGINE,
            "files": context.instructions.statuses(),
            "canRefresh": not context.read_only,
        }
    )


def stale_members(context: ReadContext) -> dict[str, Any]:
    """What the summary says of the managed files; nothing when there is nothing to do."""
    stale = context.instructions.stale(read_only=context.read_only)
    members: dict[str, Any] = {}
    if stale:
        members["instructionsStale"] = [
            {"path": status.rel_path, "state": status.state} for status in stale
        ]
    if context.read_only and context.instructions.stale():
        members["canRefresh"] = False
    return members
