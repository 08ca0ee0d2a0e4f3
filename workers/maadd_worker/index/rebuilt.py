"""The end of a rebuild: the feed's order, and what the older file handed over (spec 01 §12)."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from maadd_worker.index.sweep import TypeWalk
from maadd_worker.index.writer import IndexWriter

EPOCH_KEY = "epoch"
"""`engine_meta`: random id of this numbering of changes, for cursors of the change feed."""

REBUILT_KEY = "rebuilt"
"""`engine_meta`: present from the making of an index until its first complete pass: CARRIED when
the file before it handed all its versions over, else LOST. Absent in an index that was made where
there was no record."""

FORMER_LAYOUT_KEY = "former_layout"
"""`engine_meta`: the layout of the file whose place an index took, from its making until the end of
its first pass, which a start makes by itself. Absent when another reason made the index new."""

CARRIED = "carried"
LOST = "lost"

_OUT_OF_ORDER = """
SELECT 1 FROM (SELECT updated_at, lag(updated_at) OVER (ORDER BY change_seq) AS earlier
               FROM (SELECT change_seq, updated_at FROM documents
                     UNION ALL SELECT change_seq, deleted_at FROM deletions))
WHERE earlier > updated_at LIMIT 1
"""


def new_epoch() -> str:
    """A fresh epoch."""
    return secrets.token_hex(8)


def has_lost_rows(writer: IndexWriter) -> bool:
    """Whether records that have no row may be known from elsewhere."""
    return writer.meta_get(REBUILT_KEY) not in (None, CARRIED)


def note_nothing_lost(writer: IndexWriter) -> None:
    """The new index was made where there is no record: it is whole as it is."""
    with writer.transaction():
        writer.meta_set(REBUILT_KEY, None)


def finish_rebuild(writer: IndexWriter, walks: Sequence[TypeWalk]) -> None:
    """After the passes of a rebuild: drop what nobody claimed, number the changes by their times.

    What belongs to a type whose folder was not found in order waits for a better pass.
    """
    found = [walk.entry.name for walk in walks if walk.state == "found"]
    origin = writer.meta_get(REBUILT_KEY)
    if origin is None:
        return
    with writer.transaction():
        writer.stamps.forget_carried(found)
        if not found or any(walk.state == "broken" for walk in walks):
            return
        if writer.connection.execute(_OUT_OF_ORDER).fetchone() is not None:
            writer.stamps.renumber_changes()
            writer.meta_set(EPOCH_KEY, new_epoch())
        writer.meta_set(REBUILT_KEY, None)
