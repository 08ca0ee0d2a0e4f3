"""The index of a project: opening, rebuilding, its connections (spec 01 §12, design §6)."""

from __future__ import annotations

import contextlib
import datetime as dt
import os

import apsw

from maadd.protocol.errors import MaadError
from maadd_worker.disk.log_room import is_cramped, log_bytes
from maadd_worker.index import layout
from maadd_worker.index.connection import (
    backend_error,
    cut_log,
    cut_log_alone,
    open_immutable,
    open_reader,
    open_writer,
)
from maadd_worker.index.documents import DocumentRow, FileIdentity
from maadd_worker.index.load import finish_load
from maadd_worker.index.memo import AnswerMemo
from maadd_worker.index.new_document import NewDocument
from maadd_worker.index.previous import carry_over, found_layout, remove_previous, set_aside
from maadd_worker.index.reader import IndexReader
from maadd_worker.index.rebuilt import (
    CARRIED,
    EPOCH_KEY,
    FORMER_LAYOUT_KEY,
    LOST,
    REBUILT_KEY,
    new_epoch,
    note_nothing_lost,
)
from maadd_worker.index.selections import Selections
from maadd_worker.index.stamps import Clock
from maadd_worker.index.writer import IndexWriter

__all__ = [
    "DocumentRow",
    "FileIdentity",
    "Index",
    "IndexReader",
    "IndexWriter",
    "NewDocument",
]


class Index:
    """An open index. `created` tells that it was empty when opened; `carried` counts the records
    whose version and times an older file has handed over; `former_layout` is the layout of that
    file while no pass has filled this one since (spec 01 §12)."""

    def __init__(
        self, path: str, writer: IndexWriter | None, *, created: bool = False, carried: int = 0
    ) -> None:
        former = None if writer is None else writer.meta_get(FORMER_LAYOUT_KEY)
        self.former_layout = None if former is None else int(former)
        self._path = path
        self._writer = writer
        self._memo = AnswerMemo()
        self._selections = Selections()
        self.created = created
        self.carried = carried

    @classmethod
    def open(cls, path: str, *, read_only: bool, clock: Clock | None = None) -> Index:
        """Open the index at `path`, making or rebuilding it when that is needed.

        A load that was cut short is finished, so that what it stored can be read. A file of
        another layout, also one of the reference, is kept as `<path>.prev`; its
        versions and times pass to the records as they are indexed again; so is a damaged one.
        Read-only creates nothing and raises READ_ONLY for a file that cannot be served as it is.
        BACKEND_ERROR for any other failure.
        """
        if read_only:
            _check_immutable(path)
            return cls(path, None)
        try:
            return cls._open(path, clock or _utc_now, damaged=False)
        except apsw.CorruptError:
            return cls._open(path, clock or _utc_now, damaged=True)

    @classmethod
    def _open(cls, path: str, clock: Clock, *, damaged: bool) -> Index:
        """`open` for writing; a `damaged` file is set aside like one of another layout."""
        try:
            if is_cramped(path) and not damaged:
                cut_log_alone(path)
            found = None if damaged else found_layout(path)
            created = found != layout.LAYOUT_VERSION
            succeeds = created and set_aside(path)
            connection = open_writer(path)
        except (apsw.Error, OSError) as error:
            if isinstance(error, apsw.CorruptError) and not damaged:
                raise
            raise backend_error(error, "opened") from error
        try:
            carried = _create(connection, path, found, succeeds=succeeds) if created else 0
            writer = IndexWriter(connection, clock)
            if writer.loading:
                finish_load(writer)
            with contextlib.suppress(apsw.FullError):
                writer.fold_values()
            # A crash may have left text in it that was deleted since. A reader that keeps it is one
            # of another process: the next quiet moment is soon enough.
            cut_log(connection)
        except apsw.Error as error:
            connection.close()
            if isinstance(error, apsw.CorruptError) and not damaged:
                raise
            raise backend_error(error, "created" if created else "opened") from error
        return cls(path, writer, created=created, carried=carried)

    def writer(self) -> IndexWriter:
        """The one writing connection; READ_ONLY on an index opened for reading."""
        if self._writer is None:
            raise MaadError("READ_ONLY", "the engine is read-only; the index cannot be changed")
        return self._writer

    def reader(self) -> IndexReader:
        """A new reading connection, for one thread; the caller closes it. BACKEND_ERROR."""
        try:
            if self._writer is None:
                return IndexReader(open_immutable(self._path), self._memo, self._selections)
            return IndexReader(open_reader(self._path), self._memo, self._selections)
        except apsw.Error as error:
            raise backend_error(error, "opened for reading") from error

    def find(self, doc_id: str) -> DocumentRow | None:
        """The live row of an id, for the thread that writes."""
        if self._writer is not None:
            return self._writer.find(doc_id)
        with contextlib.closing(self.reader()) as reader:
            return reader.find(doc_id)

    def forget_deleted(self) -> bool:
        """After hard deletes: leave no text of the removed records in any file of the index.

        Freed pages are overwritten when they are freed; what remains is the log and the file of
        an earlier layout. False when a reader still needs the log: call again later.
        BACKEND_ERROR.
        """
        remove_previous(self._path)
        try:
            self.writer().fold_values()
        except apsw.Error as error:
            raise backend_error(error, "cleared of deleted values") from error
        return self.cut_log()

    def cut_log(self) -> bool:
        """Write the log back and cut it off; False when a reader still needs it. BACKEND_ERROR."""
        try:
            return cut_log(self.writer().connection)
        except apsw.Error as error:
            raise backend_error(error, "written back") from error

    @property
    def log_bytes(self) -> int:
        """How long the log is."""
        return log_bytes(self._path)

    def close(self) -> None:
        """Close the writing connection, which writes the log back into the file; idempotent."""
        if self._writer is not None:
            # What stays because the disk is full, or the connection closed, goes at the next start.
            with contextlib.suppress(apsw.Error):
                self._writer.fold_values()
            self._writer.connection.close()


