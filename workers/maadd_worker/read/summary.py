"""`maad_summary`: the cheap snapshot an agent starts with (spec 02 §3.2)."""

from __future__ import annotations

from typing import Any

from maadd.protocol.arguments import SummaryArgs
from maadd_worker.outcome import Outcome
from maadd_worker.read.context import ReadContext
from maadd_worker.read.instructions import stale_members

BOOTSTRAP_HINT = "_skills/architect-core.md"
"""The guide an agent reads first in a project that holds nothing yet."""

_SAMPLES = """
SELECT doc_id FROM documents WHERE deleted = 0 AND doc_type = ?
ORDER BY indexed_at DESC, doc_id DESC LIMIT 3
"""

_PROVENANCE = {
    "on": [
        "Mark every value you state: [T] when a tool answered it here, [R] when you recall it.",
        "In a table that mixes both, add a source column or a footnote.",
        "Never present an [R] value as certain.",
    ],
    "detail": [
        "Mark every value: [T:<tool>] with the tool that answered it, [R] when you recall it.",
        "Mark a value that you derived from others with [R*].",
        "In a table that mixes sources, add a source column or a footnote.",
        "Never present an [R] or [R*] value as certain.",
        "When you skipped one look-up per row to save calls, say which values were recalled.",
    ],
}


def summary(context: ReadContext, args: SummaryArgs) -> Outcome:
    """Counts per type with sample ids, totals and warnings; no record is read."""
    counters = context.reader.counters()
    execute = context.reader.connection.execute
    types = context.model.registry.types
    empty = not types and counters.documents == 0
    data: dict[str, Any] = {
        "types": [
            {
                "type": name,
                "count": counters.documents_by_type.get(name, 0),
                "sampleIds": [doc_id for (doc_id,) in execute(_SAMPLES, (name,))],
            }
            for name in types
        ],
        "totalDocuments": counters.documents,
        "totalObjects": counters.objects,
        "totalRelationships": counters.relationships,
        "lastIndexedAt": counters.last_indexed_at,
        "warnings": {
            "brokenRefs": counters.broken_refs,
            "validationErrors": counters.invalid,
            "partialDocs": counters.partial,
        },
        "emptyProject": empty,
        "bootstrapHint": BOOTSTRAP_HINT if empty else None,
        "readOnly": context.read_only,
        **stale_members(context),
    }
    mode = context.settings.provenance
    if mode in _PROVENANCE:
        data["provenance"] = {"mode": mode, "instructions": _PROVENANCE[mode]}
    return Outcome(data)
