"""The file behind an index row (spec 02 §4.1)."""

from __future__ import annotations

from maadd.protocol.errors import MaadError
from maadd_worker.index.store import DocumentRow
from maadd_worker.outcome import Advice
from maadd_worker.read.context import ReadContext
from maadd_worker.read.record_cache import CachedRecord


def load_stored(context: ReadContext, row: DocumentRow) -> CachedRecord:
    """The record's file, parsed; never another record under the row's id.

    Raises FILE_READ_ERROR with the id, FRONTMATTER_GUARD, and what the cache's load raises.
    """
    try:
        record = context.cache.load(row.file_path)
    except MaadError as error:
        if error.code == "FILE_READ_ERROR":
            raise MaadError(error.code, error.message, {"docId": row.doc_id}) from error
        raise
    stored_id = record.frontmatter.get("doc_id")
    if stored_id != row.doc_id:
        said = "no doc_id" if stored_id is None else f"doc_id {stored_id!r}"
        raise MaadError(
            "FRONTMATTER_GUARD",
            f'{row.file_path} has {said}, the index knows it as "{row.doc_id}"; run maad_reindex '
            "to take the change over",
        )
    return record


def stale_advice(row: DocumentRow, record: CachedRecord) -> tuple[Advice, ...]:
    """INDEX_STALE when the file is not the one that was indexed."""
    if record.file_hash == row.file_hash:
        return ()
    return (
        Advice(
            "",
            f"{row.file_path} changed on disk after it was indexed; version and indexed fields "
            "are those of the indexed content until the next reindex",
            "INDEX_STALE",
        ),
    )
