"""`maad_instructions` refresh as an answer: what was written, and how durable it is (03 §6.5)."""

from __future__ import annotations

from maadd.protocol.arguments import InstructionsArgs
from maadd_worker.instructions.refresh import RefreshContext, refresh
from maadd_worker.outcome import Outcome, boundary_audit
from maadd_worker.write.answer import durability


def refresh_instructions(context: RefreshContext, args: InstructionsArgs, mode: str) -> Outcome:
    """Refresh the managed files; `mode` is the history mode. Raises what `refresh` raises."""
    done = refresh(context, args)
    if done.history is None:
        return Outcome(done.data)
    meta = durability(done.data, done.history, context.history.pending_writes, mode)
    written = done.data["written"]
    audit = boundary_audit(done.history.sha) | {"files": written} if written else None
    return Outcome(done.data, meta=meta, audit=audit)
