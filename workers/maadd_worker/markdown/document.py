"""A record's file, parsed (spec 01 §4.4)."""

from __future__ import annotations

from typing import Any

import msgspec

from maadd_worker.markdown.annotations import Annotation, find_annotations
from maadd_worker.markdown.blocks import Block, scan_blocks
from maadd_worker.markdown.diagnostics import parse_error
from maadd_worker.markdown.frontmatter import SplitFile, content_hash, split_file
from maadd_worker.markdown.value_calls import ValueCall, find_value_calls
from maadd_worker.markdown.verbatim import VerbatimZones
from maadd_worker.markdown.yaml_profile import read_frontmatter

DEFAULT_MAX_ANNOTATIONS = 50_000


class ParsedDocument(msgspec.Struct, frozen=True):
    """Everything a file says, before any schema is asked. Lines are lines of the file."""

    file_hash: str
    frontmatter: dict[str, Any]
    key_lines: dict[str, int]
    split: SplitFile
    blocks: tuple[Block, ...]
    annotations: tuple[Annotation, ...]
    annotations_truncated: bool
    value_calls: tuple[ValueCall, ...]


def parse_document(
    data: bytes, file: str, *, max_annotations: int = DEFAULT_MAX_ANNOTATIONS
) -> ParsedDocument:
    """The bytes of a record parsed; `max_annotations` 0 means no limit.

    Raises PARSE_ERROR and YAML_PROFILE_VIOLATION with the place in `file`. A file of no bytes
    is an error, never a record without fields: it is what a power cut leaves behind.
    """
    if not data:
        raise parse_error("empty file; restore it or delete it", file, 1, 1)
    split = split_file(data, file)
    frontmatter = read_frontmatter(split, file)
    body, start_line = split.body, split.body_start_line
    zones = VerbatimZones(body)
    annotations, truncated = find_annotations(body, start_line, zones, max_annotations)
    return ParsedDocument(
        content_hash(data),
        frontmatter.values,
        frontmatter.key_lines,
        split,
        scan_blocks(body, start_line, zones),
        annotations,
        truncated,
        find_value_calls(body, start_line, zones),
    )
