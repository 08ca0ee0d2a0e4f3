"""What every read runs with: one snapshot of the index, the model, the files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from maadd.protocol.errors import MaadError
from maadd.protocol.messages import HistorySettings, WorkerSettings
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.index.counters import read_generation
from maadd_worker.index.plan import TypePlans
from maadd_worker.index.store import DocumentRow, IndexReader
from maadd_worker.instructions.files import InstructionFiles
from maadd_worker.read.record_cache import RecordCache
from maadd_worker.schema.model import Model
from maadd_worker.semantic.reads import SemanticReads


class IntegritySweep(msgspec.Struct, frozen=True):
    """The end of an integrity sweep, kept for health (spec 02 §4.8)."""

    completed_at: str
    findings: dict[str, int]


class ReadContext(msgspec.Struct, frozen=True):
    """The fixed surroundings of one read; the reader is inside one read transaction.

    Reads write nothing; what should be kept is handed to `keep_sweep`, which must not fail and
    may forget it.
    """

    reader: IndexReader
    plans: TypePlans
    root: ProjectRoot
    cache: RecordCache
    settings: WorkerSettings
    history: HistorySettings
    read_only: bool
    pending_writes: Callable[[], int]
    """Writes that are on disk and not yet in Git."""
    keep_sweep: Callable[[IntegritySweep], None]
    instructions: InstructionFiles
    engine_report: Callable[[], dict[str, Any]]
    """The engine's part of `maad_health`."""
    note: Callable[..., None]
    """Logs something to know of this call: its name, and members by keyword."""
    semantic: SemanticReads | None = None
    """None without a semantic index that can be asked."""
    index_behind: bool = False
    """A rebuild, a pass or a backlog of the watcher is still running."""

    @property
    def model(self) -> Model:
        return self.plans.model

    def generation(self) -> int:
        """A number that grows with every change of any record."""
        return read_generation(self.reader.connection)

    def live_row(self, doc_id: str) -> DocumentRow:
        """The live record's row; FILE_NOT_FOUND names the id and where to look."""
        row = self.reader.find(doc_id)
        if row is None:
            raise not_found(doc_id)
        return row

    def check_time(self) -> None:
        """REQUEST_TIMEOUT once the call is stopped; for loops that no SQL statement ends."""
        if self.reader.stopped():
            raise MaadError("REQUEST_TIMEOUT", "the call was ended before it was finished")


def not_found(doc_id: str) -> MaadError:
    """FILE_NOT_FOUND for an id."""
    return MaadError(
        "FILE_NOT_FOUND",
        f'no record with the id "{doc_id}"; maad_query lists the ids of a type',
    )
