"""Indexing one file (spec 01 §14.3)."""

from __future__ import annotations

from typing import Literal

import apsw
import msgspec

from maadd.protocol.errors import MaadError, MaadErrors
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.index.connection import backend_error
from maadd_worker.index.documents import DocumentRow, FileIdentity
from maadd_worker.index.new_document import NewDocument, new_document
from maadd_worker.index.pass_report import ChangedId
from maadd_worker.index.writer import IndexWriter
from maadd_worker.markdown.document import ParsedDocument, parse_document
from maadd_worker.markdown.frontmatter import content_hash, split_file
from maadd_worker.markdown.yaml_profile import load_frontmatter
from maadd_worker.schema.model import Model

_MAX_HEAD_BYTES = 16 * 1024 * 1024
"""A file that is read to see which id it has may be no larger."""


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

    @property
    def changed_id(self) -> ChangedId | None:
        """What an operator should hear of an id that was changed in place."""
        if self.replaced is None:
            return None
        return ChangedId(self.row.file_path, self.replaced.doc_id, self.row.doc_id)


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
    plans = writer.type_plans(model)
    new = new_document(plans, rel_path, parsed, file, texts=writer.wants_texts)
    return store_document(writer, root, new, known)


def store_document(
    writer: IndexWriter, root: ProjectRoot, new: NewDocument, known: DocumentRow | None
) -> IndexedDocument:
    """Store a record in the caller's transaction; `known` is the live row of its path.

    Raises DUPLICATE_DOC_ID and BACKEND_ERROR like `index_document`.
    """
    replaced = known if known is not None and known.doc_id != new.doc_id else None
    same_id = known
    if known is None or replaced is not None:
        same_id = writer.find(new.doc_id, include_deleted=True)
    previous = same_id if same_id is not None and not same_id.deleted else None
    if previous is not None and previous.file_path != new.file_path:
        _refuse_collision(root, previous, new.file_path)
    try:
        if replaced is not None:
            writer.let_go(replaced.doc_id)
        row = writer.put_document(new, same_id)
    except apsw.InterruptError:
        raise
    except apsw.Error as error:
        raise backend_error(error, f"updated for {new.file_path}") from error
    if previous is None:
        return IndexedDocument(row, None, "create", replaced=replaced)
    same = previous.version == row.version and previous.file_path == row.file_path
    return IndexedDocument(row, previous, "unchanged" if same else "update", replaced=replaced)


def let_go(writer: IndexWriter, row: DocumentRow) -> DocumentRow:
    """Take the row of a record away whose file holds another id that is not free: no file is of
    this record any more. BACKEND_ERROR like `store_document`."""
    try:
        writer.let_go(row.doc_id)
    except apsw.InterruptError:
        raise
    except apsw.Error as error:
        raise backend_error(error, f"updated for {row.file_path}") from error
    return row


def _refuse_collision(root: ProjectRoot, indexed: DocumentRow, path: str) -> None:
    """DUPLICATE_DOC_ID while the indexed file has the id; otherwise the record has moved."""
    if root.exists(indexed.file_path) and not _has_another_id(root, indexed):
        raise MaadError(
            "DUPLICATE_DOC_ID",
            f'{path} has the doc_id "{indexed.doc_id}" of {indexed.file_path}, which counts; give '
            "one of the two another id, or delete it",
            {"indexedPath": indexed.file_path, "conflictingPath": path},
        )


def _has_another_id(root: ProjectRoot, indexed: DocumentRow) -> bool:
    """Whether the file of a row says another id now, as when two files change places."""
    path = indexed.file_path
    try:
        content = root.read(path, _MAX_HEAD_BYTES)
        if content_hash(content.data) == indexed.file_hash:
            return False
        doc_id = load_frontmatter(split_file(content.data, path), path).get("doc_id")
    except (MaadError, MaadErrors):
        return False
    return isinstance(doc_id, str) and doc_id != indexed.doc_id
