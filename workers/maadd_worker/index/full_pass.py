"""The whole-project pass: every file against every row (spec 01 §14.2).

Takes one type after the other, in chunks. Files are looked at and read without a transaction;
the rows of a chunk change in one, so that other writes can come between. The pass holds the
paths of the project, never its contents.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext

import apsw
import msgspec

from maadd.protocol.errors import MaadError, MaadErrors, errors_of
from maadd.protocol.messages import WorkerSettings
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.disk.scan import MarkdownFile
from maadd_worker.index.connection import backend_error
from maadd_worker.index.counters import read_counters
from maadd_worker.index.document import IndexedDocument, index_document
from maadd_worker.index.documents import DocumentRow, FileIdentity
from maadd_worker.index.pass_report import PassChange, PassProgress, ReindexReport
from maadd_worker.index.rebuilt import finish_rebuild
from maadd_worker.index.sweep import SweepResult, TypeWalk, judge_walk, sweep, walk_warning
from maadd_worker.index.tombstone_files import register_tombstones
from maadd_worker.index.writer import IndexWriter
from maadd_worker.schema.fingerprint import index_fingerprint
from maadd_worker.schema.model import Model
from maadd_worker.schema.registry import TypeEntry

_CHUNK_FILES = 500
_CHUNK_BYTES = 8 * 1024 * 1024
"""A transaction holds the lock for a fraction of a second, and its files fit in memory."""

_SETTLED_NS = 2_000_000_000
"""A file younger than this may change again without another mtime."""

INDEX_FINGERPRINT_KEY = "schema_index_fp:"
MODEL_FINGERPRINT_KEY = "model_fp:"
"""Beginnings of `engine_meta` keys; the type follows."""

_KNOWN_FILES = """
SELECT file_path, doc_type, file_hash, model_fingerprint, mtime_ns, size, inode
FROM documents WHERE deleted = 0 AND file_path IN (SELECT value FROM json_each(?))
"""


def index_all(
    writer: IndexWriter,
    model: Model,
    root: ProjectRoot,
    settings: WorkerSettings,
    *,
    force: bool = False,
    prune: bool = False,
    progress: Callable[[PassProgress], None] | None = None,
    between_chunks: Callable[[], None] | None = None,
    changed: Callable[[PassChange], None] | None = None,
) -> ReindexReport:
    """Bring the whole index up to date with the files; call outside a transaction.

    `force` makes all rows anew. `prune` also removes the rows of missing files whose folder is
    empty or gone. `between_chunks` runs while no transaction is open, for writes that wait; an
    exception from it ends the pass, and what is committed stays. `changed` hears of every
    record that changed. Failures of single files are in the report; BACKEND_ERROR when the
    database itself fails.
    """
    run = _Pass(writer, model, root, settings, force, progress, between_chunks, changed)
    try:
        return run.run(prune)
    except apsw.Error as error:
        raise backend_error(error, "brought up to date") from error


class _KnownFile(msgspec.Struct, frozen=True):
    """The row that the index has for a path."""

    path: str
    doc_type: str
    file_hash: str
    model_fingerprint: str
    mtime_ns: int | None
    size: int | None
    inode: int | None


class _ReadFile(msgspec.Struct, frozen=True):
    """A file of a chunk: its content, or why it could not be read."""

    path: str
    data: bytes
    identity: FileIdentity | None
    failure: MaadError | None = None


class _Outcome(msgspec.Struct, frozen=True):
    """What became of a file."""

    path: str
    done: IndexedDocument | None
    errors: tuple[MaadError, ...] = ()


class _Pass:
    """One run: its inputs, and the counts that the report is made of."""

    def __init__(
        self,
        writer: IndexWriter,
        model: Model,
        root: ProjectRoot,
        settings: WorkerSettings,
        force: bool,
        progress: Callable[[PassProgress], None] | None,
        between_chunks: Callable[[], None] | None,
        changed: Callable[[PassChange], None] | None,
    ) -> None:
        self._writer = writer
        self._model = model
        self._root = root
        self._settings = settings
        self._force = force
        self._progress = progress
        self._between_chunks = between_chunks
        self._changed = changed
        self._plans = writer.type_plans(model)
        self._scanned: set[str] = set()
        self._errors: list[MaadError] = []
        self._warnings: list[str] = []
        self._failed_types: set[str] = set()
        self._indexed = self._skipped = self._partial = 0

    def run(self, prune: bool) -> ReindexReport:
        dirty = self._dirty_types()
        last_seq = self._writer.last_seq
        walks = [self._index_type(entry) for entry in self._model.registry.types.values()]
        rows = read_counters(self._writer.connection).documents_by_type
        for walk in walks:
            warning = walk_warning(walk, rows.get(walk.entry.name, 0))
            if warning is not None:
                self._warnings.append(warning)
        swept = sweep(
            self._writer,
            self._root,
            walks,
            self._scanned,
            last_seq,
            prune=prune,
            removed=self._tell_removed,
        )
        self._finish(walks)
        finish_rebuild(self._writer, walks)
        if self._indexed:
            self._writer.connection.execute("PRAGMA optimize")
        return self._report(dirty, walks, swept)

    def _index_type(self, entry: TypeEntry) -> TypeWalk:
        walk = self._root.walk_markdown(entry.path)
        judged = judge_walk(self._root, entry, walk)
        if judged.state != "gone":
            self._warnings.extend(walk.warnings)
        for chunk in self._chunks(walk.files):
            self._index_chunk(entry, chunk)
            if self._progress is not None:
                self._progress(
                    PassProgress(
                        entry.name,
                        len(walk.files),
                        len(self._scanned),
                        self._indexed,
                        len(self._errors),
                    )
                )
            if self._between_chunks is not None:
                self._between_chunks()
        self._warnings.extend(
            register_tombstones(
                self._writer, self._root, walk.tombstones, self._settings.max_doc_bytes
            )
        )
        return judged

    def _chunks(self, files: Sequence[MarkdownFile]) -> Iterator[list[MarkdownFile]]:
        """The files not scanned yet (paths of types may overlap), in bounded portions."""
        chunk: list[MarkdownFile] = []
        size = 0
        for file in files:
            if file.path in self._scanned:
                continue
            self._scanned.add(file.path)
            chunk.append(file)
            size += file.size
            if len(chunk) == _CHUNK_FILES or size >= _CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk

    def _index_chunk(self, entry: TypeEntry, chunk: Sequence[MarkdownFile]) -> None:
        known = self._known_files(chunk)
        pending = [file for file in chunk if not self._is_current(file, known.get(file.path))]
        self._skipped += len(chunk) - len(pending)
        read = [found for file in pending if (found := self._read(file)) is not None]
        if not read:
            return
        try:
            outcomes = self._index_files(read, guarded=False)
        except (MaadError, apsw.Error):
            # One file made SQLite fail: the others must not pay for it.
            outcomes = self._index_files(read, guarded=True)
        for outcome in outcomes:
            self._account(outcome, entry, known.get(outcome.path))

    def _index_files(self, files: Sequence[_ReadFile], *, guarded: bool) -> list[_Outcome]:
        """Index files in one transaction. Guarded, each has its savepoint and fails alone;
        otherwise a failure of the database ends the transaction."""
        outcomes: list[_Outcome] = []
        with self._writer.transaction():
            for file in files:
                part = self._writer.savepoint() if guarded else nullcontext()
                try:
                    with part:
                        outcomes.append(self._index_file(file))
                except (MaadError, MaadErrors) as failure:
                    errors = errors_of(failure)
                    if errors[0].code == "BACKEND_ERROR" and (
                        not guarded or not self._writer.connection.in_transaction
                    ):
                        raise
                    outcomes.append(_Outcome(file.path, None, tuple(errors)))
        return outcomes

    def _account(self, outcome: _Outcome, entry: TypeEntry, known: _KnownFile | None) -> None:
        """Count what became of a file and tell the changes, after their commit."""
        if outcome.errors:
            self._errors.extend(outcome.errors)
            self._failed_types.add(entry.name)
            if known is not None:
                self._failed_types.add(known.doc_type)
        done = outcome.done
        if done is None:
            return
        if not done.rows_made:
            self._skipped += 1
            return
        self._indexed += 1
        self._partial += done.row.partial
        if self._changed is not None:
            if done.replaced is not None:
                self._changed(PassChange("delete", done.replaced))
            if done.action != "unchanged":
                self._changed(PassChange(done.action, done.row))

    def _known_files(self, chunk: Sequence[MarkdownFile]) -> dict[str, _KnownFile]:
        paths = msgspec.json.encode([file.path for file in chunk]).decode()
        rows = self._writer.connection.execute(_KNOWN_FILES, (paths,))
        return {row[0]: _KnownFile(*row) for row in rows}

    def _is_current(self, file: MarkdownFile, known: _KnownFile | None) -> bool:
        """Whether stat alone proves that the rows are those of the file and the model."""
        return (
            known is not None
            and not self._force
            and known.mtime_ns == file.mtime_ns
            and known.size == file.size
            and known.inode == file.inode
            and known.file_hash != ""
            and known.model_fingerprint == self._plans.fingerprint(known.doc_type)
        )

    def _read(self, file: MarkdownFile) -> _ReadFile | None:
        """The content of a file; None when it has vanished since the walk."""
        now_ns = time.time_ns()
        try:
            content = self._root.read(file.path, self._settings.max_doc_bytes or None)
        except MaadError as error:
            if error.code == "FILE_READ_ERROR" and not self._root.exists(file.path):
                self._scanned.discard(file.path)
                return None
            return _ReadFile(file.path, b"", None, error)
        settled = now_ns - content.mtime_ns > _SETTLED_NS
        identity = FileIdentity(content.mtime_ns, content.size, content.inode) if settled else None
        return _ReadFile(file.path, content.data, identity)

    def _index_file(self, file: _ReadFile) -> _Outcome:
        if file.failure is not None:
            if file.failure.code == "DOC_TOO_LARGE":
                row = self._writer.find_by_path(file.path)
                if row is not None and row.file_hash:
                    self._writer.mark_unread(row)
            return _Outcome(file.path, None, (file.failure,))
        done = index_document(
            self._writer,
            self._model,
            self._root,
            file.path,
            file.data,
            max_annotations=self._settings.max_doc_annotations,
            force=self._force,
            file=file.identity,
        )
        return _Outcome(file.path, done)

    def _dirty_types(self) -> list[str]:
        """The types whose rows depend on another model than the last clean pass saw."""
        return sorted(
            name
            for name in self._model.registry.types
            if self._force
            or any(self._writer.meta_get(key) != value for key, value in self._keys(name).items())
        )

    def _keys(self, doc_type: str) -> dict[str, str]:
        """`engine_meta` keys of a type with the values of the model; none for an unusable one."""
        try:
            plan = self._plans.plan(doc_type)
        except MaadError:
            return {}
        return {
            INDEX_FINGERPRINT_KEY + doc_type: index_fingerprint(plan.schema),
            MODEL_FINGERPRINT_KEY + doc_type: plan.fingerprint,
        }

    def _finish(self, walks: Sequence[TypeWalk]) -> None:
        broken = {walk.entry.name for walk in walks if walk.state == "broken"}
        with self._writer.transaction():
            self._writer.trim_deletions()
            for name in self._model.registry.types:
                for key, value in self._keys(name).items():
                    clean = name not in self._failed_types and name not in broken
                    if clean and self._writer.meta_get(key) != value:
                        self._writer.meta_set(key, value)
                    elif not clean and self._force:
                        self._writer.meta_set(key, None)

    def _tell_removed(self, rows: list[DocumentRow]) -> None:
        if self._changed is not None:
            for row in rows:
                self._changed(PassChange("delete", row))

    def _report(
        self, dirty: list[str], walks: Sequence[TypeWalk], swept: SweepResult
    ) -> ReindexReport:
        return ReindexReport(
            scanned=len(self._scanned),
            indexed=self._indexed,
            skipped=self._skipped,
            errors=tuple(self._errors),
            rebuilt_types=tuple(dirty),
            partial=self._partial,
            pruned=swept.pruned,
            warnings=(*self._warnings, *swept.warnings),
            prunable=swept.prunable,
            prunable_ids=swept.prunable_ids,
            complete=all(walk.state != "broken" for walk in walks),
        )
