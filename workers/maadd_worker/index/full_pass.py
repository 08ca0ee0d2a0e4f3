"""The whole-project pass: every file against every row (spec 01 §14.2).

Takes one type after the other, in batches. Files are read and parsed without a transaction;
the rows of a batch change in one, and each is a step, so that other writes can come between.
The pass holds the paths of the project and a few batches, never all contents.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TypeGuard

import apsw
import msgspec

from maadd.protocol.errors import MaadError
from maadd.protocol.messages import WorkerSettings
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.disk.scan import MarkdownFile
from maadd_worker.index.batch import FileOutcome, store_batch
from maadd_worker.index.connection import backend_error
from maadd_worker.index.counters import read_counters
from maadd_worker.index.documents import DocumentRow
from maadd_worker.index.known_files import KnownFile, known_files
from maadd_worker.index.load import load
from maadd_worker.index.pass_report import ChangedId, PassChange, PassProgress, ReindexReport
from maadd_worker.index.past import PastLookup, PastStamps, when_asked
from maadd_worker.index.pipeline import Pipeline
from maadd_worker.index.prepare import COLLECTION_THRESHOLD, FileTask, Limits, PreparedFile
from maadd_worker.index.rebuilt import FORMER_LAYOUT_KEY, finish_rebuild, has_lost_rows
from maadd_worker.index.sweep import SweepResult, TypeWalk, judge_walk, sweep, walk_warning
from maadd_worker.index.tombstone_files import register_tombstones
from maadd_worker.index.writer import FIRST_PASS_KEY, IndexWriter
from maadd_worker.schema.fingerprint import index_fingerprint
from maadd_worker.schema.model import Model
from maadd_worker.schema.registry import TypeEntry

_BATCH_FILES = 250
_BATCH_BYTES = 4 * 1024 * 1024
"""A transaction holds the lock for a fraction of a second, and some batches fit in memory."""

_WORTH_A_LOAD = 1000
"""Files that make up for the making of indexes."""

INDEX_FINGERPRINT_KEY = "schema_index_fp:"
MODEL_FINGERPRINT_KEY = "model_fp:"
"""Beginnings of `engine_meta` keys; the type follows."""


PassSteps = Generator[PassProgress, None, ReindexReport]
"""A pass in small steps: no transaction is open between them, so that others can write."""


def index_steps(
    writer: IndexWriter,
    model: Model,
    root: ProjectRoot,
    settings: WorkerSettings,
    *,
    force: bool = False,
    made_since: str | None = None,
    prune: bool = False,
    unread: bool = False,
    changed: Callable[[PassChange], None] | None = None,
    past: Callable[[], PastLookup] | None = None,
) -> PassSteps:
    """Bring the whole index up to date with the files; every step outside a transaction.

    `force` makes all rows anew, but for those made since `made_since` (a stamp of the writer),
    where an earlier run was cut short. `prune` also removes the rows of missing files whose
    folder is empty or gone. `unread` promises that nobody reads records meanwhile, so that a
    mostly empty index can be loaded (`load.py`). `changed` hears of every record that changed.
    `past` is asked, once and only when the index was lost, for what is known of its records. A
    pass that is closed before its end keeps what it has committed. Failures of single files
    are in the report; BACKEND_ERROR when the database itself fails.
    """
    run = _Pass(writer, model, root, settings, force, made_since, changed)
    if has_lost_rows(writer):
        run.past = when_asked(past or (lambda: _unknown))
    try:
        return (yield from run.run(prune, unread))
    except apsw.Error as error:
        raise backend_error(error, "brought up to date") from error


def index_all(
    writer: IndexWriter,
    model: Model,
    root: ProjectRoot,
    settings: WorkerSettings,
    *,
    force: bool = False,
    prune: bool = False,
    unread: bool = False,
    progress: Callable[[PassProgress], None] | None = None,
    between_chunks: Callable[[], None] | None = None,
    changed: Callable[[PassChange], None] | None = None,
    past: Callable[[], PastLookup] | None = None,
) -> ReindexReport:
    """`index_steps` from its first step to its last.

    `progress` hears of each step; `between_chunks` runs then for writes that wait, and an
    exception from it ends the pass.
    """
    steps = index_steps(
        writer,
        model,
        root,
        settings,
        force=force,
        prune=prune,
        unread=unread,
        changed=changed,
        past=past,
    )

    def step(done: PassProgress) -> None:
        if progress is not None:
            progress(done)
        if between_chunks is not None:
            between_chunks()

    return run_steps(steps, step)


def run_steps(steps: PassSteps, step: Callable[[PassProgress], None]) -> ReindexReport:
    """A pass from its first step to its last; an exception from `step` ends it."""
    with rare_collections(), closing(steps):
        while True:
            try:
                done = next(steps)
            except StopIteration as end:
                report: ReindexReport = end.value
                return report
            step(done)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let Python look for cycles less often: a pass makes and drops millions of values without
    any, and looking at them takes a tenth of its time."""
    before = gc.get_threshold()
    gc.set_threshold(COLLECTION_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def portions(files: Iterable[MarkdownFile]) -> Iterator[list[MarkdownFile]]:
    """The files in portions that fit in memory and in a short transaction."""
    portion: list[MarkdownFile] = []
    size = 0
    for file in files:
        portion.append(file)
        size += file.size
        if len(portion) == _BATCH_FILES or size >= _BATCH_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _unknown(_doc_id: str, _path: str) -> PastStamps | None:
    return None


class _Batch(msgspec.Struct, frozen=True):
    """A portion of the files of a type: how many there are, how many need no look because their
    rows are current, and the types of the rows that there are by path."""

    files: int
    current: int
    types: dict[str, str]


class _Pass:
    """One run: its inputs, and the counts that the report is made of."""

    def __init__(
        self,
        writer: IndexWriter,
        model: Model,
        root: ProjectRoot,
        settings: WorkerSettings,
        force: bool,
        made_since: str | None,
        changed: Callable[[PassChange], None] | None,
    ) -> None:
        self._writer = writer
        self._model = model
        self._root = root
        self._settings = settings
        self._force = force
        self._made_since = made_since
        self._changed = changed
        self.past: PastLookup | None = None
        self._plans = writer.type_plans(model)
        self._limits = Limits(
            settings.max_doc_bytes, settings.max_doc_annotations, writer.wants_texts
        )
        self._pipeline = Pipeline(root, self._plans, self._limits)
        self._scanned: set[str] = set()
        self._errors: list[MaadError] = []
        self._warnings: list[str] = []
        self._changed_ids: list[ChangedId] = []
        self._failed_types: set[str] = set()
        self._seen = self._indexed = self._skipped = self._partial = self._let_go = 0
        self._to_come: int | None = None
        """Files of the types that follow, as far as the index tells; None without an index."""

    def run(self, prune: bool, unread: bool) -> PassSteps:
        dirty = self._dirty_types()
        last_seq = self._writer.stamps.last_seq
        if unread:
            with self._writer.transaction():
                self._writer.meta_set(FIRST_PASS_KEY, "1")
        walks: list[TypeWalk] = []
        entries = list(self._model.registry.types.values())
        rows = read_counters(self._writer.connection).documents_by_type
        with ExitStack() as loading, closing(self._pipeline):
            for number, entry in enumerate(entries, 1):
                to_come = [later.name for later in entries[number:]]
                if not unread or not to_come:
                    self._to_come = sum(rows.get(name, 0) for name in to_come)
                walks.append((yield from self._index_type(entry, loading if unread else None)))
        rows = read_counters(self._writer.connection).documents_by_type
        for walk in walks:
            warning = walk_warning(walk, rows.get(walk.entry.name, 0))
            if warning is not None:
                self._warnings.append(warning)
        swept = yield from self._sweep(walks, last_seq, prune)
        self._finish(walks)
        finish_rebuild(self._writer, walks)
        if self._indexed:
            self._writer.connection.execute("PRAGMA optimize")
        return self._report(dirty, walks, swept)

    def _index_type(
        self, entry: TypeEntry, loading: ExitStack | None
    ) -> Generator[PassProgress, None, TypeWalk]:
        """Index the files of a type; a load that is worth it is entered on `loading`."""
        walk = self._root.walk_markdown(entry.path)
        judged = judge_walk(self._root, entry, walk)
        if judged.state != "gone":
            self._warnings.extend(walk.warnings)
        if loading is not None and not self._writer.loading and self._is_load(len(walk.files)):
            loading.enter_context(load(self._writer))
        batches = deque[_Batch]()
        total = None if self._to_come is None else self._seen + len(walk.files) + self._to_come
        for prepared in self._pipeline.run(self._tasks(walk.files, batches)):
            self._store(entry, batches.popleft(), prepared)
            before = self._writer.stamps.last_seq
            yield self._progress(entry.name, len(walk.files), total)
            if self._writer.stamps.last_seq != before:
                self._pipeline.distrust()
        with self._writer.stamps.recovering(self.past):
            self._warnings.extend(
                register_tombstones(
                    self._writer, self._root, walk.tombstones, self._settings.max_doc_bytes
                )
            )
        return judged

    def _sweep(
        self, walks: Sequence[TypeWalk], last_seq: int, prune: bool
    ) -> Generator[PassProgress, None, SweepResult]:
        pages = sweep(
            self._writer,
            self._root,
            walks,
            self._scanned,
            last_seq,
            prune=prune,
            removed=self._tell_removed,
        )
        while True:
            try:
                next(pages)
            except StopIteration as end:
                swept: SweepResult = end.value
                return swept
            yield self._progress(walks[-1].entry.name, 0, self._seen)

    def _progress(self, doc_type: str, files: int, total: int | None) -> PassProgress:
        return PassProgress(doc_type, files, self._seen, self._indexed, len(self._errors), total)

    def _is_load(self, files: int) -> bool:
        """Whether so many files make the index new rather than change it."""
        documents = read_counters(self._writer.connection).documents
        return files >= _WORTH_A_LOAD and files > 2 * documents

    def _tasks(
        self, files: Sequence[MarkdownFile], batches: deque[_Batch]
    ) -> Iterator[list[FileTask]]:
        """What has to be looked at of the files, in portions; `batches` gets one for each."""
        for chunk in portions(self._unscanned(files)):
            known = known_files(self._writer.connection, [file.path for file in chunk])
            tasks = [
                FileTask(file.path, self._current_hash(known.get(file.path)))
                for file in chunk
                if not self._is_current(file, known.get(file.path))
            ]
            types = {path: row.doc_type for path, row in known.items()}
            batches.append(_Batch(len(chunk), len(chunk) - len(tasks), types))
            yield tasks

    def _unscanned(self, files: Sequence[MarkdownFile]) -> Iterator[MarkdownFile]:
        """The files not scanned yet: paths of types may overlap."""
        for file in files:
            if file.path not in self._scanned:
                self._scanned.add(file.path)
                yield file

    def _store(self, entry: TypeEntry, batch: _Batch, prepared: Sequence[PreparedFile]) -> None:
        self._seen += batch.files
        self._skipped += batch.current
        for file in prepared:
            if file.state == "gone":
                self._scanned.discard(file.path)
                self._seen -= 1
        there = [file for file in prepared if file.state != "gone"]
        if there:
            with self._writer.stamps.recovering(self.past):
                outcomes = store_batch(self._writer, self._root, there)
            for outcome in outcomes:
                self._account(outcome, entry, batch.types.get(outcome.path))

    def _account(self, outcome: FileOutcome, entry: TypeEntry, known_type: str | None) -> None:
        """Count what became of a file and tell the changes, after their commit."""
        if outcome.errors:
            self._errors.extend(outcome.errors)
            self._failed_types.add(entry.name)
            if known_type is not None:
                self._failed_types.add(known_type)
        if outcome.gone is not None:
            self._let_go += 1
            self._tell_removed([outcome.gone])
        done = outcome.done
        if done is None:
            return
        if not done.rows_made:
            self._skipped += 1
            return
        self._indexed += 1
        self._partial += done.row.partial
        if done.changed_id is not None:
            self._changed_ids.append(done.changed_id)
        if self._changed is not None:
            if done.replaced is not None:
                self._changed(PassChange("delete", done.replaced))
            if done.action != "unchanged":
                self._changed(PassChange(done.action, done.row))

    def _is_current(self, file: MarkdownFile, known: KnownFile | None) -> bool:
        return self._counts_as_made(known) and known.is_current(file, self._plans)

    def _current_hash(self, known: KnownFile | None) -> str | None:
        """The hash of content whose rows need not be made anew."""
        return known.current_hash(self._plans) if self._counts_as_made(known) else None

    def _counts_as_made(self, known: KnownFile | None) -> TypeGuard[KnownFile]:
        if known is None or not self._force:
            return known is not None
        return self._made_since is not None and known.indexed_at >= self._made_since

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
            for key in (FIRST_PASS_KEY, FORMER_LAYOUT_KEY):
                if self._writer.meta_get(key) is not None:
                    self._writer.meta_set(key, None)
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
            pruned=swept.pruned + self._let_go,
            warnings=(*self._warnings, *swept.warnings),
            prunable=swept.prunable,
            prunable_ids=swept.prunable_ids,
            complete=all(walk.state != "broken" for walk in walks),
            changed_ids=tuple(self._changed_ids),
        )
