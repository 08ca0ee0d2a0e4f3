"""The tables of `_backend/maad.db` (spec 01 §12).

Column names follow the spec; columns and indexes beyond it are ours. Child rows exist for live
records only: a tombstone keeps its row in `documents` and nothing else, and a file that comes
back is indexed again. Child tables are clustered by record, so that replacing or reading the
rows of one record touches neighbouring pages; `id` counts within the record.

`field_values` holds, besides one row per value, one row with `present = 0` for every indexed
field that the record leaves empty, so that one ordered walk of an index sorts a whole type.
Everybody but the sort reads the view `field_index`, which shows the values alone.

`object_values` counts the objects of each distinct value, and `object_text` finds the values
that contain three characters in a row, letters folded by Unicode; both follow `objects`. Two
characters that end every value there make a run of three start at each character of its own, so
that the runs that start with a short text (`object_terms`) find its values. `short_texts` and
`value_changes` count the objects of texts of one and two characters (`short_texts.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import apsw

INDEX_PATH = "_backend/maad.db"
"""The file of the index, from the project's folder."""

APPLICATION_ID = 0x4D414144
"""`PRAGMA application_id` of our files ("MAAD"); a file of the reference has 0."""

LAYOUT_VERSION = 5
"""`PRAGMA user_version`; any other number, higher or lower, makes the index be rebuilt."""

NUMBER_UNPARSEABLE = 1
NUMBER_KNOWN = 2
"""Values of `numeric_rank`, beside 0 for a missing one; the sort order of number fields."""

SMALLEST = 1
LARGEST = 2
ALONE = 4
"""Bits of `extreme`: the row that an ascending, a descending sort orders its record by; the only
row of its record and field."""

