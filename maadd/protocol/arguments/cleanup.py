"""Arguments of the four cleanup tools, which preview unless confirmed (spec 03 §5.2-5.6)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from maadd.protocol.arguments.base import (
    Confirm,
    DeleteMode,
    Filters,
    IdempotencyKey,
    MaxRecords,
    RoutedArguments,
)

RepairType = Literal["prune_orphan_refs", "fix_schema_drift"]


class CleanupArguments(RoutedArguments, frozen=True, kw_only=True):
    """The confirm contract (§5.2): only `confirm` true executes; `expect_preview` is the
    `previewToken` of a preview whose set of records must still be the same."""

    confirm: Confirm = None
    max_records: MaxRecords = None
    expect_preview: Annotated[str, Meta(description="previewToken")] | None = None
    idempotency_key: IdempotencyKey | None = None


class BulkDeleteArgs(CleanupArguments, frozen=True):
    """`maad_bulk_delete` (§5.3)."""

    doc_ids: Annotated[tuple[str, ...], Meta(min_length=1)]
    mode: DeleteMode = "soft"


class DeleteWhereArgs(CleanupArguments, frozen=True):
    """`maad_delete_where` (§5.4). A confirmed call on a whole type needs explicit `{}`."""

    doc_type: str
    filters: Filters = None
    mode: DeleteMode = "soft"


class PurgeSoftDeletedArgs(CleanupArguments, frozen=True):
    """`maad_purge_soft_deleted` (§5.5)."""

    older_than: Annotated[str, Meta(description="ISO 8601 time")] | None = None


class RepairWhereArgs(CleanupArguments, frozen=True):
    """`maad_repair_where` (§5.6). Repairs run in the given order."""

    doc_type: str
    repair_types: Annotated[tuple[RepairType, ...], Meta(min_length=1)]
    filters: Filters = None
