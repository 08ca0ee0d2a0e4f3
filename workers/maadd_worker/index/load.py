"""Loading many records at once: secondary indexes after the rows (spec 01 §14.2).

While a load runs, rows are committed chunk by chunk as ever, but the indexes of the child
tables and some counts do not exist, so nobody can read records. A load that was cut short keeps
its rows: whoever opens the index next finishes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from maadd_worker.index.counters import finish_counters
from maadd_worker.index.layout import CHILD_INDEXES
from maadd_worker.index.writer import LOADING_KEY, IndexWriter

_LOG_PAGES = 16_384
"""Pages of 4 KiB in the log before they are written back; with a thousand, as otherwise, every
chunk would be written twice. What is in the log at the end is left to a quiet moment
(`write_log_back`)."""


@contextmanager
def load(writer: IndexWriter) -> Iterator[None]:
    """Everything stored inside belongs to one load; call outside a transaction.

    An exception finishes the load too, unless the database itself has failed.
    """
    with writer.transaction():
        writer.meta_set(LOADING_KEY, "1")
        for name in CHILD_INDEXES:
            writer.connection.execute(f"DROP INDEX IF EXISTS {name}")
    writer.loading = True
    writer.hold_log(_LOG_PAGES)
    with _pragma(writer, "foreign_keys", False):
        try:
            yield
        finally:
            finish_load(writer)


def finish_load(writer: IndexWriter) -> None:
    """Make what a load has left out. Each step is kept when the next one is cut short."""
    # Sorting goes to files: its size is that of the corpus.
    with _pragma(writer, "temp_store", 0):
        for name, target in CHILD_INDEXES.items():
            writer.connection.execute(f"CREATE INDEX IF NOT EXISTS {name} ON {target}")
        with writer.transaction():
            finish_counters(writer.connection)
            writer.meta_set(LOADING_KEY, None)
    writer.loading = False


@contextmanager
def _pragma(writer: IndexWriter, name: str, value: int) -> Iterator[None]:
    """A setting of the connection for a while."""
    before = writer.connection.pragma(name)
    writer.connection.pragma(name, value)
    try:
        yield
    finally:
        writer.connection.pragma(name, before)