DDL = """
CREATE TABLE documents (
    doc_id TEXT NOT NULL PRIMARY KEY,
    doc_type TEXT NOT NULL,
    schema_ref TEXT NOT NULL,
    file_path TEXT NOT NULL UNIQUE,
    file_hash TEXT NOT NULL,
    version INTEGER NOT NULL DEFAULT 1,
    deleted INTEGER NOT NULL DEFAULT 0,
    indexed_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    created_at TEXT NOT NULL,
    valid INTEGER NOT NULL DEFAULT 1,
    partial INTEGER NOT NULL DEFAULT 0,
    change_seq INTEGER NOT NULL UNIQUE,
    model_fingerprint TEXT NOT NULL,
    mtime_ns INTEGER,
    size INTEGER,
    inode INTEGER
) WITHOUT ROWID, STRICT;
CREATE INDEX documents_by_id ON documents (doc_type, doc_id) WHERE deleted = 0;
CREATE INDEX documents_by_indexed_at ON documents (doc_type, indexed_at, doc_id) WHERE deleted = 0;
CREATE INDEX documents_by_updated_at ON documents (doc_type, updated_at, doc_id) WHERE deleted = 0;
CREATE INDEX documents_by_created_at ON documents (doc_type, created_at, doc_id) WHERE deleted = 0;
CREATE INDEX documents_by_change ON documents (doc_type, change_seq) WHERE deleted = 0;
CREATE INDEX documents_tombstones ON documents (updated_at, doc_id) WHERE deleted = 1;
CREATE INDEX documents_invalid ON documents (doc_id) WHERE valid = 0 AND deleted = 0;

CREATE TABLE objects (
    doc_id TEXT NOT NULL REFERENCES documents (doc_id) ON DELETE CASCADE,
    id INTEGER NOT NULL,
    primitive TEXT NOT NULL,
    subtype TEXT NOT NULL,
    value TEXT NOT NULL,
    normalized_value TEXT,
    label TEXT NOT NULL,
    role TEXT,
    source_line INTEGER NOT NULL,
    block_id TEXT,
    PRIMARY KEY (doc_id, id)
) WITHOUT ROWID, STRICT;

CREATE TABLE object_values (
    id INTEGER NOT NULL PRIMARY KEY,
    primitive TEXT NOT NULL,
    subtype TEXT NOT NULL,
    value TEXT NOT NULL,
    objects INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX object_values_by_value ON object_values (primitive, subtype, value);
CREATE INDEX object_values_unused ON object_values (id) WHERE objects <= 0;
CREATE VIEW searched_values (id, value) AS SELECT id, value || char(1, 1) FROM object_values;
CREATE VIRTUAL TABLE object_text USING fts5
    (value, content = 'searched_values', content_rowid = 'id', tokenize = 'trigram',
     detail = 'none', columnsize = 0);
INSERT INTO object_text (object_text, rank) VALUES ('secure-delete', 1);
CREATE VIRTUAL TABLE object_terms USING fts5vocab (object_text, instance);

CREATE TABLE short_texts (
    text TEXT NOT NULL,
    primitive TEXT NOT NULL,
    subtype TEXT NOT NULL,
    objects INTEGER NOT NULL,
    PRIMARY KEY (text, primitive, subtype)
) WITHOUT ROWID, STRICT;
CREATE TABLE value_changes (
    id INTEGER NOT NULL PRIMARY KEY,
    primitive TEXT NOT NULL,
    subtype TEXT NOT NULL,
    value TEXT NOT NULL,
    objects INTEGER NOT NULL
) STRICT;

CREATE TABLE relationships (
    source_doc_id TEXT NOT NULL REFERENCES documents (doc_id) ON DELETE CASCADE,
    id INTEGER NOT NULL,
    target_doc_id TEXT NOT NULL,
    field TEXT NOT NULL,
    relation_type TEXT NOT NULL CHECK (relation_type IN ('ref', 'mention')),
    source_line INTEGER,
    source_block_id TEXT,
    origin_kind TEXT CHECK (origin_kind IN ('field', 'annotation')),
    source_type TEXT NOT NULL,
    PRIMARY KEY (source_doc_id, id)
) WITHOUT ROWID, STRICT;

CREATE TABLE blocks (
    doc_id TEXT NOT NULL REFERENCES documents (doc_id) ON DELETE CASCADE,
    id INTEGER NOT NULL,
    block_id TEXT,
    heading TEXT NOT NULL,
    level INTEGER NOT NULL,
    start_line INTEGER NOT NULL,
    end_line INTEGER NOT NULL,
    PRIMARY KEY (doc_id, id)
) WITHOUT ROWID, STRICT;

CREATE TABLE field_values (
    doc_id TEXT NOT NULL REFERENCES documents (doc_id) ON DELETE CASCADE,
    field_name TEXT NOT NULL,
    id INTEGER NOT NULL,
    doc_type TEXT NOT NULL,
    field_type TEXT NOT NULL,
    present INTEGER NOT NULL,
    field_value TEXT NOT NULL,
    numeric_rank INTEGER,
    numeric_value REAL,
    decimal_value TEXT,
    extreme INTEGER NOT NULL,
    PRIMARY KEY (doc_id, field_name, id)
) WITHOUT ROWID, STRICT;
CREATE VIEW field_index
    (doc_id, id, field_name, field_value, numeric_value, decimal_value, field_type, doc_type)
    AS SELECT doc_id, id, field_name, field_value,
              CASE numeric_rank WHEN 2 THEN numeric_value END, decimal_value, field_type, doc_type
    FROM field_values WHERE present = 1;

CREATE TABLE type_counts (
    doc_type TEXT NOT NULL PRIMARY KEY,
    documents INTEGER NOT NULL,
    objects INTEGER NOT NULL,
    relationships INTEGER NOT NULL,
    broken_refs INTEGER NOT NULL,
    invalid INTEGER NOT NULL,
    partial INTEGER NOT NULL,
    generation INTEGER NOT NULL
) WITHOUT ROWID, STRICT;
CREATE TABLE subtype_counts (
    primitive TEXT NOT NULL,
    subtype TEXT NOT NULL,
    objects INTEGER NOT NULL,
    PRIMARY KEY (primitive, subtype)
) WITHOUT ROWID, STRICT;
CREATE TABLE fingerprint_counts (
    doc_type TEXT NOT NULL,
    model_fingerprint TEXT NOT NULL,
    documents INTEGER NOT NULL,
    PRIMARY KEY (doc_type, model_fingerprint)
) WITHOUT ROWID, STRICT;

CREATE TABLE deletions (
    change_seq INTEGER NOT NULL PRIMARY KEY,
    doc_id TEXT NOT NULL,
    doc_type TEXT NOT NULL,
    deleted_at TEXT NOT NULL
) STRICT;
CREATE INDEX deletions_by_id ON deletions (doc_id, doc_type, change_seq);
CREATE TABLE carried (
    doc_id TEXT NOT NULL PRIMARY KEY,
    doc_type TEXT NOT NULL,
    file_hash TEXT NOT NULL,
    version INTEGER NOT NULL,
    deleted INTEGER NOT NULL,
    updated_at TEXT NOT NULL,
    created_at TEXT NOT NULL
) WITHOUT ROWID, STRICT;
CREATE TABLE former_paths (
    id INTEGER NOT NULL PRIMARY KEY,
    doc_id TEXT NOT NULL,
    doc_type TEXT NOT NULL,
    path TEXT NOT NULL,
    UNIQUE (doc_id, path)
) STRICT;
CREATE INDEX former_paths_by_path ON former_paths (path);
CREATE TABLE engine_meta (
    key TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID, STRICT;
CREATE TABLE idempotency (
    principal TEXT NOT NULL,
    tool TEXT NOT NULL,
    key TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    request_id TEXT NOT NULL,
    completed_at_ms INTEGER NOT NULL,
    used_at_ms INTEGER NOT NULL,
    result BLOB NOT NULL,
    PRIMARY KEY (principal, tool, key)
) WITHOUT ROWID, STRICT;
CREATE INDEX idempotency_by_use ON idempotency (used_at_ms);
CREATE INDEX idempotency_by_age ON idempotency (completed_at_ms);
CREATE TABLE idempotency_records (
    doc_id TEXT NOT NULL,
    principal TEXT NOT NULL,
    tool TEXT NOT NULL,
    key TEXT NOT NULL,
    PRIMARY KEY (doc_id, principal, tool, key),
    FOREIGN KEY (principal, tool, key) REFERENCES idempotency ON DELETE CASCADE
) WITHOUT ROWID, STRICT;
CREATE INDEX idempotency_records_by_entry ON idempotency_records (principal, tool, key);
"""

