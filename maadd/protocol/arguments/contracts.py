"""Arguments of the three strict tools (spec 05 §1, §9.1)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from maadd.protocol.arguments.base import ConflictingArguments, Digest, RoutedArguments

HistoryMode = Literal["audit", "feed", "read", "batch", "snapshot"]
ShortText = Annotated[str, Meta(min_length=1, max_length=256)]


class Delivery(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True
):
    """Paged delivery of a strict read; `max_bytes` is the result budget of one page."""

    format: Literal["compact-json-v1"]
    max_bytes: Annotated[int, Meta(ge=8_192, le=1_048_576)] | None = None
    cursor: Annotated[str, Meta(max_length=128)] | None = None


class DocumentReceiptArgs(RoutedArguments, frozen=True):
    """`maad_document_receipt` (§1.3)."""

    contract: Literal["document-persistence-v1"]
    doc_type: ShortText
    doc_id: ShortText
    expected_content_digest: Digest | None = None
    delivery: Delivery | None = None


class CreateContractArgs(RoutedArguments, frozen=True):
    """`maad_create_contract` (§1.1)."""

    contract: Literal["create-contract-v1"]
    doc_type: ShortText
    delivery: Delivery | None = None


class CreateGuardedArgs(RoutedArguments, frozen=True):
    """`maad_create_guarded` (§1.2). Nothing is implied: every member is required."""

    contract: Literal["guarded-create-v1"]
    doc_type: ShortText
    doc_id: Annotated[str, Meta(min_length=1, max_length=128)]
    fields: dict[str, Any]
    body: str
    expected_schema_digest: Digest
    expected_content_digest: Digest
    allowed_history_modes: Annotated[
        tuple[HistoryMode, ...],
        Meta(min_length=1, max_length=5, extra_json_schema={"uniqueItems": True}),
    ]

    def __post_init__(self) -> None:
        if len(set(self.allowed_history_modes)) != len(self.allowed_history_modes):
            raise ConflictingArguments(("allowedHistoryModes", "must name each mode once"))
