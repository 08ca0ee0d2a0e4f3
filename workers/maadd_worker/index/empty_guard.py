"""An index that is empty, or has lost records, although the files are there (spec 01 §14.6).

An empty index answers "no such record" to everything, which agents take for the truth; a
server refuses to serve it.
"""

from __future__ import annotations

import msgspec

from maadd_worker.disk.root import ProjectRoot
from maadd_worker.index.reader import IndexReader
from maadd_worker.index.rebuilt import REBUILT_KEY
from maadd_worker.index.writer import FIRST_PASS_KEY
from maadd_worker.schema.model import Model

LOST_SHARE = 0.1
"""More files than this share above the live records: the index has lost some."""


class IndexState(msgspec.Struct, frozen=True):
    """Live records of the index against Markdown files below the registered paths."""

    documents: int
    files: int

    @property
    def incomplete(self) -> bool:
        """Whether files exceed records by so much that the index must be brought up to date."""
        return self.files > self.documents * (1 + LOST_SHARE)


def unindexed_files(
    reader: IndexReader, model: Model, root: ProjectRoot, *, created: bool = False
) -> int | None:
    """The number of Markdown files under the registered paths that an empty index lacks.

    None when there is nothing to refuse: the index has a live record, no type is registered, or
    no file exists. Only an empty index costs a look at the disk, and one that was `created` now
    or whose first pass has not ended: it may hold a few records, from recovery or from that pass.
    """
    if not reader.counters().documents:
        return index_state(reader, model, root).files or None
    if not created and reader.meta_get(FIRST_PASS_KEY) is None:
        return None
    state = index_state(reader, model, root)
    return state.files if state.files > state.documents else None


def may_have_lost(reader: IndexReader) -> bool:
    """Whether an index without records may have lost some, rather than never had any."""
    keys = (REBUILT_KEY, FIRST_PASS_KEY)
    return any(reader.meta_get(key) is not None for key in keys)


def has_no_file(model: Model, root: ProjectRoot) -> bool:
    """Whether there is no record file under the registered paths, not even a soft-deleted one."""
    walks = (root.walk_markdown(entry.path) for entry in model.registry.types.values())
    return not any(walk.files or walk.tombstones for walk in walks)


def index_state(reader: IndexReader, model: Model, root: ProjectRoot) -> IndexState:
    """Count records and files; walks every registered path."""
    files = {
        file.path
        for entry in model.registry.types.values()
        for file in root.walk_markdown(entry.path).files
    }
    return IndexState(reader.counters().documents, len(files))
