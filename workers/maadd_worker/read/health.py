"""`maad_health`, the part that the index knows (spec 03 §6.3)."""

from __future__ import annotations

from typing import Any

import msgspec

from maadd.protocol.arguments import HealthArgs
from maadd_worker.index.empty_guard import LOST_SHARE
from maadd_worker.index.stamps import VERSIONS_RESET_KEY
from maadd_worker.outcome import Outcome
from maadd_worker.read.context import ReadContext
from maadd_worker.read.summary import BOOTSTRAP_HINT
from maadd_worker.semantic.health import no_embeddings

SWEEP_AT_KEY = "last_integrity_sweep_at"
SWEEP_FINDINGS_KEY = "last_integrity_findings"
BACKUP_TAG_KEY = "last_backup_tag"

_FEW_FILES = 10
"""Files that wait in any busy project."""


def health(context: ReadContext, args: HealthArgs) -> Outcome:
    """Counts and remembered results, beside what the engine reports of itself."""
    counters = context.reader.counters()
    empty = not context.model.registry.types and counters.documents == 0
    data: dict[str, Any] = {
        "indexExists": counters.documents > 0,
        "lastIndexedAt": counters.last_indexed_at,
        "totalDocuments": counters.documents,
        "emptyProject": empty,
        "bootstrapHint": BOOTSTRAP_HINT if empty else None,
        "lastIntegritySweepAt": context.reader.meta_get(SWEEP_AT_KEY),
        "lastIntegrityFindings": _stored_object(context, SWEEP_FINDINGS_KEY),
        "embeddings": no_embeddings()
        if context.semantic is None
        else context.semantic.health(context.reader.connection),
        "lastBackupTag": _stored_object(context, BACKUP_TAG_KEY),
    }
    report = context.engine_report()
    advisories = list(report.get("advisories", []))
    if context.reader.meta_get(VERSIONS_RESET_KEY) is not None:
        data["versionsReset"] = True
        advisories.append(_VERSIONS_RESET)
    pending = report.get("watcher", {}).get("pendingEvents", 0)
    if pending > max(_FEW_FILES, counters.documents * LOST_SHARE):
        data["indexIncomplete"] = True
        advisories.append(
            {
                "code": "indexIncomplete",
                "message": f"{pending} files may have changed since they were indexed; they are "
                "being looked at",
            }
        )
    return Outcome(report | data | {"advisories": advisories})


_VERSIONS_RESET = {
    "code": "versionsReset",
    "message": "the index was made anew over files that were there, and the versions of some of "
    "their records could not be told from Git; they began at 1",
}


def _stored_object(context: ReadContext, key: str) -> dict[str, Any] | None:
    """A JSON object of `engine_meta`; None when it is absent or cannot be read."""
    text = context.reader.meta_get(key)
    if text is None:
        return None
    try:
        value = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return None
    return value