CHILD_INDEXES: Mapping[str, str] = MappingProxyType(
    {
        "objects_by_value": "objects (primitive, subtype, value)",
        # Whole edges, so that those to a record are read without a look at each source.
        "relationships_by_target":
            "relationships (target_doc_id, source_doc_id, id, field, relation_type, source_line, "
            "source_block_id, origin_kind, source_type)",
        "field_values_by_text":
            "field_values (doc_type, field_name, present, field_value, doc_id, extreme)",
        "field_values_by_number":
            "field_values (doc_type, field_name, numeric_rank, numeric_value, doc_id, extreme) "
            "WHERE numeric_rank IS NOT NULL",
        "field_values_of_lists": "field_values (doc_type, field_name) WHERE extreme < 4",
    }
)  # fmt: skip
"""Indexes that a load of many records makes after its rows: by name, what they are on."""


def create_layout(connection: apsw.Connection) -> None:
    """Make every table in an empty database, inside one transaction."""
    with connection:
        connection.execute(DDL)
        for name, target in CHILD_INDEXES.items():
            connection.execute(f"CREATE INDEX {name} ON {target}")
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", LAYOUT_VERSION)


def is_current(connection: apsw.Connection) -> bool:
    """Whether the open file has exactly this layout."""
    return layout_version(connection) == LAYOUT_VERSION


def layout_version(connection: apsw.Connection) -> int | None:
    """The layout of the open file; None for a file that is not of ours."""
    if connection.pragma("application_id") != APPLICATION_ID:
        return None
    return int(connection.pragma("user_version"))


def missing_columns(connection: apsw.Connection) -> list[str]:
    """`table.column` for everything of this layout that the open file lacks."""
    wanted = apsw.Connection(":memory:")
    try:
        wanted.execute(DDL)
        return [
            f"{table}.{column}"
            for table in _tables(wanted)
            for column in sorted(_columns(wanted, table) - _columns(connection, table))
        ]
    finally:
        wanted.close()


def _tables(connection: apsw.Connection) -> list[str]:
    rows = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    return [name for (name,) in rows]


def _columns(connection: apsw.Connection, table: str) -> set[str]:
    rows = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
    return {name for (name,) in rows}
