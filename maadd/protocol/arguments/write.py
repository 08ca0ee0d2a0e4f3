"""Arguments of the record writes (spec 03 §4, §5.1) and of stored-record validation."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta

from maadd.protocol.arguments.base import (
    DeleteMode,
    IdempotencyKey,
    Limit,
    RecordFields,
    RoutedArguments,
    Version,
)

ContentHash = Annotated[str, Meta(description="contentHash you read")]
KnownVersion = Annotated[Version, Meta(description="version you read")]
Original = Annotated[
    str, Meta(description="text of a Markdown file; with body and field lines kept to the byte")
]
"""The whole text of an existing file, its frontmatter included. `fields` then are all fields of
the record: those that the file has with the same value keep their lines, others go."""


class ValidateArgs(RoutedArguments, frozen=True):
    """`maad_validate` (§4.3). Without `doc_id` the whole project, in pages when `limit` is
    given."""

    doc_id: str | None = None
    include_precision: bool = False
    include_constraints: bool = False
    limit: Annotated[Limit, Meta(description="records per page")] | None = None
    cursor: str | None = None


class CreateArgs(RoutedArguments, frozen=True):
    """`maad_create` (§4.1). Without `body` the type's template is rendered."""

    doc_type: str
    fields: RecordFields
    body: str | None = None
    doc_id: str | None = None
    idempotency_key: IdempotencyKey | None = None


class UpdateArgs(RoutedArguments, frozen=True):
    """`maad_update` (§4.2). `fields` UNSET means not given: an explicit null is
    `INVALID_FIELDS`."""

    doc_id: str
    fields: RecordFields = UNSET
    unset_fields: Annotated[tuple[str, ...], Meta(description="keys to remove")] = ()
    body: str | None = None
    append_body: str | None = None
    expected_version: KnownVersion | None = None
    expected_hash: ContentHash | None = None
    idempotency_key: IdempotencyKey | None = None


class BulkCreateRecord(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True
):
    """One item of `maad_bulk_create`. `original` takes the place of `body` (ours)."""

    doc_type: str
    fields: RecordFields
    body: str | None = None
    doc_id: str | None = None
    original: Original | None = None


class BulkCreateArgs(RoutedArguments, frozen=True):
    """`maad_bulk_create` (§4.4). The item cap has its own code, `BULK_LIMIT_EXCEEDED`."""

    records: tuple[BulkCreateRecord, ...]
    atomic: Annotated[bool, Meta(description="all or nothing")] = False
    idempotency_key: IdempotencyKey | None = None


class BulkUpdateItem(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True
):
    """One item of `maad_bulk_update`, with the rules of `maad_update`.

    `original` replaces the whole record (ours).
    """

    doc_id: str
    fields: RecordFields = UNSET
    unset_fields: tuple[str, ...] = ()
    body: str | None = None
    append_body: str | None = None
    expected_version: Version | None = None
    expected_hash: str | None = None
    original: str | None = None


class BulkUpdateArgs(RoutedArguments, frozen=True):
    """`maad_bulk_update` (§4.5)."""

    updates: tuple[BulkUpdateItem, ...]
    idempotency_key: IdempotencyKey | None = None


class DeleteArgs(RoutedArguments, frozen=True):
    """`maad_delete` (§5.1)."""

    doc_id: str
    mode: DeleteMode = "soft"
    on_inbound_refs: Literal["ignore", "refuse"] = "ignore"
    expected_version: KnownVersion | None = None
    expected_hash: ContentHash | None = None
    idempotency_key: IdempotencyKey | None = None
