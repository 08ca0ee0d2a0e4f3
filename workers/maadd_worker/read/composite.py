"""The full-depth view of one record: its refs, objects and neighbours (spec 02 §4.1)."""

from __future__ import annotations

from typing import Any

from maadd.protocol.errors import MaadError
from maadd_worker.index.store import DocumentRow
from maadd_worker.markdown.text import js_text
from maadd_worker.read.commits import has_repository, newest_commit
from maadd_worker.read.context import ReadContext
from maadd_worker.read.edges import neighbours
from maadd_worker.read.objects import OBJECT_COLUMNS, object_views
from maadd_worker.read.record_cache import CachedRecord

_OBJECT_LIMIT = 50
_NOTE_LIMIT = 200

_OBJECTS = f"""
SELECT {OBJECT_COLUMNS} FROM objects WHERE doc_id = ? ORDER BY id LIMIT ?
"""
_OBJECT_COUNT = "SELECT count(*) FROM objects WHERE doc_id = ?"
_LIVE_PATH = "SELECT file_path FROM documents WHERE doc_id = ? AND deleted = 0"


def composite(context: ReadContext, row: DocumentRow, record: CachedRecord) -> dict[str, Any]:
    """Frontmatter, resolved refs, objects and one-hop neighbours of a record."""
    execute = context.reader.connection.execute
    related = neighbours(context.reader, row.doc_id)
    return {
        "docId": row.doc_id,
        "docType": row.doc_type,
        "version": row.version,
        "updatedAt": row.updated_at,
        "frontmatter": record.frontmatter_json,
        "resolvedRefs": _resolved_refs(context, row, record),
        "objects": object_views(execute(_OBJECTS, (row.doc_id, _OBJECT_LIMIT))),
        "objectsTotal": execute(_OBJECT_COUNT, (row.doc_id,)).get,
        "related": related.view(),
        "latestNote": _latest_note(context, related.incoming),
        "contentHash": record.file_hash,
    }


def _resolved_refs(
    context: ReadContext, row: DocumentRow, record: CachedRecord
) -> dict[str, dict[str, str]]:
    """Scalar refs whose target is live and readable, with the target's name, title or id;
    none for a type that is not registered any more."""
    found: dict[str, dict[str, str]] = {}
    try:
        fields = context.model.schema(row.doc_type).fields
    except MaadError:
        return found
    for field in fields.values():
        target = record.frontmatter.get(field.name)
        if field.type != "ref" or not isinstance(target, str):
            continue
        name = _display_name(context, target)
        if name is not None:
            found[field.name] = {"docId": target, "name": name}
    return found


def _display_name(context: ReadContext, doc_id: str) -> str | None:
    """What a live record is called; None for a record that is missing or broken."""
    path = context.reader.connection.execute(_LIVE_PATH, (doc_id,)).get
    if path is None:
        return None
    try:
        frontmatter = context.cache.load(path).frontmatter
    except MaadError as error:
        if error.code == "PATH_OUTSIDE_PROJECT":
            raise
        return None
    for key in ("name", "title"):
        value = frontmatter.get(key)
        if value is not None:
            return js_text(value)
    return doc_id


def _latest_note(context: ReadContext, incoming: list[dict[str, str]]) -> dict[str, str] | None:
    """The incoming note with the newest commit; at most 200 notes are looked at.

    A record stays readable when Git fails: then no note is known, as without a repository.
    """
    names = dict.fromkeys(edge["docId"] for edge in incoming if "note" in edge["docType"])
    if not names or not has_repository(context):
        return None
    notes: dict[str, str] = {}
    for doc_id in list(names)[:_NOTE_LIMIT]:
        path = context.reader.connection.execute(_LIVE_PATH, (doc_id,)).get
        if path is not None:
            notes[path] = doc_id
    try:
        found = newest_commit(context, notes)
    except MaadError as error:
        if error.code != "GIT_ERROR":
            raise
        return None
    if found is None:
        return None
    doc_id, commit = found
    return {"docId": doc_id, "summary": commit.subject.summary, "timestamp": commit.timestamp}
