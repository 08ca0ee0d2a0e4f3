"""Indexing one file (spec 01 §14.3)."""

from __future__ import annotations

from typing import Literal

import apsw
import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.extract.extraction import extract
from maadd_worker.index.connection import backend_error
from maadd_worker.index.content import NewDocument
from maadd_worker.index.documents import DocumentRow, FileIdentity
from maadd_worker.index.writer import IndexWriter
from maadd_worker.markdown.document import ParsedDocument, parse_document
from maadd_worker.markdown.frontmatter import content_hash
from maadd_worker.schema.ids import describe_fault, doc_id_fault
from maadd_worker.schema.model import Model
from maadd_worker.schema.validation import validate


class IndexedDocument(msgspec.Struct, frozen=True):
    """What indexing a file did. `previous` is the live row there was.

    `unchanged` means that the content is the one indexed before, whether or not the rows were
    made anew.
    """

    row: DocumentRow
    previous: DocumentRow | None
    action: Literal["create", "update", "unchanged"]
    rows_made: bool = True
    replaced: DocumentRow | None = None
    """The row of the id that the file had before, when it was changed in place; it is gone."""


def index_document(
    writer: IndexWriter,
    model: Model,
    root: ProjectRoot,
    rel_path: str,
    data: bytes,
    *,
    max_annotations: int,
    force: bool = False,
    file: FileIdentity | None = None,
    parsed: ParsedDocument | None = None,
) -> IndexedDocument:
    """Bring the rows of the file `rel_path` with the content `data` up to date.

    Runs in the caller's transaction. Changes nothing when it raises PARSE_ERROR,
    YAML_PROFILE_VIOLATION, UNKNOWN_TYPE, INVALID_DOC_ID or DUPLICATE_DOC_ID (another live file
    has the id); after BACKEND_ERROR the caller undoes its transaction or savepoint. A record
    that breaks its schema, or whose id breaks the grammar, is indexed as invalid.

    `force` makes the rows anew for unchanged content too. `file` lets a later pass skip reading;
    `parsed` saves parsing `data` again.
    """
    known = writer.find_by_path(rel_path)
    file_hash = parsed.file_hash if parsed is not None else content_hash(data)
    if not force and known is not None and known.file_hash == file_hash:
        plans = writer.type_plans(model)
        if known.model_fingerprint == plans.fingerprint(known.doc_type):
            writer.remember_file(known.doc_id, file)
            return IndexedDocument(known, known, "unchanged", rows_made=False)
    if parsed is None:
        parsed = parse_document(data, rel_path, max_annotations=max_annotations)
    new = _prepare(writer, model, rel_path, parsed, file)
    replaced = known if known is not None and known.doc_id != new.doc_id else None
    same_id = known
    if known is None or replaced is not None:
        same_id = writer.find(new.doc_id, include_deleted=True)
    previous = same_id if same_id is not None and not same_id.deleted else None
    if previous is not None and previous.file_path != rel_path:
        _refuse_collision(root, previous, rel_path)
    try:
        if replaced is not None:
            writer.remove_document(replaced.doc_id)
        row = writer.put_document(new, same_id)
    except apsw.InterruptError:
        raise
    except apsw.Error as error:
        raise backend_error(error, f"updated for {rel_path}") from error
    if previous is None:
        return IndexedDocument(row, None, "create", replaced=replaced)
    same = previous.version == row.version and previous.file_path == row.file_path
    return IndexedDocument(row, previous, "unchanged" if same else "update", replaced=replaced)


def _prepare(
    writer: IndexWriter,
    model: Model,
    path: str,
    parsed: ParsedDocument,
    file: FileIdentity | None,
) -> NewDocument:
    frontmatter = parsed.frontmatter
    doc_type, doc_id = frontmatter.get("doc_type"), frontmatter.get("doc_id")
    if not isinstance(doc_type, str):
        raise MaadError(
            "UNKNOWN_TYPE",
            f"{path}: the frontmatter needs a doc_type that names a registered type",
            {"file": path},
        )
    try:
        plan = writer.type_plan(model, doc_type)
    except MaadError as error:
        raise MaadError(error.code, f"{path}: {error.message}", {"file": path}) from error
    if not isinstance(doc_id, str) or not doc_id:
        raise MaadError(
            "INVALID_DOC_ID",
            f"{path}: the frontmatter needs a doc_id; it {describe_fault('EMPTY')}",
            {"file": path, "reason": "EMPTY"},
        )
    schema_ref = frontmatter.get("schema")
    valid = (
        doc_id_fault(doc_id) is None and validate(plan.schema, model, frontmatter, "index").valid
    )
    return NewDocument(
        doc_id=doc_id,
        schema_ref=schema_ref if isinstance(schema_ref, str) else plan.entry.schema_ref,
        file_path=path,
        file_hash=parsed.file_hash,
        valid=valid,
        partial=parsed.annotations_truncated,
        plan=plan,
        extraction=extract(parsed, plan.schema, model.registry),
        blocks=parsed.blocks,
        file=file,
    )


def _refuse_collision(root: ProjectRoot, indexed: DocumentRow, path: str) -> None:
    """DUPLICATE_DOC_ID while the indexed file is there; without it the record has moved."""
    if root.exists(indexed.file_path):
        raise MaadError(
            "DUPLICATE_DOC_ID",
            f'{path} has the doc_id "{indexed.doc_id}" of {indexed.file_path}; give one of the '
            "two another id, or delete it",
            {"indexedPath": indexed.file_path, "conflictingPath": path},
        )
