"""Removing rows whose files are gone, and never any other (spec 01 §14.2).

A missing file proves little: an unmounted disk, a folder without permission, a typing error in
the registry make thousands of files "missing". A row goes only when the folder that should
hold its file was read completely and holds other files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from typing import Any, Literal

import apsw
import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.disk.scan import MarkdownWalk
from maadd_worker.index.documents import DocumentRow
from maadd_worker.index.writer import IndexWriter
from maadd_worker.schema.registry import TypeEntry

WalkState = Literal["found", "empty", "gone", "broken"]

_PAGE = 500
_PRUNABLE_IDS = 100

_ROWS = """
SELECT file_path, doc_id, doc_type FROM documents
WHERE deleted = 0 AND file_path > ? AND change_seq <= ? ORDER BY file_path LIMIT ?
"""

_WHY_KEPT = {
    "exists": "something is there under their names, outside of every registered path or no record",
    "unknown": "it cannot be told whether their files are there",
    "broken": "the folder could not be read completely",
    "empty": "the folder is empty; if that is right, reindex with prune",
    "gone": "the folder is missing; if that is right, reindex with prune",
}


class TypeWalk(msgspec.Struct, frozen=True):
    """How the walk of a type's registered path ended.

    `found`: read completely, with files. `empty`: read completely, without any. `gone`: no such
    folder. `broken`: a folder could not be read.
    """

    entry: TypeEntry
    state: WalkState


class SweepResult(msgspec.Struct, frozen=True):
    """Removed rows, rows that `prune` would remove, and a warning per type and reason."""

    pruned: int
    prunable: int
    prunable_ids: tuple[str, ...]
    warnings: tuple[str, ...]


class RowPlace(msgspec.Struct, frozen=True):
    """Where a live row says that its file is."""

    path: str
    doc_id: str
    doc_type: str


def judge_walk(root: ProjectRoot, entry: TypeEntry, walk: MarkdownWalk) -> TypeWalk:
    """What the walk of a type's path says about rows without a file."""
    if walk.complete:
        return TypeWalk(entry, "found" if walk.files or walk.tombstones else "empty")
    return TypeWalk(entry, "broken" if _may_exist(root, entry.path) else "gone")


def walk_warning(walk: TypeWalk, rows: int) -> str | None:
    """The warning about a type whose path gave no files although the index has `rows` of it."""
    if rows == 0 or walk.state == "found":
        return None
    what = {
        "empty": "contains no markdown files",
        "gone": "does not exist",
        "broken": "could not be read completely",
    }[walk.state]
    return (
        f'registered path "{walk.entry.path}" of type "{walk.entry.name}" {what}, while the index '
        f"holds {rows} of its records; check the registry and the folder"
    )


def sweep(
    writer: IndexWriter,
    root: ProjectRoot,
    walks: Sequence[TypeWalk],
    scanned: Collection[str],
    last_seq: int,
    *,
    prune: bool,
    removed: Callable[[list[DocumentRow]], None],
) -> Generator[None, None, SweepResult]:
    """Judge every live row, not changed after `last_seq`, whose path is not in `scanned`; each
    page of rows is a step.

    `removed` hears of the removed rows after each commit. With `prune` an empty or missing
    folder is taken at its word; one that could not be read never is.
    """
    kept: Counter[tuple[str, str]] = Counter()
    pruned = 0
    prunable: list[str] = []
    prunable_count = 0
    for page in unscanned_rows(writer.connection, scanned, last_seq):
        doomed: list[str] = []
        for candidate in page:
            verdict = judge_row(root, walks, candidate)
            if verdict == "prune" or (prune and verdict in ("empty", "gone")):
                doomed.append(candidate.doc_id)
                continue
            kept[candidate.doc_type, verdict] += 1
            if verdict in ("empty", "gone"):
                prunable_count += 1
                if len(prunable) < _PRUNABLE_IDS:
                    prunable.append(candidate.doc_id)
        if doomed:
            with writer.transaction():
                rows = [writer.let_go(doc_id) for doc_id in doomed]
            pruned += len(doomed)
            removed([row for row in rows if row is not None])
        yield
    warnings = kept_warnings(kept, walks)
    return SweepResult(pruned, prunable_count, tuple(prunable), warnings)


def kept_warnings(
    kept: Mapping[tuple[str, str], int], walks: Sequence[TypeWalk]
) -> tuple[str, ...]:
    """A warning for each type and verdict of `judge_row` under which rows were kept."""
    paths = {walk.entry.name: walk.entry.path for walk in walks}
    return tuple(
        f'{count} records of type "{doc_type}" not pruned: {_WHY_KEPT[reason]} '
        f"(registered path: {paths.get(doc_type, 'none')})"
        for (doc_type, reason), count in sorted(kept.items())
    )


def unscanned_rows(
    connection: apsw.Connection, scanned: Collection[str], last_seq: int
) -> Iterator[list[RowPlace]]:
    """The live rows, not changed after `last_seq`, whose path is not in `scanned`, in pages."""
    last = ""
    while True:
        rows: list[Any] = connection.execute(_ROWS, (last, last_seq, _PAGE)).fetchall()
        page = [RowPlace(*row) for row in rows if row[0] not in scanned]
        if page:
            yield page
        if len(rows) < _PAGE:
            return
        last = rows[-1][0]


def judge_row(root: ProjectRoot, walks: Sequence[TypeWalk], candidate: RowPlace) -> str:
    """`prune` for a row whose file is really gone, or why the row stays."""
    try:
        if root.exists(candidate.path):
            return "exists"
    except (OSError, MaadError):
        return "unknown"
    folders = [walk for walk in walks if candidate.path.startswith(f"{walk.entry.path}/")]
    if not folders:
        # Outside of every registered path only its own type and folder can vouch.
        folders = [walk for walk in walks if walk.entry.name == candidate.doc_type]
        if not _may_exist(root, candidate.path.rpartition("/")[0]):
            return "gone"
    states = {walk.state for walk in folders}
    for state in ("broken", "gone", "empty"):
        if state in states:
            return state
    return "prune"


def _may_exist(root: ProjectRoot, rel: str) -> bool:
    try:
        return root.exists(rel)
    except (OSError, MaadError):
        return True
