"""Comparing the folders with the index by stat alone, without the writer (spec 01 §14.2).

The rules are those of the whole-project pass; what is found goes to the writer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from maadd_worker.disk.root import ProjectRoot
from maadd_worker.disk.scan import MarkdownFile
from maadd_worker.index.known_files import known_files
from maadd_worker.index.plan import TypePlans
from maadd_worker.index.reader import IndexReader
from maadd_worker.index.sweep import judge_row, judge_walk, kept_warnings, unscanned_rows
from maadd_worker.watch.findings import FailedFile

_CHUNK = 500

_LAST_SEQ = "SELECT coalesce(max(change_seq), 0) FROM documents"
_TOMBSTONES = """
SELECT file_path FROM documents
WHERE deleted = 1 AND file_path IN (SELECT value FROM json_each(?))
"""


class Survey(msgspec.Struct, frozen=True):
    """What differs: files to index, rows without a file, tombstone files without a row, and
    why other rows without a file stay."""

    changed: tuple[str, ...]
    gone: tuple[str, ...]
    tombstones: tuple[str, ...]
    warnings: tuple[str, ...]


def survey(
    reader: IndexReader,
    root: ProjectRoot,
    plans: TypePlans,
    failed: Callable[[str], FailedFile | None],
) -> Survey:
    """Look at every file and every row; rows that change meanwhile are left alone.

    Files that `failed` before are left out while their stat values are still those.
    """
    [(last_seq,)] = reader.connection.execute(_LAST_SEQ)
    scanned: set[str] = set()
    changed: list[str] = []
    tombstones: list[str] = []
    walks = []
    for entry in plans.model.registry.types.values():
        walk = root.walk_markdown(entry.path)
        walks.append(judge_walk(root, entry, walk))
        files = [file for file in walk.files if file.path not in scanned]
        scanned.update(file.path for file in files)
        for start in range(0, len(files), _CHUNK):
            changed += _changed(reader, plans, files[start : start + _CHUNK], failed)
        tombstones += _unknown_tombstones(reader, [file.path for file in walk.tombstones])
    gone: list[str] = []
    kept: Counter[tuple[str, str]] = Counter()
    for page in unscanned_rows(reader.connection, scanned, last_seq):
        for row in page:
            verdict = judge_row(root, walks, row)
            if verdict == "prune":
                gone.append(row.path)
            else:
                kept[row.doc_type, verdict] += 1
    return Survey(tuple(changed), tuple(gone), tuple(tombstones), kept_warnings(kept, walks))


def _changed(
    reader: IndexReader,
    plans: TypePlans,
    files: list[MarkdownFile],
    failed: Callable[[str], FailedFile | None],
) -> list[str]:
    known = known_files(reader.connection, [file.path for file in files])
    return [
        file.path
        for file in files
        if not (
            ((row := known.get(file.path)) is not None and row.is_current(file, plans))
            or _failed_before(file, failed(file.path))
        )
    ]


def _failed_before(file: MarkdownFile, failure: FailedFile | None) -> bool:
    if failure is None or failure.file is None:
        return False
    before = failure.file
    return (file.mtime_ns, file.size, file.inode) == (before.mtime_ns, before.size, before.inode)


def _unknown_tombstones(reader: IndexReader, paths: list[str]) -> list[str]:
    listing = msgspec.json.encode(paths).decode()
    known = {path for (path,) in reader.connection.execute(_TOMBSTONES, (listing,))}
    return [path for path in paths if path not in known]
