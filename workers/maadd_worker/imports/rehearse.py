"""The bytes that the engine will write, made before the first record is written."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.imports.prepare import Record
from maadd_worker.imports.source import Misfit, misfit_of
from maadd_worker.markdown.body import update_body
from maadd_worker.markdown.frontmatter import split_file
from maadd_worker.markdown.serializer import order_keys, rewrite_record, serialize_record
from maadd_worker.markdown.template import render_template
from maadd_worker.markdown.yaml_profile import load_frontmatter
from maadd_worker.schema.model import Model
from maadd_worker.write.context import refuse_too_large
from maadd_worker.write.fields import original_bytes


def rehearse(record: Record, original: str | None, model: Model, max_bytes: int) -> Misfit | None:
    """Why the record cannot be written, None when it can: its bytes are made as the engine makes
    them from `original`. Its values were judged before."""
    item = record.item
    try:
        refuse_too_large(written(record, original, model), max_bytes)
    except MaadError as error:
        # The line of the error is one of the record.
        return msgspec.structs.replace(misfit_of(item.key, error), line=item.line)
    return None


def written(
    record: Record,
    original: str | None,
    model: Model,
    *,
    body: str | None = None,
    stored: bytes | None = None,
    unset: Sequence[str] = (),
) -> bytes:
    """The bytes of the record's file once the engine has written it, from `original`, or over
    what is `stored`, without the fields `unset`. Raises what the serializer raises."""
    schema = model.schema(record.doc_type)
    file = record.item.key
    frontmatter = {
        "doc_id": record.doc_id,
        "doc_type": record.doc_type,
        "schema": schema.ref,
        **record.fields,
    }
    declared = list(schema.fields)
    if original is not None:
        order = order_keys(frontmatter, schema.required, declared)
        return rewrite_record(original_bytes(original), file, frontmatter, order, body=None)
    if stored is None:
        order = order_keys(frontmatter, schema.required, declared)
        if body is None and schema.template:
            body = render_template(schema.template, frontmatter)
        return serialize_record(frontmatter, order, body, file=file)
    split = split_file(stored, file)
    merged = {**load_frontmatter(split, file), **record.fields}
    for name in unset:
        merged.pop(name, None)
    order = order_keys(merged, schema.required, declared)
    return rewrite_record(stored, file, merged, order, body=update_body(split, body, None))
