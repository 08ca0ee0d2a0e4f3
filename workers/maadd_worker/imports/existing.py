"""Records that an import finds in the project: its own from before, or somebody else's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import apsw
import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.disk.scan import TOMBSTONE_PREFIX
from maadd_worker.imports.ledger import Done
from maadd_worker.imports.prepare import Record
from maadd_worker.index.connection import open_for_look
from maadd_worker.index.layout import INDEX_PATH, is_current
from maadd_worker.markdown.frontmatter import content_hash, split_file
from maadd_worker.markdown.values import same_value
from maadd_worker.markdown.yaml_profile import load_frontmatter
from maadd_worker.schema.model import Model

_CLAIMS = """
SELECT doc_id, file_path, deleted FROM documents
WHERE doc_id IN (SELECT value FROM json_each(?))
"""


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


class Claim(msgspec.Struct, frozen=True):
    """What the index says of an id: where its record lies, and whether it was deleted."""

    path: str
    deleted: bool


def claims(root: ProjectRoot, doc_ids: Sequence[str]) -> dict[str, Claim]:
    """The ids that the index knows. An index that is not there, or of another version, or that
    cannot be read knows none: the engine that opens it next has the last word."""
    file = os.path.join(root.path, INDEX_PATH)
    if not doc_ids or not os.path.exists(file):
        return {}
    try:
        with contextlib.closing(open_for_look(file)) as connection:
            if not is_current(connection):
                return {}
            listing = msgspec.json.encode(list(doc_ids)).decode()
            rows = connection.execute(_CLAIMS, (listing,)).fetchall()
    except apsw.Error:
        return {}
    return {str(doc_id): Claim(str(path), bool(deleted)) for doc_id, path, deleted in rows}


def places(root: ProjectRoot, model: Model, records: Iterable[Record | Done]) -> dict[str, str]:
    """The paths of those records that lie where they were made, or where the index has them, by
    id. PATH_OUTSIDE_PROJECT."""
    found: dict[str, str] = {}
    absent: list[str] = []
    for record in records:
        if record.doc_type not in model.registry.types:
            continue
        for path in model.record_paths(model.entry(record.doc_type), record.doc_id):
            if root.exists(path):
                found[record.doc_id] = path
                break
        else:
            absent.append(record.doc_id)
    for doc_id, claim in claims(root, absent).items():
        if not claim.deleted and root.exists(claim.path):
            found[doc_id] = claim.path
    return found


def as_intended(root: ProjectRoot, model: Model, intended: Sequence[Done]) -> list[Done]:
    """Those of the records that were about to be written which are on the disk as they were to
    be, byte for byte. FILE_READ_ERROR, PATH_OUTSIDE_PROJECT."""
    paths = places(root, model, intended)
    return [
        one
        for one in intended
        if (path := paths.get(one.doc_id)) is not None
        and content_hash(root.read(path).data) == one.content_hash
    ]


def lost_records(root: ProjectRoot, model: Model, records: Sequence[Record]) -> set[str]:
    """The ids of those records that lie nowhere in the project any more: not where they were
    made, not where the index has them, and under their name nowhere in the folder of their type.

    FILE_READ_ERROR, PATH_OUTSIDE_PROJECT.
    """
    absent = [one for one in records if not _at_its_place(root, model, one)]
    known = claims(root, [one.doc_id for one in absent])
    names: dict[str, set[str]] = {}
    lost: set[str] = set()
    for record in absent:
        claim = known.get(record.doc_id)
        if claim is not None and not claim.deleted and root.exists(claim.path):
            continue
        folder = model.entry(record.doc_type).path
        if folder not in names:
            files = root.walk_markdown(folder).files
            names[folder] = {file.path.rpartition("/")[2] for file in files}
        if f"{record.doc_id}.md" not in names[folder]:
            lost.add(record.doc_id)
    return lost


def is_tombstoned(root: ProjectRoot, model: Model, record: Record) -> bool:
    """Whether a deleted record holds the id."""
    for path in model.record_paths(model.entry(record.doc_type), record.doc_id):
        folder, _, name = path.rpartition("/")
        if root.exists(f"{folder}/{TOMBSTONE_PREFIX}{name}"):
            return True
    return False


def _at_its_place(root: ProjectRoot, model: Model, record: Record) -> bool:
    paths = model.record_paths(model.entry(record.doc_type), record.doc_id)
    return any(root.exists(path) for path in paths)


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
