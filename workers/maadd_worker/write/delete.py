"""Planning deletes, and the removal of tombstones (spec 01 §11, 03 §5.1, §5.5)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from maadd.protocol.arguments import DeleteArgs
from maadd.protocol.errors import MaadError
from maadd_worker.history.outcome import CommitIdentity, CommitRequest
from maadd_worker.index.store import DocumentRow
from maadd_worker.markdown.frontmatter import content_hash
from maadd_worker.write.context import FileChange, Plan, WriteContext
from maadd_worker.write.stored import check_expectations, current_row, read_stored

_INBOUND_SQL = """
SELECT r.source_doc_id FROM relationships r
JOIN documents d ON d.doc_id = r.source_doc_id AND d.deleted = 0
WHERE r.target_doc_id = ? AND r.relation_type = 'ref' AND r.source_doc_id <> ?
ORDER BY r.source_doc_id, r.id
"""
_SAMPLE = 10


def plan_delete(context: WriteContext, args: DeleteArgs, identity: CommitIdentity | None) -> Plan:
    """Check a delete and make its plan; nothing is touched.

    Raises FILE_NOT_FOUND, VERSION_CONFLICT, PATH_OUTSIDE_PROJECT, FILE_READ_ERROR,
    FRONTMATTER_GUARD, REFERENCED.
    """
    with _frontmatter_readable(args.doc_id):
        row, content = current_row(context, args.doc_id)
        check_expectations(row, args.expected_version, args.expected_hash)
        stored = read_stored(context, row, content)
    inbound = _inbound(context, row)
    if inbound["count"] and args.on_inbound_refs == "refuse":
        raise MaadError(
            "REFERENCED",
            f'{inbound["count"]} refs point to "{row.doc_id}"; change them first or delete with '
            'onInboundRefs "ignore"',
            {"inboundRefs": inbound},
        )
    tombstone = _tombstone_path(context, row) if args.mode == "soft" else None
    if tombstone is not None:
        change = FileChange(
            "rename",
            row.file_path,
            new_path=tombstone,
            old_data=stored.data,
            old_hash=stored.file_hash,
        )
        paths: tuple[str, ...] = (row.file_path, tombstone)
        contents: dict[str, bytes | None] = {row.file_path: None, tombstone: stored.data}
    else:
        change = FileChange(
            "unlink", row.file_path, old_data=stored.data, old_hash=stored.file_hash
        )
        paths = (row.file_path,)
        contents = {row.file_path: None}

    def answer(_row: DocumentRow | None) -> dict[str, Any]:
        data: dict[str, Any] = {
            "docId": row.doc_id,
            "docType": row.doc_type,
            "mode": args.mode,
            "filePath": row.file_path,
            "inboundRefs": inbound,
        }
        if tombstone is not None:
            data["tombstonePath"] = tombstone
        return data

    return Plan(
        action="delete",
        doc_id=row.doc_id,
        doc_type=row.doc_type,
        change=change,
        commit=CommitRequest(
            action="delete",
            doc_id=row.doc_id,
            doc_type=row.doc_type,
            detail=args.mode,
            summary=f"{args.mode} delete of {row.doc_id}",
            paths=paths,
            identity=identity,
            contents=contents,
        ),
        answer=answer,
        previous_version=row.version,
    )


def plan_purge(context: WriteContext, doc_id: str, identity: CommitIdentity | None) -> Plan:
    """Check the removal of a tombstone and make its plan; a file that is gone is fine.

    Raises FILE_NOT_FOUND for an id without a tombstone, PATH_OUTSIDE_PROJECT, FILE_READ_ERROR.
    """
    row = context.writer.find(doc_id, include_deleted=True)
    if row is None or not row.deleted:
        raise MaadError("FILE_NOT_FOUND", f'"{doc_id}" is not soft-deleted')
    if context.root.exists(row.file_path):
        content = context.root.read(row.file_path)
        change = FileChange(
            "unlink",
            row.file_path,
            old_data=content.data,
            old_hash=content_hash(content.data),
        )
    else:
        change = FileChange("forget", row.file_path)

    def answer(_row: DocumentRow | None) -> dict[str, Any]:
        return {"docId": row.doc_id, "docType": row.doc_type, "filePath": row.file_path}

    return Plan(
        action="delete",
        doc_id=row.doc_id,
        doc_type=row.doc_type,
        change=change,
        commit=CommitRequest(
            action="delete",
            doc_id=row.doc_id,
            doc_type=row.doc_type,
            detail="purge",
            summary=f"purge of {row.doc_id}",
            paths=(row.file_path,),
            identity=identity,
            contents={row.file_path: None},
        ),
        answer=answer,
        previous_version=row.version,
    )


@contextlib.contextmanager
def _frontmatter_readable(doc_id: str) -> Iterator[None]:
    """FILE_READ_ERROR for frontmatter that does not parse: nobody can tell whose file it is."""
    try:
        yield
    except MaadError as error:
        if error.code not in ("PARSE_ERROR", "YAML_PROFILE_VIOLATION"):
            raise
        raise MaadError(
            "FILE_READ_ERROR",
            f'the file of "{doc_id}" cannot be told to be this record: {error.message}; mend or '
            "remove it, then run maad_reindex",
            {"docId": doc_id},
        ) from error


def _inbound(context: WriteContext, row: DocumentRow) -> dict[str, Any]:
    sources = [
        source
        for (source,) in context.writer.connection.execute(_INBOUND_SQL, (row.doc_id, row.doc_id))
    ]
    return {"count": len(sources), "sample": list(dict.fromkeys(sources))[:_SAMPLE]}


def _tombstone_path(context: WriteContext, row: DocumentRow) -> str:
    """A free `_deleted_` name beside the record; an older tombstone is never overwritten."""
    directory, _, name = row.file_path.rpartition("/")
    stem = name.removesuffix(".md")
    candidate = f"{directory}/_deleted_{stem}.md"
    number = 2
    while context.root.exists(candidate):
        candidate = f"{directory}/_deleted_{stem}.{number}.md"
        number += 1
    return candidate