def make_first_index(root: str) -> None:
    """The index of a new project, which has no record yet; one that exists stays as it is.
    BACKEND_ERROR."""
    index = Index.open(os.path.join(root, layout.INDEX_PATH), read_only=False)
    try:
        if index.created and not index.carried:
            note_nothing_lost(index.writer())
    except apsw.Error as error:
        raise backend_error(error, "created") from error
    finally:
        index.close()


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _create(connection: apsw.Connection, path: str, former: int | None, *, succeeds: bool) -> int:
    """Make the tables; `succeeds` tells that the older file is what was the index until now,
    `former` its layout if that is one of ours."""
    with connection:
        layout.create_layout(connection)
        carried = carry_over(connection, path)
        knows_all = succeeds and carried.complete and carried.records > 0
        notes = {EPOCH_KEY: new_epoch(), REBUILT_KEY: CARRIED if knows_all else LOST}
        if former is not None:
            notes[FORMER_LAYOUT_KEY] = str(former)
        connection.executemany(
            "INSERT INTO engine_meta (key, value) VALUES (?, ?)", list(notes.items())
        )
    return carried.records


def _check_immutable(path: str) -> None:
    """READ_ONLY unless the file can be read without touching anything beside it."""
    if not os.path.exists(path):
        raise MaadError(
            "READ_ONLY",
            "the index does not exist and a read-only engine cannot make it; open the project "
            "for writing once, or run maad reindex",
        )
    log = f"{path}-wal"
    if os.path.exists(log) and os.path.getsize(log):
        raise MaadError(
            "READ_ONLY",
            "the index has changes that were not written back (a -wal file); open the project "
            "for writing once, or stop the engine that uses it",
        )
    try:
        connection = open_immutable(path)
        try:
            missing = [] if layout.is_current(connection) else layout.missing_columns(connection)
            current = layout.is_current(connection)
        finally:
            connection.close()
    except apsw.Error as error:
        raise backend_error(error, "opened for reading") from error
    if not current:
        lacks = f" (missing: {', '.join(missing[:5])})" if missing else ""
        raise MaadError(
            "READ_ONLY",
            f"the index has another layout{lacks} and a read-only engine cannot rebuild it; open "
            "the project for writing once, or run maad reindex",
        )
