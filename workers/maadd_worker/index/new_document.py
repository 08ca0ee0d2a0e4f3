"""A parsed record as the rows that the index will hold (spec 01 §12, §14.3).

Needs the model and no database, so that it can be made in another process.
"""

from __future__ import annotations

import msgspec

from maadd.protocol.doc_ids import describe_fault
from maadd.protocol.errors import MaadError
from maadd_worker.extract.extraction import extract
from maadd_worker.index.block_texts import BlockText, block_texts
from maadd_worker.index.child_rows import (
    Row,
    block_rows,
    field_value_rows,
    object_rows,
    relationship_rows,
)
from maadd_worker.index.documents import FileIdentity
from maadd_worker.index.plan import TypePlans
from maadd_worker.markdown.document import ParsedDocument
from maadd_worker.schema.validation import validate


class NewDocument(msgspec.Struct, frozen=True, array_like=True):
    """One record ready to be stored, its child rows in the order of their keys.

    `file` is None when the content may still change unseen.
    """

    doc_id: str
    doc_type: str
    schema_ref: str
    file_path: str
    file_hash: str
    valid: bool
    partial: bool
    model_fingerprint: str
    file: FileIdentity | None
    objects: list[Row]
    relationships: list[Row]
    blocks: list[Row]
    field_values: list[Row]
    texts: list[BlockText] = []
    """Empty unless somebody wants them."""


def new_document(
    plans: TypePlans,
    path: str,
    parsed: ParsedDocument,
    file: FileIdentity | None,
    *,
    texts: bool = False,
) -> NewDocument:
    """The rows of a record, on demand with the texts of its blocks; UNKNOWN_TYPE and
    INVALID_DOC_ID name the file.

    A record that breaks its schema, or whose id breaks the grammar, is marked invalid.
    """
    frontmatter = parsed.frontmatter
    doc_type, doc_id = frontmatter.get("doc_type"), frontmatter.get("doc_id")
    if not isinstance(doc_type, str):
        raise MaadError(
            "UNKNOWN_TYPE",
            f"{path}: the frontmatter needs a doc_type that names a registered type",
            {"file": path},
        )
    try:
        plan = plans.plan(doc_type)
    except MaadError as error:
        raise MaadError(error.code, f"{path}: {error.message}", {"file": path}) from error
    if not isinstance(doc_id, str) or not doc_id:
        raise MaadError(
            "INVALID_DOC_ID",
            f"{path}: the frontmatter needs a doc_id; it {describe_fault('EMPTY')}",
            {"file": path, "reason": "EMPTY"},
        )
    schema_ref = frontmatter.get("schema")
    model = plans.model
    found = extract(parsed, plan.schema, model.registry)
    return NewDocument(
        doc_id,
        doc_type,
        schema_ref if isinstance(schema_ref, str) else plan.entry.schema_ref,
        path,
        parsed.file_hash,
        validate(plan.schema, model, frontmatter, "index").valid,
        parsed.annotations_truncated,
        plan.fingerprint,
        file,
        object_rows(doc_id, found.objects),
        relationship_rows(doc_id, doc_type, found.relationships),
        block_rows(doc_id, parsed.blocks),
        field_value_rows(doc_id, plan, found.field_rows),
        block_texts(parsed) if texts else [],
    )
