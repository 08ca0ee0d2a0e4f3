"""What the four cleanup tools share: preview unless confirmed, caps, tokens (spec 03 §5.2)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import msgspec

from maadd.protocol.arguments import CleanupArguments
from maadd.protocol.errors import MaadError
from maadd_worker.index.scope import build_scope
from maadd_worker.outcome import Advice, Outcome
from maadd_worker.write.context import WriteContext

CEILING = 1000
"""More records than this are never cleaned up in one call."""


class Target(msgspec.Struct, frozen=True):
    """A record in the scope of a call, as the index lists it."""

    doc_id: str
    doc_type: str
    file_path: str
    version: int
    updated_at: str


class Matching(msgspec.Struct, frozen=True):
    """`total` counts everything in the scope, `targets` are the first of it, by id."""

    total: int
    targets: tuple[Target, ...]
    advice: tuple[Advice, ...]


def is_confirmed(args: CleanupArguments) -> bool:
    """Only the JSON value true confirms."""
    return args.confirm is True


def record_limit(asked: object, configured: int) -> int:
    """`maxRecords` of a call: the argument where it is a number of at least 1, else the setting."""
    if isinstance(asked, bool) or not isinstance(asked, int | float):
        return configured
    if isinstance(asked, float) and not math.isfinite(asked):
        return configured
    return min(int(asked), CEILING) if asked >= 1 else configured


def refuse_excess(tool: str, received: int, limit: int) -> None:
    """BULK_LIMIT_EXCEEDED for a scope larger than the limit, in previews too."""
    if received > limit:
        raise MaadError(
            "BULK_LIMIT_EXCEEDED",
            f"{tool}: {received} records are in scope, the limit is {limit}; narrow the scope, or "
            f"raise maxRecords (at most {CEILING})",
            {"tool": tool, "received": received, "limit": limit, "suggestedChunkSize": limit},
        )


def matching(context: WriteContext, doc_type: str, filters: object, limit: int) -> Matching:
    """The live records of a type that pass the filters of `maad_query`.

    Raises UNKNOWN_TYPE, FILTER_*.
    """
    context.model.entry(doc_type)
    scope = build_scope(doc_type, filters, context.model)
    execute = context.writer.connection.execute
    total: Any = execute(f"SELECT count(*) FROM documents d WHERE {scope.sql}", scope.params).get
    rows = execute(
        "SELECT d.doc_id, d.doc_type, d.file_path, d.version, d.updated_at FROM documents d "
        f"WHERE {scope.sql} ORDER BY d.doc_id LIMIT ?",
        (*scope.params, limit),
    )
    advice = tuple(Advice(found.field, found.message, found.code) for found in scope.warnings)
    return Matching(total, tuple(Target(*row) for row in rows), advice)


def preview_token(targets: Sequence[Target]) -> str:
    """A digest of which records are affected, in which versions."""
    listing = sorted((target.doc_id, target.version) for target in targets)
    return hashlib.sha256(msgspec.json.encode(listing)).hexdigest()


def expect_preview(args: CleanupArguments, targets: Sequence[Target]) -> None:
    """VERSION_CONFLICT when the records are not those of the preview that the caller saw."""
    if args.expect_preview is not None and args.expect_preview != preview_token(targets):
        raise MaadError(
            "VERSION_CONFLICT",
            "the affected records are not those of the preview any more; preview again",
            {"reason": "preview_changed"},
        )


def preview(
    tool: str,
    targets: Sequence[Target],
    affected: Sequence[dict[str, Any]],
    extras: dict[str, Any],
    advice: Sequence[Advice] = (),
) -> Outcome:
    """The answer of a call that is not confirmed; nothing has happened."""
    data = {
        "dryRun": True,
        "tool": tool,
        "confirmMode": "dry_run",
        "totalAffected": len(affected),
        "affected": affected,
        **extras,
        "previewToken": preview_token(targets),
    }
    return Outcome(data, tuple(advice), rows=len(affected))
