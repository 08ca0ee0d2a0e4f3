"""Commits through libgit2 by writing only the touched trees (design §7).

One commit is a blob, the trees on its path, a commit object, and the branch moved by
compare-and-swap; a group of commits moves the branch once. The index file follows in
`settle`, behind the answers, and its lock is held from before the branch moves until then: no
longer, so that a person's Git finds it free most of the time.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence

import pygit2
from pygit2.enums import ReferenceType, RepositoryOpenFlag

from maadd_worker.disk.journal import Journal
from maadd_worker.history.git_dir import GitDir, LocalConfig
from maadd_worker.history.index_file import IndexFile
from maadd_worker.history.index_lock import IndexLock
from maadd_worker.history.loose_objects import DEFAULT_LEVEL
from maadd_worker.history.object_writer import ObjectWriter
from maadd_worker.history.outcome import GitFailure
from maadd_worker.history.store import (
    WAITS_S,
    Change,
    Committed,
    Person,
    check_path,
    local_offset_minutes,
    refuse_while_busy,
    safe_directory_failure,
)
from maadd_worker.history.trees import (
    CannotDescend,
    TreeCache,
    TreeEntry,
)
from maadd_worker.history.worktree import Worktree

LONGEST_HOLD_S = 0.250
_INDEX_SHARE = 0.2
"""The index is written with each group while that takes no more than this part of the time; a
large one waits for more groups, with the lock held."""

_COURTESY_S = 0.25
_LONGEST_COURTESY_S = 1.0
_LOOK_S = 0.005
"""Whoever has just written the index, as `git add` does, is about to commit, which fails when
the branch moves meanwhile: we stand aside so long, or until their commit is there."""

_MOVE_ATTEMPTS = 5


class _BranchMoved(Exception):
    """Somebody else moved the branch while a commit was being built on it."""


class Libgit2Store:
    """The store of an ordinary repository. Used from one thread."""

    name = "libgit2"

    def __init__(
        self,
        git_dir: GitDir,
        config: LocalConfig,
        repository: pygit2.Repository,
        journal: Journal | None,
    ) -> None:
        self._git_dir = git_dir
        self._repository = repository
        self._odb = repository.odb
        self._objects = ObjectWriter(
            os.path.join(git_dir.common, "objects"),
            level=config.loose_compression,
            fsync=config.fsync_objects,
        )
        self._lock = IndexLock(git_dir, journal)
        self._index = IndexFile(git_dir)
        self._unindexed: dict[str, TreeEntry | None] = {}
        self._patient = False
        self._indexed_at = 0.0
        self._index_cost_s = 0.0
        self._branch_locked = False
        self._trees = TreeCache(self._read_tree, self._write_tree)
        self._worktree = Worktree(git_dir, repository, self._objects, self._trees)
        self._base: pygit2.Oid | None = None
        self._loaded = False

    @classmethod
    def open(cls, git_dir: GitDir, config: LocalConfig, journal: Journal | None) -> Libgit2Store:
        """Raises GitFailure: `details.reason` is `safe-directory` when Git refuses the
        repository for its owner."""
        try:
            repository = pygit2.Repository(git_dir.root, RepositoryOpenFlag.NO_SEARCH)
            if config.fsync_objects:
                repository.set_odb(_synced_object_database(git_dir))
        except (pygit2.GitError, KeyError, ValueError, OSError) as failure:
            raise _open_failure(git_dir, failure) from failure
        return cls(git_dir, config, repository, journal)

    def _read_tree(self, oid: bytes) -> bytes:
        return self._odb.read(pygit2.Oid(raw=oid))[1]

    def _write_tree(self, raw: bytes) -> bytes:
        return self._objects.write(b"tree", raw)

    # Commits

    def prepare(self, *, patient: bool) -> None:
        """See Store.prepare."""
        refuse_while_busy(self._git_dir)
        self._lock.await_free(patient=patient)
        self._patient = patient

    def commit(self, changes: Sequence[Change], *, timeout_s: float) -> list[Committed]:
        """See Store.commit."""
        waits = iter(() if self._branch_locked else WAITS_S)
        moved = 0
        while True:
            try:
                return self._commit_chain(changes, timeout_s)
            except _BranchMoved:
                moved += 1
                if moved == _MOVE_ATTEMPTS:
                    raise GitFailure(
                        "GIT_COMMIT_FAILED", "the branch keeps moving under the commit"
                    ) from None
            except GitFailure as failure:
                self._branch_locked = failure.reason == "ref-lock"
                wait = next(waits, None) if self._branch_locked else None
                if wait is None:
                    raise
                time.sleep(wait)
            except (pygit2.GitError, KeyError, ValueError, OSError) as failure:
                raise GitFailure(
                    "GIT_COMMIT_FAILED", self._git_dir.scrub(f"the commit failed: {failure}")
                ) from failure

    def _commit_chain(self, changes: Sequence[Change], timeout_s: float) -> list[Committed]:
        head = self._repository.lookup_reference("HEAD")
        base = self._load_head(head)
        self._worktree.refresh()
        parent = base
        touched: dict[str, TreeEntry | None] = {}
        results: list[Committed] = []
        self._loaded = False  # until the branch has moved, the trees are ahead of it
        for change in changes:
            self._objects.forget()
            try:
                entries, skipped = self._worktree.collect(change, timeout_s)
            except GitFailure as failure:
                results.append(Committed(failure=failure))
                continue
            if not self._edit_trees(entries):
                results.append(Committed(skipped=skipped))
                continue
            parent = self._write_commit(change, parent)
            touched |= entries
            results.append(Committed(str(parent), skipped=skipped))
        if parent is not None and parent != base:
            made = next(change for change, done in zip(changes, results, strict=True) if done.sha)
            self._take_lock(base)
            self._move(head, base, parent, made.message.split("\n", 1)[0])
        self._unindexed |= touched
        self._base = parent
        self._loaded = True
        self._branch_locked = False
        return results

    def _take_lock(self, base: pygit2.Oid | None) -> None:
        """The lock is ours from now until `settle`."""
        if self._lock.taken_at is None:
            give_up = time.monotonic() + _LONGEST_COURTESY_S
            while (written := self._index.written_by_others()) is not None:
                left = min(written + _COURTESY_S - time.time(), give_up - time.monotonic())
                if left <= 0 or self._target(self._repository.lookup_reference("HEAD")) != base:
                    break
                time.sleep(min(left, _LOOK_S))
        self._lock.acquire(patient=self._patient)

    def _load_head(self, head: pygit2.Reference) -> pygit2.Oid | None:
        """The commit that HEAD names, None on an unborn branch; its tree is loaded."""
        base = self._target(head)
        if not self._loaded or base != self._base:
            tree = self._repository[base].peel(pygit2.Tree).id.raw if base is not None else None
            self._trees.load(tree)
            self._base = base
            self._loaded = True
        return base

    def _target(self, head: pygit2.Reference) -> pygit2.Oid | None:
        if head.type == ReferenceType.SYMBOLIC:
            try:
                head = self._repository.lookup_reference(str(head.target)).resolve()
            except KeyError:
                return None
        target = head.target
        assert isinstance(target, pygit2.Oid)
        return target

    def _edit_trees(self, entries: dict[str, TreeEntry | None]) -> bool:
        changed = False
        for path, entry in entries.items():
            encoded = path.encode("utf-8", "surrogateescape")
            if entry is None:
                changed |= self._trees.remove(encoded)
            else:
                changed |= self._trees.put(encoded, entry)
        return changed

    def _write_commit(self, change: Change, parent: pygit2.Oid | None) -> pygit2.Oid:
        now = int(time.time())
        offset = local_offset_minutes(now)
        author = _signature(change.author, now, offset)
        committer = (
            author
            if change.committer == change.author
            else _signature(change.committer, now, offset)
        )
        self._repository.set_ident(change.committer.name, change.committer.email)
        tree = pygit2.Oid(raw=self._trees.write())
        self._objects.flush()
        parents = [parent] if parent is not None else []
        return self._repository.create_commit(
            None, author, committer, change.message, tree, parents
        )

    def _move(
        self, head: pygit2.Reference, base: pygit2.Oid | None, to: pygit2.Oid, subject: str
    ) -> None:
        """Point the branch (a detached HEAD itself) at `to`, if it still is at `base`."""
        symbolic = head.type == ReferenceType.SYMBOLIC
        try:
            if base is None:
                self._repository.create_reference_direct(
                    str(head.target), to, False, f"commit (initial): {subject}"
                )
                return
            branch = self._repository.lookup_reference(str(head.target)) if symbolic else head
            branch = branch.resolve()
            if branch.target != base:
                raise _BranchMoved
            branch.set_target(to, f"commit: {subject}")
        except (pygit2.GitError, ValueError, KeyError, OSError) as failure:
            text = str(failure)
            if ".lock'" in text and "lock" in text.split("'", 1)[0]:
                raise GitFailure(
                    "GIT_COMMIT_FAILED",
                    self._git_dir.scrub(f"the branch is locked by another Git process: {text}"),
                    {"reason": "ref-lock"},
                ) from failure
            if self._target(self._repository.lookup_reference("HEAD")) != base:
                raise _BranchMoved from failure
            raise

    # Index file and lock

    def settle(self, *, force: bool = False) -> float | None:
        """See Store.settle: write the index once a group is over, then release the lock."""
        taken = self._lock.taken_at
        if taken is None and not self._unindexed:
            return None
        began = time.monotonic()
        if taken is not None and not force:
            due = min(self._indexed_at + self._index_cost_s / _INDEX_SHARE, taken + LONGEST_HOLD_S)
            if due > began:
                return due - began
        try:
            if self._unindexed:
                self._lock.acquire(patient=False)
                self._index.update(self._unindexed)
                self._unindexed = {}
                self._indexed_at = time.monotonic()
                self._index_cost_s = self._indexed_at - began
        finally:
            self._lock.release()
        return None

    def refresh_index(self, paths: Sequence[str]) -> None:
        """See Store.refresh_index."""
        try:
            self._load_head(self._repository.lookup_reference("HEAD"))
            for path in paths:
                check_path(path)
                with contextlib.suppress(CannotDescend):
                    entry = self._trees.get(path.encode("utf-8", "surrogateescape"))
                    self._unindexed.setdefault(path, entry)
        except (pygit2.GitError, KeyError, ValueError, OSError) as failure:
            raise GitFailure("GIT_UNKNOWN_ERROR", self._git_dir.scrub(str(failure))) from failure

    def lock_is_held(self) -> bool:
        return self._lock.is_foreign()

    def close(self) -> None:
        self._lock.close()
        self._repository.free()


def _signature(person: Person, when: int, offset: int) -> pygit2.Signature:
    return pygit2.Signature(person.name, person.email, when, offset)


def _synced_object_database(git_dir: GitDir) -> pygit2.Odb:
    """The repository's objects, new ones written with fsync."""
    objects = os.path.join(git_dir.common, "objects")
    database = pygit2.Odb()
    loose = pygit2.OdbBackendLoose(objects, DEFAULT_LEVEL, True, 0o777, 0o444)
    database.add_backend(loose, 2)
    database.add_backend(pygit2.OdbBackendPack(objects), 1)
    try:
        with open(os.path.join(objects, "info", "alternates"), encoding="utf-8") as file:
            for line in file.read().splitlines():
                if line and not line.startswith("#"):
                    database.add_disk_alternate(os.path.join(objects, line))
    except FileNotFoundError:
        pass
    return database


def _open_failure(git_dir: GitDir, failure: Exception) -> GitFailure:
    text = str(failure)
    if "not owned by" in text:
        return safe_directory_failure()
    return GitFailure(
        "GIT_UNKNOWN_ERROR",
        git_dir.scrub(f"the repository cannot be opened: {text}"),
    )
