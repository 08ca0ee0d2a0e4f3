"""The rows of an index, and those that a new index gets from the same files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import apsw

from maadd.protocol.messages import WorkerSettings
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.index.full_pass import index_all
from maadd_worker.index.store import Index
from maadd_worker.schema.model import load_model

ROWS = """
SELECT doc_id, doc_type, schema_ref, file_path, file_hash, version, deleted, valid, partial,
       created_at, iif(deleted, NULL, model_fingerprint) FROM documents ORDER BY doc_id
"""
_DERIVED = {
    "objects": "doc_id, id, primitive, subtype, value, normalized_value, label, role, "
    "source_line, block_id",
    "relationships": "source_doc_id, id, target_doc_id, field, relation_type, source_line",
    "blocks": "doc_id, id, block_id, heading, level, start_line, end_line",
    "field_values": "doc_id, field_name, id, doc_type, field_type, present, field_value, extreme",
    "type_counts": "doc_type, documents, objects, relationships, broken_refs, invalid, partial",
    "subtype_counts": "primitive, subtype, objects",
}


def dump(path: str) -> dict[str, list[Any]]:
    connection = apsw.Connection(path)
    try:
        tables = {"documents": list(connection.execute(ROWS))}
        for table, columns in _DERIVED.items():
            tables[table] = sorted(connection.execute(f"SELECT {columns} FROM {table}"), key=repr)
        return tables
    finally:
        connection.close()


def rebuilt(root: Path) -> dict[str, list[Any]]:
    """The rows that a new index gets from the files, versions and times from the old one."""
    folder = root / "_backend/rebuilt"
    folder.mkdir()
    path = str(folder / "maad.db")
    shutil.copy(root / "_backend/maad.db", f"{path}.prev")
    index = Index.open(path, read_only=False)
    project = ProjectRoot.open(str(root))
    try:
        index_all(index.writer(), load_model(project), project, WorkerSettings())
    finally:
        project.close()
        index.close()
    return dump(path)
