"""The record as it lies on the disk, checked against its row (spec 01 §13.2)."""

from __future__ import annotations

from typing import Any

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.disk.root import FileContent
from maadd_worker.index.store import DocumentRow
from maadd_worker.markdown.frontmatter import SplitFile, content_hash, split_file
from maadd_worker.markdown.yaml_profile import load_frontmatter
from maadd_worker.outcome import Advice
from maadd_worker.schema.schema import Schema
from maadd_worker.write.context import WriteContext


class StoredRecord(msgspec.Struct, frozen=True):
    """One record's bytes and what they say."""

    row: DocumentRow
    data: bytes
    file_hash: str
    split: SplitFile
    frontmatter: dict[str, Any]


def current_row(context: WriteContext, doc_id: str) -> tuple[DocumentRow, FileContent | None]:
    """The live row after taking over an edit that was made outside, and the file's content.

    An edit that the index has not seen bumps the version first, so that a caller who looked
    before it gets VERSION_CONFLICT instead of overwriting it (spec 03 §4.2). An edit that made
    another record of it is left alone: FRONTMATTER_GUARD.
    """
    row = context.live_row(doc_id)
    try:
        content = context.root.read(row.file_path, context.settings.max_doc_bytes or None)
    except MaadError:
        return row, None
    if content_hash(content.data) == row.file_hash:
        return row, content
    frontmatter = load_frontmatter(split_file(content.data, row.file_path), row.file_path)
    _guard(row, "doc_id", frontmatter.get("doc_id"), row.doc_id)
    _guard(row, "doc_type", frontmatter.get("doc_type"), row.doc_type)
    context.reindex_external(row.file_path)
    return context.live_row(doc_id), None


def check_expectations(
    row: DocumentRow, expected_version: int | None, expected_hash: str | None
) -> None:
    """VERSION_CONFLICT when the record is not the one the caller looked at."""
    if expected_version is not None and expected_version != row.version:
        raise MaadError(
            "VERSION_CONFLICT",
            f'"{row.doc_id}" is at version {row.version}, expected {expected_version}; read it '
            "again with maad_get and repeat the change on the new content",
            {"expected": expected_version, "actual": row.version},
        )
    if expected_hash is not None and expected_hash != row.file_hash:
        raise MaadError(
            "VERSION_CONFLICT",
            f'the content of "{row.doc_id}" is not the expected one; read it again with maad_get',
            {"expectedHash": expected_hash, "actualHash": row.file_hash},
        )


def read_stored(
    context: WriteContext, row: DocumentRow, content: FileContent | None
) -> StoredRecord:
    """The record behind a row, which must be the one that the index knows.

    The file is read when its content is not given. Raises FILE_READ_ERROR, DOC_TOO_LARGE,
    PARSE_ERROR, YAML_PROFILE_VIOLATION, FRONTMATTER_GUARD.
    """
    if content is None:
        content = context.read_file(row)
    split = split_file(content.data, row.file_path)
    frontmatter = load_frontmatter(split, row.file_path)
    for key, value, expected in (
        ("doc_id", frontmatter.get("doc_id"), row.doc_id),
        ("doc_type", frontmatter.get("doc_type"), row.doc_type),
        ("schema", frontmatter.get("schema", row.schema_ref), row.schema_ref),
    ):
        _guard(row, key, value, expected)
    return StoredRecord(row, content.data, content_hash(content.data), split, frontmatter)


def load_stored(
    context: WriteContext, row: DocumentRow, content: FileContent | None
) -> StoredRecord:
    """`read_stored` for a write that is checked against the type's present schema: another
    version of it may stand in the file, another schema may not (spec 03 §5.6)."""
    stored = read_stored(context, row, content)
    named = stored.frontmatter.get("schema", row.schema_ref)
    current = context.model.entry(row.doc_type).schema_ref
    _guard(row, "schema", _schema_name(named), _schema_name(current))
    return stored


def schema_drift(stored: StoredRecord, schema: Schema) -> tuple[Advice, ...]:
    """The warning for a record that still names an older version of its schema."""
    ref = stored.frontmatter.get("schema")
    if ref is None or ref == schema.ref:
        return ()
    return (
        Advice(
            "schema",
            f"the record names {ref}, the type now uses {schema.ref}; it was checked against "
            f"{schema.ref} and keeps its value until maad_repair_where fix_schema_drift",
            "SCHEMA_DRIFT",
        ),
    )


def _guard(row: DocumentRow, key: str, value: object, expected: object) -> None:
    if value != expected:
        raise MaadError(
            "FRONTMATTER_GUARD",
            f"{row.file_path} says {key} {value!r}, the index expects {expected!r}; "
            "run maad_reindex, then try again",
        )


def _schema_name(ref: object) -> object:
    """`ship` of `ship.v2`."""
    return ref.rpartition(".v")[0] if isinstance(ref, str) else ref
