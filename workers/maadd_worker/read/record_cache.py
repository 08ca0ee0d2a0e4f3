"""Parsed records by file identity, bounded by bytes.

A cached record is valid for exactly one (mtime_ns, size, inode) of its path: a hot read costs
one `stat`. Reading threads share the cache.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from maadd_worker.disk.root import FileContent, ProjectRoot
from maadd_worker.markdown.blocks import Block, scan_blocks
from maadd_worker.markdown.diagnostics import parse_error
from maadd_worker.markdown.frontmatter import SplitFile, content_hash, split_file
from maadd_worker.markdown.yaml_profile import load_frontmatter

SETTLED_NS = 20_000_000
"""A file changed more recently may change again within the clock's grain, unseen by stat."""

_COST_PER_BYTE = 4
_COST_OF_ENTRY = 2048


class CachedRecord(msgspec.Struct, frozen=True):
    """One parsed file. `frontmatter_json` is the finished JSON text of the frontmatter; `cost`
    estimates the memory held, in bytes."""

    stamp: tuple[int, int, int]
    file_hash: str
    frontmatter: dict[str, Any]
    frontmatter_json: msgspec.Raw
    split: SplitFile
    cost: int

    def blocks(self) -> tuple[Block, ...]:
        """The blocks of the body as it stands in the file."""
        return scan_blocks(self.split.body, self.split.body_start_line)


def parse_record(content: FileContent, path: str) -> CachedRecord:
    """Parse one file's content; parser errors name the file and the position."""
    if not content.data:
        raise parse_error("empty file; restore it or delete it", path, 1, 1)
    split = split_file(content.data, path)
    frontmatter = load_frontmatter(split, path)
    return CachedRecord(
        stamp=(content.mtime_ns, content.size, content.inode),
        file_hash=content_hash(content.data),
        frontmatter=frontmatter,
        frontmatter_json=msgspec.Raw(msgspec.json.encode(frontmatter)),
        split=split,
        cost=_COST_PER_BYTE * content.size + _COST_OF_ENTRY,
    )


class RecordCache:
    """The records used last, at most `capacity_bytes` of estimated memory."""

    def __init__(
        self,
        root: ProjectRoot,
        capacity_bytes: int,
        max_doc_bytes: int,
        clock_ns: Callable[[], int],
    ) -> None:
        self._root = root
        self._capacity = capacity_bytes
        self._max_doc_bytes = max_doc_bytes
        self._clock_ns = clock_ns
        self._records: OrderedDict[str, CachedRecord] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def load(self, path: str, *, keep: bool = True) -> CachedRecord:
        """The record at `path` as it is on disk now; `keep=False` for sweeps over everything.

        Raises PATH_OUTSIDE_PROJECT, FILE_READ_ERROR, DOC_TOO_LARGE, PARSE_ERROR,
        YAML_PROFILE_VIOLATION.
        """
        cached = self._records.get(path)
        if cached is not None:
            try:
                now = self._root.stat(path)
            except OSError:
                now = None
            if now is not None and cached.stamp == (now.st_mtime_ns, now.st_size, now.st_ino):
                with self._lock:
                    if path in self._records:
                        self._records.move_to_end(path)
                return cached
        content = self._root.read(path, self._max_doc_bytes)
        record = parse_record(content, path)
        if keep and self._clock_ns() - content.mtime_ns > SETTLED_NS:
            self._store(path, record)
        return record

    def forget(self, path: str) -> None:
        """Drop a record, so that nothing of it stays in memory."""
        with self._lock:
            old = self._records.pop(path, None)
            if old is not None:
                self._size -= old.cost

    def _store(self, path: str, record: CachedRecord) -> None:
        if record.cost > self._capacity:
            return
        with self._lock:
            old = self._records.pop(path, None)
            if old is not None:
                self._size -= old.cost
            self._records[path] = record
            self._size += record.cost
            while self._size > self._capacity:
                _, evicted = self._records.popitem(last=False)
                self._size -= evicted.cost
