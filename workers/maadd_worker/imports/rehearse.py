"""Whether the engine will take a record, found out before the first one is written."""

from __future__ import annotations

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.imports.prepare import Record
from maadd_worker.imports.source import Misfit, misfit_of
from maadd_worker.markdown.serializer import order_keys, rewrite_record, serialize_record
from maadd_worker.schema.model import Model
from maadd_worker.write.context import refuse_too_large
from maadd_worker.write.fields import original_bytes


def rehearse(record: Record, original: str | None, model: Model, max_bytes: int) -> Misfit | None:
    """Why the record cannot be written, None when it can: its bytes are made as the engine makes
    them from `original`. Its values were judged before."""
    item = record.item
    schema = model.schema(record.doc_type)
    identity = {"doc_id": record.doc_id, "doc_type": record.doc_type, "schema": schema.ref}
    frontmatter = {**identity, **record.fields}
    order = order_keys(frontmatter, schema.required, list(schema.fields))
    try:
        if original is None:
            data = serialize_record(frontmatter, order, None, file=item.key)
        else:
            text = original_bytes(original)
            data = rewrite_record(text, item.key, frontmatter, order, body=None)
        refuse_too_large(data, max_bytes)
    except MaadError as error:
        # The line of the error is one of the record.
        return msgspec.structs.replace(misfit_of(item.key, error), line=item.line)
    return None
