"""The texts of blocks in and out of the index, inside its transactions (spec 02 §6.3).

A block whose text is unchanged keeps its vector and its place in the queue; a block whose text
is new or changed is queued for a new vector.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import apsw

from maadd_worker.index.block_texts import BlockText, DocumentTexts
from maadd_worker.semantic.layout import ORDINAL_MASK, block_number, block_range
from maadd_worker.semantic.words import indexed_form

Row = tuple[int, str | None, str, str, str]
"""A row of `block_text`."""


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class BlockStore:
    """The sink of an index for texts, on its writing connection (`TextSink`).

    Without `wanted` it only lets go of what is deleted. `vectors` tells that the tables of
    vectors exist; `queued` that blocks were queued since somebody has cleared it.
    """

    def __init__(self, connection: apsw.Connection, *, wanted: bool, vectors: bool) -> None:
        self.wanted = wanted
        self.vectors = vectors
        self.queued = False
        self._connection = connection

    def add(self, documents: list[DocumentTexts]) -> None:
        """Store records that have no rows; apsw.Error when one has."""
        next_no: int = self._connection.execute(_NEXT_NO).get
        rows: list[Row] = []
        docs: list[tuple[int, str, str, int]] = []
        for doc_no, document in enumerate(documents, next_no):
            docs.append((doc_no, document.doc_id, document.file_hash, len(document.blocks)))
            rows += [_row(doc_no, block) for block in document.blocks]
        self._connection.executemany("INSERT INTO semantic_docs VALUES (?, ?, ?, ?)", docs)
        self._put(rows)

    def replace(self, document: DocumentTexts) -> None:
        """Store what differs between the record and its rows."""
        known: Any = self._connection.execute(_FIND, (document.doc_id,)).fetchone()
        if known is None:
            self.add([document])
            return
        doc_no, file_hash = known
        old: dict[int, Row] = {
            row[0]: row for row in self._connection.execute(_TEXTS, block_range(doc_no))
        }
        new = {row[0]: row for row in (_row(doc_no, block) for block in document.blocks)}
        renamed = [
            row
            for block, row in new.items()
            if block in old and old[block] != row and old[block][4] == row[4]
        ]
        changed = [row for block, row in new.items() if block not in old or old[block][4] != row[4]]
        self._cut([block for block in old if block not in new or old[block][4] != new[block][4]])
        self._put(changed)
        for row in renamed:
            self._unlist([row[0]])
            self._connection.execute(_RENAME, (row[1], row[2], row[0]))
            self._list([row[0]])
        if file_hash != document.file_hash or len(old) != len(new):
            self._connection.execute(_REFRESH, (document.file_hash, len(document.blocks), doc_no))

    def remove(self, doc_id: str) -> None:
        """Let go of a record: texts, words, vectors, places in the queue."""
        known: Any = self._connection.execute(_FIND, (doc_id,)).fetchone()
        if known is None:
            return
        doc_no = known[0]
        blocks: list[Any] = self._connection.execute(_BLOCKS, block_range(doc_no)).fetchall()
        self._cut([block for (block,) in blocks])
        self._connection.execute("DELETE FROM semantic_docs WHERE doc_no = ?", (doc_no,))

    def queue_all(self) -> None:
        """Queue every block anew, whatever became of it before."""
        self._connection.execute("DELETE FROM embed_queue")
        self._connection.execute(_QUEUE_ALL, (now_ms(),))
        self.queued = True

    def queue_missing(self) -> None:
        """Queue the blocks that have neither a vector nor a place in the queue."""
        self._connection.execute(_QUEUE_MISSING, (now_ms(),))
        self.queued = True

    def _put(self, rows: Sequence[Row]) -> None:
        if not rows:
            return
        queued_at = now_ms()
        self._connection.executemany("INSERT INTO block_text VALUES (?, ?, ?, ?, ?)", rows)
        self._connection.executemany(_LIST, ((row[0], row[3], row[2]) for row in rows))
        self._connection.executemany(_QUEUE, ((row[0], queued_at) for row in rows))
        self.queued = True

    def _cut(self, blocks: Sequence[int]) -> None:
        if not blocks:
            return
        self._unlist(blocks)
        tables = ["block_text", "embed_queue"]
        if self.vectors:
            tables += ["vec_blocks", "vec_bits"]
        for table in tables:
            self._connection.executemany(f"DELETE FROM {table} WHERE block = ?", _singles(blocks))

    def _list(self, blocks: Sequence[int]) -> None:
        """Enter stored texts in the index of words."""
        self._connection.executemany(_LIST_STORED, _singles(blocks))

    def _unlist(self, blocks: Sequence[int]) -> None:
        """Take texts out of the index of words; they must still be stored."""
        self._connection.executemany(_UNLIST, _singles(blocks))


def ordinal_of(block: int) -> int:
    """The place of a block among those of its record."""
    return block & ORDINAL_MASK


def _row(doc_no: int, block: BlockText) -> Row:
    return (
        block_number(doc_no, block.ordinal),
        block.block_id,
        indexed_form(block.heading),
        indexed_form(block.text),
        block.text_hash,
    )


def _singles(blocks: Iterable[int]) -> Iterable[tuple[int]]:
    return ((block,) for block in blocks)


_NEXT_NO = "SELECT coalesce(max(doc_no), 0) + 1 FROM semantic_docs"
_FIND = "SELECT doc_no, file_hash FROM semantic_docs WHERE doc_id = ?"
_TEXTS = "SELECT * FROM block_text WHERE block BETWEEN ? AND ?"
_BLOCKS = "SELECT block FROM block_text WHERE block BETWEEN ? AND ?"
_REFRESH = "UPDATE semantic_docs SET file_hash = ?, blocks = ? WHERE doc_no = ?"
_RENAME = "UPDATE block_text SET block_id = ?, heading = ? WHERE block = ?"
_LIST = "INSERT INTO fts_blocks (rowid, text, heading) VALUES (?, ?, ?)"
_LIST_STORED = """
INSERT INTO fts_blocks (rowid, text, heading)
SELECT block, text, heading FROM block_text WHERE block = ?
"""
_UNLIST = """
INSERT INTO fts_blocks (fts_blocks, rowid, text, heading)
SELECT 'delete', block, text, heading FROM block_text WHERE block = ?
"""
_QUEUE = "INSERT INTO embed_queue (block, queued_at_ms) VALUES (?, ?)"
_QUEUE_ALL = """
INSERT INTO embed_queue (block, queued_at_ms) SELECT block, ? FROM block_text ORDER BY block
"""
_QUEUE_MISSING = """
INSERT OR IGNORE INTO embed_queue (block, queued_at_ms)
SELECT t.block, ? FROM block_text t
WHERE NOT EXISTS (SELECT 1 FROM vec_blocks v WHERE v.block = t.block) ORDER BY t.block
"""
