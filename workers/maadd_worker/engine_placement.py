"""An engine's files under `_backend`, and what becomes of its journal when they are taken away."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from maadd.protocol.errors import MaadError, MaadErrors
from maadd.protocol.ownership import LOCK_PATH
from maadd_worker.disk.journal import JOURNAL_PATH, Journal
from maadd_worker.disk.owner_lock import OwnerLock
from maadd_worker.disk.placement import Placement
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.index.layout import INDEX_PATH


def placement_of(root: ProjectRoot, *, read_only: bool) -> Placement:
    """The files of an open engine. A reader loses nothing with them, and goes on until there is
    another index to read."""
    if read_only:
        return Placement(root, followed=(INDEX_PATH,))
    return Placement(root, kept=(LOCK_PATH, INDEX_PATH, JOURNAL_PATH))


@contextlib.contextmanager
def staying(root: ProjectRoot) -> Iterator[None]:
    """FILE_READ_ERROR in place of what fails because somebody has just moved the folder away."""
    placement = Placement(root)
    try:
        yield
    except (MaadError, MaadErrors, OSError):
        if placement.root_is_here:
            raise
        raise MaadError(
            "FILE_READ_ERROR",
            "the project's folder was moved away while it was opened; it is served again when it "
            "is back",
            {"errno": "ENOENT"},
        ) from None


def keep_entries(journal: Journal, root: ProjectRoot, placement: Placement) -> bool:
    """At the end of an engine: put the pending writes of a journal that was taken away where the
    next engine will find them. False when that is not possible.

    A journal that moved with its folder has lost nothing.
    """
    try:
        if not placement.root_is_here or placement.has(JOURNAL_PATH) or journal.is_empty():
            return True
        lock = None if placement.has(LOCK_PATH) else OwnerLock.acquire(root.path, None)
        try:
            with contextlib.closing(Journal.open(root.path)) as successor:
                journal.copy_to(successor)
        finally:
            if lock is not None:
                lock.release()
    except (MaadError, OSError):
        return False
    return True
