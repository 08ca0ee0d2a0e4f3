"""Writes that concern the whole project, beside the reindex (spec 03 §6)."""

from __future__ import annotations

import contextlib

from maadd.protocol.errors import MaadError
from maadd.protocol.messages import Call
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.history.controller import HistoryController
from maadd_worker.index.counters import read_type_state
from maadd_worker.index.store import IndexWriter
from maadd_worker.outcome import Outcome
from maadd_worker.schema.model import Model, load_model


def changes_nothing(call: Call) -> bool:
    """Whether a write-kind call is harmless by its arguments, so that mode `read` serves it."""
    return call.tool == "maad_flush" or lists_backups(call)


def lists_backups(call: Call) -> bool:
    """Whether the call only looks at the backups that exist."""
    return call.tool == "maad_backup" and call.args.get("mode") == "list"


def reload_model(
    root: ProjectRoot, before: Model, writer: IndexWriter, history: HistoryController
) -> tuple[Model, Outcome]:
    """Read registry and schemas anew, and commit what is pending under the old ones.

    Raises the load errors of registry and schemas; nothing has changed then.
    """
    after = load_model(root)
    with contextlib.suppress(MaadError):  # what stays pending stands in health
        history.flush("recovery")
    old, new = set(before.registry.types), set(after.registry.types)
    plans = writer.type_plans(after)
    states = {
        name: read_type_state(writer.connection, name, plans.fingerprint(name))
        for name in after.registry.types
    }
    stale = [name for name, state in states.items() if state.current != state.documents]
    changed = (ref for ref, schema in after.schemas.items() if before.schemas.get(ref) != schema)
    return after, Outcome(
        {
            "reloaded": True,
            "registeredTypes": len(new),
            "typesAdded": sorted(new - old),
            "typesRemoved": sorted(old - new),
            "schemasChanged": sorted(changed),
            "indexStaleTypes": stale,
        }
    )
