"""The tables of the semantic index, in the file of the index (spec 02 §6.3).

A block is known by one number: that of its record, then its place among the record's blocks.
So the blocks of a record lie together in every table, and a ranking is told apart by records
without a look at any other table.

`fts_blocks` keeps no text of its own but reads `block_text`, whose columns hold the indexed form
of texts (`words.py`). Vectors lie in ordinary tables: a deleted row leaves a free place, while
the chunks of a virtual table of sqlite-vec grow with every replacement, and a scan of one bit
for each dimension with the best candidates compared in full is several times as fast as its
search. `vec_bits` has a row for each vector; its bits are
empty when the width is no multiple of eight.
"""

from __future__ import annotations

import apsw

from maadd_worker.index.block_texts import MOST_BLOCKS
from maadd_worker.index.documents import read_meta

LAYOUT = "1"
LAYOUT_KEY = "semantic_layout"
DIM_KEY = "embed_dim"
MODEL_KEY = "embed_model"
"""Keys of `engine_meta`."""

MAX_DIM = 8192

ORDINAL_BITS = MOST_BLOCKS.bit_length() - 1
ORDINAL_MASK = MOST_BLOCKS - 1

_TEXT_DDL = """
CREATE TABLE semantic_docs (
    doc_no INTEGER NOT NULL PRIMARY KEY,
    doc_id TEXT NOT NULL UNIQUE,
    file_hash TEXT NOT NULL,
    blocks INTEGER NOT NULL
) STRICT;
CREATE TABLE block_text (
    block INTEGER NOT NULL PRIMARY KEY,
    block_id TEXT,
    heading TEXT NOT NULL,
    text TEXT NOT NULL,
    text_hash TEXT NOT NULL
) STRICT;
CREATE VIRTUAL TABLE fts_blocks USING fts5
    (text, heading, content = 'block_text', content_rowid = 'block');
INSERT INTO fts_blocks (fts_blocks, rank) VALUES ('secure-delete', 1);
CREATE TABLE embed_queue (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    block INTEGER NOT NULL UNIQUE,
    queued_at_ms INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    next_attempt_ms INTEGER NOT NULL DEFAULT 0,
    last_error TEXT,
    failed INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX embed_queue_again ON embed_queue (next_attempt_ms) WHERE attempts > 0;
"""
_TEXT_TABLES = ("fts_blocks", "embed_queue", "block_text", "semantic_docs")

_VECTOR_DDL = """
CREATE TABLE vec_blocks (block INTEGER NOT NULL PRIMARY KEY, embedding BLOB NOT NULL) STRICT;
CREATE TABLE vec_bits (block INTEGER NOT NULL PRIMARY KEY, bits BLOB NOT NULL) STRICT;
"""
_VECTOR_TABLES = ("vec_blocks", "vec_bits")

_HAS_TABLE = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"


def block_number(doc_no: int, ordinal: int) -> int:
    """The number of a block."""
    return doc_no << ORDINAL_BITS | ordinal


def block_range(doc_no: int) -> tuple[int, int]:
    """The first and the last number that blocks of a record can have."""
    return block_number(doc_no, 0), block_number(doc_no, ORDINAL_MASK)


def has_texts(connection: apsw.Connection) -> bool:
    """Whether the file has the tables of texts, of any layout."""
    return _has_table(connection, "semantic_docs")


def has_current_texts(connection: apsw.Connection) -> bool:
    """Whether the file has the tables of texts in this layout."""
    return has_texts(connection) and read_meta(connection, LAYOUT_KEY) == LAYOUT


def has_vectors(connection: apsw.Connection) -> bool:
    """Whether the file has the tables of vectors."""
    return _has_table(connection, "vec_blocks")


def create_texts(connection: apsw.Connection) -> None:
    """Make the tables of texts anew, without those of vectors, in the open transaction."""
    drop(connection)
    connection.execute(_TEXT_DDL)


def create_vectors(connection: apsw.Connection) -> None:
    """Make the tables of vectors anew, in the open transaction."""
    _drop(connection, _VECTOR_TABLES)
    connection.execute(_VECTOR_DDL)


def drop(connection: apsw.Connection) -> None:
    """Remove all tables of the semantic index, in the open transaction."""
    _drop(connection, (*_VECTOR_TABLES, *_TEXT_TABLES))


def _drop(connection: apsw.Connection, names: tuple[str, ...]) -> None:
    for name in names:
        connection.execute(f"DROP TABLE IF EXISTS {name}")


def _has_table(connection: apsw.Connection, name: str) -> bool:
    return connection.execute(_HAS_TABLE, (name,)).fetchone() is not None
