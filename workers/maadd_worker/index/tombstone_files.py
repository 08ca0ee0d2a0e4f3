"""Soft-deleted files that the index has lost (spec 01 §11)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from maadd.protocol.errors import MaadError, MaadErrors
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.disk.scan import MarkdownFile
from maadd_worker.index.writer import IndexWriter
from maadd_worker.markdown.frontmatter import content_hash, split_file
from maadd_worker.markdown.yaml_profile import load_frontmatter

_CHUNK = 500

_KNOWN = """
SELECT file_path FROM documents
WHERE deleted = 1 AND file_path IN (SELECT value FROM json_each(?))
"""
_MOVE = "UPDATE documents SET file_path = ? WHERE doc_id = ?"


def register_tombstones(
    writer: IndexWriter, root: ProjectRoot, files: Sequence[MarkdownFile], max_bytes: int
) -> list[str]:
    """Give every `_deleted_*.md` file its row again; a warning for each that says no id.

    A file whose id is live, or whose tombstone row has a file already, is left alone: it is an
    older copy.
    """
    warnings: list[str] = []
    for start in range(0, len(files), _CHUNK):
        paths = [file.path for file in files[start : start + _CHUNK]]
        listing = msgspec.json.encode(paths).decode()
        known = {path for (path,) in writer.connection.execute(_KNOWN, (listing,))}
        lost = [path for path in paths if path not in known]
        if lost:
            with writer.transaction():
                warnings.extend(
                    warning
                    for path in lost
                    if (warning := _register(writer, root, path, max_bytes)) is not None
                )
    return warnings


def _register(writer: IndexWriter, root: ProjectRoot, path: str, max_bytes: int) -> str | None:
    try:
        content = root.read(path, max_bytes or None)
        frontmatter = load_frontmatter(split_file(content.data, path), path)
    except (MaadError, MaadErrors) as failure:
        return f"soft-deleted file {path} is not known to the index: {failure}"
    doc_id, doc_type = frontmatter.get("doc_id"), frontmatter.get("doc_type")
    if not isinstance(doc_id, str) or not doc_id or not isinstance(doc_type, str):
        return f"soft-deleted file {path} is not known to the index: it has no doc_id or doc_type"
    row = writer.find(doc_id, include_deleted=True)
    if row is None:
        schema_ref = frontmatter.get("schema")
        writer.register_tombstone(
            doc_id,
            doc_type,
            schema_ref if isinstance(schema_ref, str) else "",
            path,
            content_hash(content.data),
        )
    elif row.deleted and not root.exists(row.file_path):
        writer.connection.execute(_MOVE, (path, doc_id))
    return None
