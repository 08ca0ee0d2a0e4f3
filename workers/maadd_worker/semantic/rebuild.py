"""Texts for records that have none of their present content: after the switch was turned on, and
for what was written while it was off (spec 02 §6.4)."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.index.block_texts import DocumentTexts, block_texts
from maadd_worker.index.writer import IndexWriter
from maadd_worker.markdown.document import parse_document
from maadd_worker.markdown.frontmatter import content_hash
from maadd_worker.semantic.block_store import BlockStore

_PAGE = 1000
_STEP_S = 0.01

_STALE = """
SELECT d.doc_id, d.file_path, d.file_hash, s.file_hash IS d.file_hash
FROM documents d LEFT JOIN semantic_docs s ON s.doc_id = d.doc_id
WHERE d.deleted = 0 AND d.doc_id > ? ORDER BY d.doc_id LIMIT ?
"""


class _Stale(msgspec.Struct, frozen=True):
    doc_id: str
    path: str
    file_hash: str


class Rebuild:
    """One pass over the records in small steps, on the writer thread.

    A file that is not what the index knows, or cannot be read, is left to whoever indexes it.
    """

    def __init__(
        self, writer: IndexWriter, store: BlockStore, root: ProjectRoot, max_doc_bytes: int
    ) -> None:
        self._writer = writer
        self._store = store
        self._root = root
        self._max_bytes = max_doc_bytes or None
        self._waiting: deque[_Stale] = deque()
        self._last: str | None = ""
        self._look_for_more()

    @property
    def is_done(self) -> bool:
        """Whether every record was looked at."""
        return self._last is None and not self._waiting

    def step(self) -> None:
        """Do a part that holds up a write for some milliseconds at most."""
        if not self._waiting:
            self._look_for_more()
            return
        end = time.monotonic() + _STEP_S
        with self._writer.transaction():
            while self._waiting and time.monotonic() < end:
                self._take(self._waiting[0])
                self._waiting.popleft()

    def _look_for_more(self) -> None:
        if self._last is None:
            return
        rows: list[Any] = self._writer.connection.execute(_STALE, (self._last, _PAGE)).fetchall()
        self._waiting.extend(_Stale(*row[:3]) for row in rows if not row[3] and row[2])
        self._last = rows[-1][0] if len(rows) == _PAGE else None

    def _take(self, stale: _Stale) -> None:
        row = self._writer.find(stale.doc_id)
        if row is None or row.file_hash != stale.file_hash:
            return
        try:
            data = self._root.read(stale.path, self._max_bytes).data
            if content_hash(data) != stale.file_hash:
                return
            parsed = parse_document(data, stale.path)
        except MaadError:
            return
        self._store.replace(DocumentTexts(stale.doc_id, stale.file_hash, block_texts(parsed)))
