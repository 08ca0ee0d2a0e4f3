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

import msgspec
import pygit2
from pygit2.enums import ReferenceType, RepositoryOpenFlag

from maadd_worker.disk.journal import Journal
from maadd_worker.failpoints import reach
from maadd_worker.history.branch_move import BranchMoved, RefLog, move_ref
from maadd_worker.history.git_dir import GitDir, LocalConfig
from maadd_worker.history.index_file import IndexFile
from maadd_worker.history.index_lock import IndexLock
from maadd_worker.history.object_writer import ObjectWriter
from maadd_worker.history.outcome import GitFailure
from maadd_worker.history.recent_moves import Move, RecentMoves
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

_STALE_READERS_S = 0.05
_STALE_READERS_BYTES_PER_S = 5_000_000
_LONGEST_STALE_READERS_S = 1.0
"""A `git commit` reads the index, and looks at the files in it, before it takes the lock: one
that read it before we mended it shall meet the lock and fail, not write the old one back."""

_MOVE_ATTEMPTS = 5
_REMEMBERED_S = 5.0


class _Indexed(msgspec.Struct, frozen=True):
    """An index entry that was set lately, and what stood there in the last seconds before."""

    entry: TreeEntry | None
    before: tuple[TreeEntry | None, ...]
    at: float


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
        self._recent: dict[str, _Indexed] = {}
        self._moves = RecentMoves()
        self._patient = False
        self._indexed_at = 0.0
        self._index_cost_s = 0.0
        self._branch_locked = False
        self._trees = TreeCache(self._read_tree, self._write_tree)
        self._worktree = Worktree(
            git_dir, repository, self._objects, self._trees, self._index.submodules
        )
        self._base: pygit2.Oid | None = None
        self._loaded = False

    @classmethod
    def open(cls, git_dir: GitDir, config: LocalConfig, journal: Journal | None) -> Libgit2Store:
        """Raises GitFailure: `details.reason` is `safe-directory` when Git refuses the
        repository for its owner."""
        try:
            repository = pygit2.Repository(git_dir.root, RepositoryOpenFlag.NO_SEARCH)
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
            except BranchMoved:
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
                self._step_back()
                time.sleep(wait)
            except (pygit2.GitError, KeyError, ValueError, OSError) as failure:
                text = f"the commit failed: {failure}"
                if self._git_dir.is_moved:
                    text = "the project's folder was moved away; the commit follows when it is back"
                raise GitFailure("GIT_COMMIT_FAILED", self._git_dir.scrub(text)) from failure

    def _commit_chain(self, changes: Sequence[Change], timeout_s: float) -> list[Committed]:
        self._bring_along()
        head = self._repository.lookup_reference("HEAD")
        base = self._load_head(head)
        self._worktree.refresh()
        if self._worktree.runs_programs:
            self._step_back()
        parent = base
        touched: dict[str, TreeEntry | None] = {}
        before: dict[str, tuple[TreeEntry | None, ...]] = {}
        results: list[Committed] = []
        made: Change | None = None
        self._loaded = False  # until the branch has moved, the trees are ahead of it
        for change in changes:
            self._objects.forget()
            try:
                entries, skipped = self._worktree.collect(change, timeout_s)
            except GitFailure as failure:
                results.append(Committed(failure=failure))
                continue
            for path in entries:
                tracked = self._trees.get(path.encode("utf-8", "surrogateescape"))
                before[path] = (*before.get(path, ()), tracked)
            changed = self._edit_trees(entries)
            if not changed:
                results.append(Committed(skipped=skipped))
                continue
            change = msgspec.structs.replace(change, message=change.message_for(changed))
            made = made or change
            parent = self._write_commit(change, parent)
            touched |= entries
            results.append(Committed(str(parent), skipped=skipped))
        if parent is not None and made is not None:
            self._take_lock(base)
            reach("git.move")
            ref = self._move(head, base, parent, made)
            reach("git.moved")
            if base is not None:
                self._moves.add(
                    Move(ref, str(base), str(parent), touched, made.committer, time.monotonic())
                )
        self._unindexed |= touched
        self._remember(touched, before)
        self._base = parent
        self._loaded = True
        self._branch_locked = False
        # What stands in its way is met again with the next commit, or when it is quiet.
        with contextlib.suppress(
            BranchMoved, GitFailure, pygit2.GitError, KeyError, ValueError, OSError
        ):
            self._bring_along()
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

    def _edit_trees(self, entries: dict[str, TreeEntry | None]) -> set[str]:
        """Set the entries; the paths that this changed."""
        changed: set[str] = set()
        for path, entry in entries.items():
            encoded = path.encode("utf-8", "surrogateescape")
            if entry is None:
                differs = self._trees.remove(encoded)
            else:
                differs = self._trees.put(encoded, entry)
            if differs:
                changed.add(path)
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
        tree = pygit2.Oid(raw=self._trees.write())
        reach("git.objects")
        self._objects.flush()
        parents: list[str | pygit2.Oid] = [parent] if parent is not None else []
        reach("git.commit")
        text = self._repository.create_commit_string(
            author, committer, change.message, tree, parents
        )
        name = self._objects.write(b"commit", str(text).encode())
        self._objects.flush()
        return pygit2.Oid(raw=name)

    def _move(
        self, head: pygit2.Reference, base: pygit2.Oid | None, to: pygit2.Oid, change: Change
    ) -> str:
        """Point the branch (a detached HEAD itself) at `to`, if HEAD still names it and it still
        is at `base`; gives its name."""
        name = self._ref_of(head)
        first = " (initial)" if base is None else ""
        subject = change.message.split("\n", 1)[0]
        before = None if base is None else str(base)
        self._move_ref(name, before, str(to), change.committer, f"commit{first}: {subject}")
        return name

    def _ref_of(self, head: pygit2.Reference) -> str:
        """The name of the ref that a commit moves."""
        if head.type != ReferenceType.SYMBOLIC:
            return "HEAD"
        name = str(head.target)
        try:
            return self._repository.lookup_reference(name).resolve().name
        except KeyError:
            return name  # of an unborn branch

    def _move_ref(
        self, name: str, before: str | None, to: str, person: Person, message: str
    ) -> None:
        def current() -> str | None:
            head = self._repository.lookup_reference("HEAD")
            if self._ref_of(head) != name:
                raise BranchMoved
            target = self._target(head)
            return None if target is None else str(target)

        now = int(time.time())
        names = (name,) if name == "HEAD" else (name, "HEAD")
        log = RefLog(names, self._logs_all(), person, now, local_offset_minutes(now), message)
        move_ref(self._git_dir, name, before, to, log, current)

    def _bring_along(self) -> None:
        """When somebody has switched to a branch that was made before our last commits, while
        we made them, move it to them: files and index are theirs, and each was answered as
        committed. A branch that was checked out on purpose has its own files and index.

        Raises BranchMoved, GitFailure, OSError.
        """
        last = self._moves.last
        if last is None:
            return
        head = self._repository.lookup_reference("HEAD")
        name, target = self._ref_of(head), self._target(head)
        if name == last.ref or target is None:
            return
        touched = self._moves.touched_since(str(target))
        if touched is None or not self._is_indexed(touched):
            return
        try:
            refuse_while_busy(self._git_dir)
        except GitFailure:
            return
        message = "commit: made while the branch was switched"
        self._move_ref(name, str(target), last.to, last.person, message)
        self._moves.clear()

    def _is_indexed(self, touched: dict[str, TreeEntry | None]) -> bool:
        """Whether the index is what some commits have made it, or are about to."""
        paths = [path for path in touched if path not in self._unindexed]
        found = self._index.objects(paths)
        return found is not None and all(found.get(path) == _oid(touched[path]) for path in paths)

    def _logs_all(self) -> bool:
        """Whether a ref gets a log that has none yet; the default of a repository with files."""
        config, name = self._repository.config, "core.logallrefupdates"
        return name not in config or str(config[name]).lower() not in ("false", "no", "off", "0")

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
                self._index.update(self._lost_entries() | self._unindexed)
                self._unindexed = {}
                self._indexed_at = time.monotonic()
                self._index_cost_s = self._indexed_at - began
        finally:
            self._lock.release()
        return None

    def _step_back(self) -> None:
        """Let others have the lock while something is waited for."""
        self.settle(force=True)

    def recheck_index(self) -> bool:
        """See Store.recheck_index.

        `git commit -- <paths>` reads the index before it takes the lock. What came into the
        index between the two is gone once it writes, and the next plain `git commit` of that
        person would take the records away again.
        """
        try:
            self._bring_along()
        except BranchMoved:
            return False
        except (pygit2.GitError, KeyError, ValueError, OSError) as failure:
            raise GitFailure("GIT_UNKNOWN_ERROR", self._git_dir.scrub(str(failure))) from failure
        if not self._recent:
            return True
        if self._lock.is_foreign():
            return False
        lost = self._lost_entries()
        if lost:
            self._lock.acquire(patient=False)
            try:
                # Under the lock once more: whoever had it may have settled this.
                lost = self._lost_entries()
                self._recent.clear()
                if lost:
                    self._index.update(lost)
            finally:
                self._lock.release()
        self._recent.clear()
        return True

    def _remember(
        self,
        touched: dict[str, TreeEntry | None],
        before: dict[str, tuple[TreeEntry | None, ...]],
    ) -> None:
        now = time.monotonic()
        for path in list(self._recent):
            if self._recent[path].at >= now - _REMEMBERED_S:
                break
            del self._recent[path]
        for path, entry in touched.items():
            known = self._recent.pop(path, None)
            earlier = known.before if known is not None else ()
            self._recent[path] = _Indexed(entry, (*earlier, *before[path]), now)

    def _lost_entries(self) -> dict[str, TreeEntry | None]:
        """The recent entries in whose place the index has what stood there before, by no will of
        a person: HEAD has not gone back, as with `git reset`, and no command has changed entries,
        as `git rm --cached` does."""
        found = self._index.written_over(list(self._recent)) if self._recent else None
        if found is None:
            return {}
        lost: dict[str, TreeEntry | None] = {}
        try:
            self._load_head(self._repository.lookup_reference("HEAD"))
            for path, recent in self._recent.items():
                oid = found.get(path)
                earlier = [_oid(entry) for entry in recent.before]
                if oid == _oid(recent.entry) or oid not in earlier:
                    continue
                if self._trees.get(path.encode("utf-8", "surrogateescape")) == recent.entry:
                    lost[path] = recent.entry
        except (CannotDescend, pygit2.GitError, KeyError, ValueError, OSError):
            return {}  # a repository in such a state is not ours to mend
        return lost

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

    def take_over_lock(self, paths: Sequence[str]) -> bool:
        """See Store.take_over_lock."""
        if not self._lock.take_over():
            return False
        try:
            self.refresh_index(paths)
            if self._unindexed:
                self._index.update(self._unindexed)
                self._unindexed = {}
                reading = _STALE_READERS_S + self._index.size() / _STALE_READERS_BYTES_PER_S
                time.sleep(min(reading, _LONGEST_STALE_READERS_S))
        finally:
            self._lock.release()
        return True

    def lock_is_held(self) -> bool:
        return self._lock.is_foreign()

    def close(self) -> None:
        self._lock.close()
        self._repository.free()


def _oid(entry: TreeEntry | None) -> bytes | None:
    return None if entry is None else entry.oid


def _signature(person: Person, when: int, offset: int) -> pygit2.Signature:
    return pygit2.Signature(person.name, person.email, when, offset)


def _open_failure(git_dir: GitDir, failure: Exception) -> GitFailure:
    text = str(failure)
    if "not owned by" in text:
        return safe_directory_failure()
    return GitFailure(
        "GIT_UNKNOWN_ERROR",
        git_dir.scrub(f"the repository cannot be opened: {text}"),
    )
