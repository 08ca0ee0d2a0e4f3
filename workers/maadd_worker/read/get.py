"""`maad_get`: one record at growing depth (spec 02 §4.1)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from maadd.protocol.arguments import GetArgs
from maadd_worker.markdown.blocks import PREAMBLE, Block, block_content, find_block
from maadd_worker.markdown.body import current_body
from maadd_worker.outcome import Advice, Outcome
from maadd_worker.read.composite import composite
from maadd_worker.read.context import ReadContext
from maadd_worker.read.record_cache import CachedRecord
from maadd_worker.read.stored_record import load_stored, stale_advice

_LISTED_BLOCKS = 30


class _Record(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    doc_id: str
    doc_type: str
    version: int
    updated_at: str
    created_at: str
    depth: str
    frontmatter: msgspec.Raw
    content_hash: str
    block: dict[str, str | None] | UnsetType = UNSET
    body: str | UnsetType = UNSET


def get(context: ReadContext, args: GetArgs) -> Outcome:
    """Answer the call.

    Raises FILE_NOT_FOUND, PATH_OUTSIDE_PROJECT, FILE_READ_ERROR, PARSE_ERROR, DOC_TOO_LARGE,
    FRONTMATTER_GUARD.
    """
    row = context.live_row(args.doc_id)
    record = load_stored(context, row)
    warnings = stale_advice(row, record)
    if args.depth == "full":
        return Outcome(composite(context, row, record), warnings)
    block: dict[str, str | None] | UnsetType = UNSET
    body: str | UnsetType = UNSET
    if args.depth == "warm" and args.block:
        blocks = record.blocks()
        found = find_block(blocks, args.block)
        if found is None:
            warnings = (*warnings, _block_not_found(args.block, blocks))
        else:
            block = _block_view(record, found)
    elif args.depth == "cold":
        body = current_body(record.split)
    return Outcome(
        _Record(
            row.doc_id,
            row.doc_type,
            row.version,
            row.updated_at,
            row.created_at,
            args.depth,
            record.frontmatter_json,
            record.file_hash,
            block,
            body,
        ),
        warnings,
    )


def _block_view(record: CachedRecord, block: Block) -> dict[str, str | None]:
    lines = record.split.body.replace("\r\n", "\n").split("\n")
    return {
        "id": block.block_id or None,
        "heading": block.heading,
        "content": block_content(lines, record.split.body_start_line, block),
    }


def _block_not_found(selector: str, blocks: Sequence[Block]) -> Advice:
    known = [block.block_id or block.heading or PREAMBLE for block in blocks]
    listing = ", ".join(known[:_LISTED_BLOCKS]) if known else "none, the body is empty"
    return Advice(
        "block", f'no block "{selector}" in this record; blocks: {listing}', "BLOCK_NOT_FOUND"
    )
