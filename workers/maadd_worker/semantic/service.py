"""The semantic index of an open project: bring-up, upkeep on the writer thread, and its end
(spec 02 §6)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import apsw
import msgspec

from maadd.protocol.messages import WorkerConfig, WorkerSettings
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.index.documents import read_meta
from maadd_worker.index.full_pass import PassSteps
from maadd_worker.index.pass_report import PassProgress, ReindexReport
from maadd_worker.index.store import Index, IndexReader, IndexWriter
from maadd_worker.semantic import layout
from maadd_worker.semantic.block_store import BlockStore
from maadd_worker.semantic.calls import BoundedCalls, QueryVectors
from maadd_worker.semantic.drain import Drain
from maadd_worker.semantic.health import embeddings_health, iso_time
from maadd_worker.semantic.providers.choose import make_embedder
from maadd_worker.semantic.providers.embedder import Embedder, ProviderUnusable
from maadd_worker.semantic.queue import QueueState, queue_state, store_end
from maadd_worker.semantic.reads import SemanticReads
from maadd_worker.semantic.rebuild import Rebuild

_DOCUMENT_TIMEOUT_S = 30.0
_SLICE_S = 0.01
"""How long upkeep may hold up a write that comes."""

_AFTER_WRITES_S = 0.02
"""A moment without writes that is long enough to go on."""

_BETWEEN_WRITES_S = 0.2
"""While writes keep coming, one slice in so long."""

_LOOK_S = 0.02


class SemanticIndex:
    """Belongs to the writer thread, except `reads` and `prepare`.

    With the switch off it has no `reads`, makes nothing and starts nothing; what an earlier run
    left in the file is only kept free of deleted records.
    """

    def __init__(self, index: Index, settings: WorkerSettings) -> None:
        self.reads: SemanticReads | None = None
        self._index = index
        self._settings = settings
        self._embedder: Embedder | None = None
        self._store: BlockStore | None = None
        self._drain: Drain | None = None
        self._rebuild: Rebuild | None = None
        self._vectors = False
        self._bits = False
        self._closed = False
        self._trouble: str | None = None
        self._trouble_s = 0.0
        self._last_slice = 0.0
        self._wake: Callable[[], None] = _nobody
        self._log: Callable[..., None] | None = None
        self._unlogged: list[tuple[str, dict[str, Any]]] = []

    @classmethod
    def open(
        cls,
        index: Index,
        root: ProjectRoot,
        config: WorkerConfig,
        embedder: Embedder | None = None,
    ) -> SemanticIndex:
        """Bring the semantic index of a project up; `embedder` takes the place of the one that
        the settings name. Nothing that goes wrong here keeps a project from being served."""
        settings = config.settings
        made = cls(index, settings)
        if settings.embedding.enable:
            made._choose_embedder(embedder)
        try:
            if config.history.effective_mode == "read":
                made._open_for_reading()
            elif settings.embedding.enable:
                made._open_for_writing(index.writer(), root)
            else:
                made._open_for_removals(index.writer())
        except apsw.Error as error:
            made._warn("semantic_index_failed", error=type(error).__name__, reason=str(error))
            made._give_up()
        return made

    # -- bring-up ------------------------------------------------------------------------

    def _give_up(self) -> None:
        if self._store is not None:
            self._index.writer().texts = None
        self.reads = self._store = self._drain = self._rebuild = None

    def _choose_embedder(self, given: Embedder | None) -> None:
        try:
            self._embedder = given or make_embedder(self._settings.embedding)
        except ProviderUnusable as error:
            self._trouble = str(error)
            self._warn("embedding_provider_unusable", reason=str(error))

    def _open_for_removals(self, writer: IndexWriter) -> None:
        if layout.has_texts(writer.connection):
            self._attach(writer, wanted=False, vectors=layout.has_vectors(writer.connection))

    def _open_for_reading(self) -> None:
        reader = self._index.reader()
        try:
            connection = reader.connection
            if self._settings.embedding.enable and layout.has_current_texts(connection):
                fits = layout.has_vectors(connection) and self._fits(connection)
                self._vectors = fits and self._load_extension(connection)
                self.reads = self._make_reads()
        finally:
            reader.close()

    def _open_for_writing(self, writer: IndexWriter, root: ProjectRoot) -> None:
        connection = writer.connection
        if not layout.has_current_texts(connection):
            with writer.transaction():
                layout.create_texts(connection)
                writer.meta_set(layout.LAYOUT_KEY, layout.LAYOUT)
                writer.meta_set(layout.DIM_KEY, None)
                writer.meta_set(layout.MODEL_KEY, None)
        store = self._attach(writer, wanted=True, vectors=layout.has_vectors(connection))
        if self._embedder is not None and self._load_extension(connection):
            try:
                self._align_vectors(writer, store, self._embedder)
            except apsw.Error as error:
                self._vectors_failed(error)
            else:
                self._vectors = True
                self._drain = self._make_drain(self._embedder)
        self._rebuild = Rebuild(writer, store, root, self._settings.max_doc_bytes)
        self.reads = self._make_reads()

    def _attach(self, writer: IndexWriter, *, wanted: bool, vectors: bool) -> BlockStore:
        store = BlockStore(writer.connection, wanted=wanted, vectors=vectors)
        writer.texts = self._store = store
        return store

    def _align_vectors(self, writer: IndexWriter, store: BlockStore, embedder: Embedder) -> None:
        """Have the tables of vectors be of the model and width of the provider, with a place in
        the queue for every block without a vector."""
        connection = writer.connection
        with writer.transaction():
            if not store.vectors or not self._fits(connection):
                layout.create_vectors(connection)
                store.vectors = True
                writer.meta_set(layout.DIM_KEY, str(embedder.dim))
                writer.meta_set(layout.MODEL_KEY, embedder.model)
                store.queue_all()
            elif not self._is_covered(connection):
                store.queue_missing()

    def _fits(self, connection: apsw.Connection) -> bool:
        """Whether the stored vectors are of the provider's model and width."""
        embedder = self._embedder
        return (
            embedder is not None
            and read_meta(connection, layout.DIM_KEY) == str(embedder.dim)
            and read_meta(connection, layout.MODEL_KEY) == embedder.model
        )

    def _is_covered(self, connection: apsw.Connection) -> bool:
        """Whether there are at least as many vectors and queued blocks as there are blocks."""
        return bool(connection.execute(_COVERED).get)

    def _load_extension(self, connection: apsw.Connection) -> bool:
        try:
            load_vector_functions(connection)
        except apsw.Error as error:
            self._vectors_failed(error)
            return False
        return True

    def _vectors_failed(self, error: apsw.Error) -> None:
        self._trouble = f"vectors are off, texts are searched by words only: {error}"
        self._warn("semantic_vectors_failed", error=type(error).__name__, reason=str(error))

    def _make_drain(self, embedder: Embedder) -> Drain:
        embedding = self._settings.embedding
        return Drain(
            self._index.reader,
            BoundedCalls(embedder, _DOCUMENT_TIMEOUT_S),
            batch=embedding.batch,
            max_chars=embedding.max_chars,
            wake=self._wake_writer,
            warn=self._warn,
        )

    def _make_reads(self) -> SemanticReads:
        embedding = self._settings.embedding
        queries = None
        if self._embedder is not None:
            self._bits = self._embedder.dim % 8 == 0
            queries = QueryVectors(self._embedder, embedding.timeout_ms / 1000)
        return SemanticReads(
            queries=queries,
            vectors=self._vectors,
            bits=self._bits,
            exact_scope_max=embedding.exact_scope_max,
            note_failure=self._note_failure,
            is_behind=lambda: self._rebuild is not None and not self._rebuild.is_done,
            is_closed=lambda: self._closed,
            health=self._health,
        )

    # -- reading threads -----------------------------------------------------------------

    def prepare(self, reader: IndexReader) -> IndexReader:
        """Enable a new reader to compare vectors, where there are any."""
        if self._vectors:
            self._load_extension(reader.connection)
        return reader

    def _note_failure(self, error: Exception) -> None:
        self._trouble = f"{type(error).__name__}: {error}"[:300]
        self._trouble_s = time.monotonic()
        self._warn("semantic_search_degraded", error=type(error).__name__)

    def _health(self, connection: apsw.Connection) -> dict[str, Any]:
        report = embeddings_health(connection)
        report |= {
            "provider": None if self._embedder is None else self._embedder.id,
            "vecReady": self._vectors,
            "lastError": self._trouble,
        }
        drain = self._drain
        if drain is not None:
            report |= {
                "failures": drain.failures,
                "lastError": self._trouble
                if drain.last_error is None or self._trouble_s > drain.last_error_s
                else drain.last_error,
                "lastSuccessAt": iso_time(drain.last_success_ms),
            }
        return report

    # -- the writer thread ---------------------------------------------------------------

    def connect_log(self, warn: Callable[..., None]) -> None:
        """Hand over what logs a warning; those of the start follow at once."""
        self._log = warn
        for event, members in self._unlogged:
            warn(event, **members)
        self._unlogged.clear()

    def connect_wake(self, wake: Callable[[], None]) -> None:
        """Hand over what has `settle` called, and begin to embed what is queued."""
        self._wake = wake
        if self._drain is not None:
            self._drain.start()

    def hold(self) -> None:
        """Writes are at hand: embedding waits until `settle`."""
        if self._drain is not None:
            self._drain.hold()

    def settle(self, idle: bool) -> float | None:
        """Do a part of the upkeep; seconds until it wants to be called again."""
        self._kick()
        now = time.monotonic()
        if not idle and now - self._last_slice < _BETWEEN_WRITES_S:
            return _AFTER_WRITES_S if self._drain is not None or self._has_work() else None
        self._last_slice = now
        if self._drain is not None:
            self._drain.release()
        if not self._has_work():
            return None
        self._store_finished(now + _SLICE_S)
        if self._rebuild is not None and not self._rebuild.is_done:
            self._rebuild.step()
            self._kick()
        return 0.0 if self._has_work() else None

    def embed_after(self, steps: PassSteps) -> PassSteps:
        """A pass, and then the embedding of every block, in steps that hold up a write for some
        milliseconds; it goes on for as long as the provider works. What is left is in the
        warnings, and is embedded behind the answer."""
        progress = PassProgress("", 0, 0, 0, 0)
        try:
            while True:
                progress = next(steps)
                yield progress
        except StopIteration as end:
            report: ReindexReport = end.value
        finally:
            steps.close()
        store, writer = self._store, self._index.writer()
        if self.reads is None or store is None:
            return report
        with writer.transaction():
            store.queue_all()
        drain = self._drain
        if drain is not None:
            drain.start()
            self._kick()
            while drain.wait(_LOOK_S):
                self._store_finished(time.monotonic() + _SLICE_S)
                yield progress
                drain.release()
        return msgspec.structs.replace(
            report, warnings=(*report.warnings, *self._left(queue_state(writer.connection)))
        )

    def _left(self, state: QueueState) -> Iterator[str]:
        """Warnings about blocks that have no vector."""
        waiting = state.depth - state.failed
        if state.depth:
            self._warn("embeddings_incomplete", waiting=waiting, failed=state.failed)
        if waiting:
            why = "; there is no embedding provider" if self._drain is None else ""
            yield f"{waiting} blocks still wait to be embedded{why}"
        if state.failed:
            yield (
                f"{state.failed} blocks could not be embedded; maad_health says why in embeddings"
            )

    def close(self) -> None:
        """End the thread and store what it has finished; before the index closes."""
        self._closed = True
        drain = self._drain
        if drain is not None:
            drain.stop()
            while drain.oldest() is not None:
                self._store_oldest(drain)

    def _has_work(self) -> bool:
        return (self._drain is not None and self._drain.oldest() is not None) or (
            self._rebuild is not None and not self._rebuild.is_done
        )

    def _store_finished(self, end: float) -> None:
        drain = self._drain
        while drain is not None and drain.oldest() is not None:
            self._store_oldest(drain)
            if time.monotonic() > end:
                return

    def _store_oldest(self, drain: Drain) -> None:
        end = drain.oldest()
        assert end is not None
        writer = self._index.writer()
        with writer.transaction():
            store_end(writer.connection, end, bits=self._bits)
        drain.stored()

    def _kick(self) -> None:
        """After a commit: have the thread look at the queue if anything was added."""
        if self._drain is not None and self._store is not None and self._store.queued:
            self._store.queued = False
            self._drain.kick()

    def _wake_writer(self) -> None:
        self._wake()

    def _warn(self, event: str, **members: Any) -> None:
        if self._log is None:
            self._unlogged.append((event, members))
        else:
            self._log(event, **members)


def load_vector_functions(connection: apsw.Connection) -> None:
    """Load sqlite-vec into a connection; apsw.Error."""
    import sqlite_vec

    connection.enable_load_extension(True)
    try:
        connection.load_extension(sqlite_vec.loadable_path())
    finally:
        connection.enable_load_extension(False)


def _nobody() -> None:
    """Nobody waits for a wake-up: an engine without a worker process settles by itself."""


_COVERED = """
SELECT (SELECT count(*) FROM vec_bits) + (SELECT count(*) FROM embed_queue)
       >= (SELECT coalesce(sum(blocks), 0) FROM semantic_docs)
"""
