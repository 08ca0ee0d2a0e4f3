"""A record that was edited outside before it is written to (spec 01 §14.7)."""

from __future__ import annotations

from maadd_worker.index.document import index_document
from maadd_worker.write.context import WriteContext
from maadd_worker.write.external import ExternalChange


def index_outside_edit(context: WriteContext, path: str) -> list[ExternalChange]:
    """Index the file as it is now; what that changed."""
    content = context.root.read(path, context.settings.max_doc_bytes or None)
    with context.writer.transaction():
        done = index_document(
            context.writer,
            context.model,
            context.root,
            path,
            content.data,
            max_annotations=context.settings.max_doc_annotations,
        )
    gone = [] if done.replaced is None else [ExternalChange("delete", done.replaced)]
    return [*gone, ExternalChange("update", done.row)]
