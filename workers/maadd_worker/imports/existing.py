"""Records that an import finds in the project: its own from before, or somebody else's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.imports.prepare import Record
from maadd_worker.markdown.frontmatter import content_hash, split_file
from maadd_worker.markdown.values import same_value
from maadd_worker.markdown.yaml_profile import load_frontmatter
from maadd_worker.schema.model import Model


class Found(msgspec.Struct, frozen=True):
    """What lies where a record is to go: `same` as the import would make it, or `other`."""

    state: Literal["same", "other"]
    path: str
    content_hash: str


def look_for(
    root: ProjectRoot, model: Model, record: Record, original: Callable[[], str | None]
) -> Found | None:
    """The file at a place of the record, None where all are free; `original` gives the text that
    the record would be made from. PATH_OUTSIDE_PROJECT, FILE_READ_ERROR."""
    for path in model.record_paths(model.entry(record.doc_type), record.doc_id):
        if root.exists(path):
            data = root.read(path).data
            same = _is_same(data, path, model, record, original())
            return Found("same" if same else "other", path, content_hash(data))
    return None


def _is_same(data: bytes, path: str, model: Model, record: Record, original: str | None) -> bool:
    identity = {
        "doc_id": record.doc_id,
        "doc_type": record.doc_type,
        "schema": model.schema(record.doc_type).ref,
    }
    try:
        split = split_file(data, path)
        if not same_value(load_frontmatter(split, path), {**identity, **record.fields}):
            return False
    except MaadError:
        return False
    if original is None:
        return True
    return split.body == split_file(original.encode(), path).body
