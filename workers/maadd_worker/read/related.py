"""`maad_related`: the one-hop neighbours of a record (spec 02 §4.4)."""

from __future__ import annotations

from maadd.protocol.arguments import RelatedArgs
from maadd_worker.outcome import Outcome
from maadd_worker.read.context import ReadContext
from maadd_worker.read.edges import Neighbours, neighbours


def related(context: ReadContext, args: RelatedArgs) -> Outcome:
    """Refs and mentions of both sides; an id that is not live has none."""
    if context.reader.find(args.doc_id) is None:
        found = Neighbours([], [], truncated=False)
    else:
        found = neighbours(context.reader, args.doc_id, args.direction)
    return Outcome({"docId": args.doc_id, **found.view()})
