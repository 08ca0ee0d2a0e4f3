"""A record that was edited outside before it is written to (spec 01 §14.7)."""

from __future__ import annotations

from maadd.protocol.messages import Event
from maadd_worker.index.document import index_document
from maadd_worker.write.context import WriteContext


def index_outside_edit(context: WriteContext, path: str) -> Event:
    """Index the file as it is now; what subscribers are told of it."""
    content = context.root.read(path, context.settings.max_doc_bytes or None)
    with context.writer.transaction():
        row = index_document(
            context.writer,
            context.model,
            context.root,
            path,
            content.data,
            max_annotations=context.settings.max_doc_annotations,
        ).row
    return Event(row.change_seq, "update", row.doc_id, row.doc_type, row.updated_at, "external")
