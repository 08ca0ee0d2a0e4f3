"""What both ways to make commits have in common: the change asked for and what came of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Protocol

import msgspec

from maadd.protocol.messages import WorkerSettings
from maadd_worker.history.git_dir import GitDir
from maadd_worker.history.message import format_message, one_line
from maadd_worker.history.outcome import CommitRequest, GitFailure, without_unchanged

_NO_MOVES: Mapping[str, str] = MappingProxyType({})

WAITS_S = (0.05, 0.15, 0.45)
"""Pauses before the history step is tried again while somebody holds a lock (spec 03 §9.3)."""

_OPERATIONS = (
    ("MERGE_HEAD", "merge"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("rebase-merge", "rebase"),
    ("rebase-apply", "rebase"),
)


class Person(msgspec.Struct, frozen=True):
    """A name and an address in a commit."""

    name: str
    email: str


class Change(msgspec.Struct, frozen=True):
    """One commit to make."""

    message: str
    author: Person
    committer: Person
    paths: tuple[str, ...]
    contents: Mapping[str, bytes | None]
    moves: Mapping[str, str] = _NO_MOVES
    """See CommitRequest."""
    records: frozenset[str] = frozenset()
    """The ids of the records written, `ended` of those that are deleted."""
    ended: frozenset[str] = frozenset()
    message_of: Callable[[Set[str]], str] | None = None
    """Makes the message from the paths that really differ, where it depends on them."""

    def message_for(self, changed: Set[str]) -> str:
        """The message of a commit in which these paths differ from its parent."""
        return self.message if self.message_of is None else self.message_of(changed)


class Committed(msgspec.Struct, frozen=True):
    """What came of a change: `sha` (None: nothing had to be committed) or `failure`.

    `skipped` names paths that Git cannot hold here (ignored, beyond a link or a submodule),
    each with the reason.
    """

    sha: str | None = None
    failure: GitFailure | None = None
    skipped: tuple[tuple[str, str], ...] = ()


class Store(Protocol):
    """Makes commits on the branch that is checked out."""

    name: str
    """`libgit2` or `program`, as health shows it."""

    def prepare(self, *, patient: bool) -> None:
        """Make sure that commits can be made now.

        Raises GitFailure when a lock or an unfinished operation of somebody else is in the
        way; `patient` allows to wait for a lock, at most 2 s and once for each lock.
        """

    def commit(self, changes: Sequence[Change], *, timeout_s: float) -> list[Committed]:
        """One commit per change, in order; after `prepare`.

        Raises GitFailure when none could be made. `timeout_s` bounds what the `git` program
        may take for one change; where it filters file contents, for each file.
        """

    def settle(self, *, force: bool = False) -> float | None:
        """Finish what commits left for later (index file, lock).

        Gives the seconds until it wants to be called again, None when nothing is left.
        Raises GitFailure when it cannot; a later call tries again.
        """

    def refresh_index(self, paths: Sequence[str]) -> None:
        """Have the index file brought up to date for paths that a dead process may have
        committed, with the next `settle`. Raises GitFailure."""

    def take_over_lock(self, paths: Sequence[str]) -> bool:
        """Deal with the index lock that a dead process of ours left, ahead of anything else:
        the index gets what HEAD has for `paths`, and only then the lock is given up. False
        when there is none. Raises GitFailure; the lock is gone then."""

    def recheck_index(self) -> bool:
        """Make sure, a moment after the last commit, that nobody who worked at the same time
        has put the index back to before it; False while a lock of somebody else is in the way.
        Raises GitFailure."""

    def lock_is_held(self) -> bool:
        """Whether somebody else's lock stands in the way right now."""

    def close(self) -> None:
        """Give up locks and handles; `settle(force=True)` comes first."""


def change_of(request: CommitRequest, settings: WorkerSettings) -> Change:
    """The commit that a request asks for, signed as the settings say (spec 03 §9.2)."""
    author = committer = engine_person(settings)
    agent = request.identity.agent_id if request.identity is not None else None
    if settings.commit_author_from_agent and agent and _clean(agent):
        author = Person(_clean(agent), committer.email)

    def message_of(changed: Set[str]) -> str:
        return format_message(
            without_unchanged(request, changed), with_identity=settings.commit_identity
        )

    writes = (
        [(request.doc_id, request.action)]
        if not request.writes
        else [(write.doc_id, write.action) for write in request.writes]
    )
    return Change(
        format_message(request, with_identity=settings.commit_identity),
        author,
        committer,
        request.paths,
        request.contents,
        request.moves,
        frozenset(doc_id for doc_id, _ in writes),
        frozenset(doc_id for doc_id, action in writes if action == "delete"),
        message_of if any(write.paths for write in request.writes) else None,
    )


def engine_person(settings: WorkerSettings) -> Person:
    """Who commits and tags: the engine, never the user of the machine."""
    return Person(
        _clean(settings.commit_author_name) or "maadb-engine",
        _clean(settings.commit_author_email) or "engine@maadb.local",
    )


def _clean(text: str) -> str:
    """What may stand as a name in a commit: no angle brackets, no breaks, no edge crud."""
    return one_line(text.replace("<", "").replace(">", "")).strip(" .,:;\"'\\")


def refuse_while_busy(git_dir: GitDir) -> None:
    """GitFailure while a person is in the middle of something that a commit would disturb:
    what is committed during a rebase, say, is gone after its `--abort`."""
    for name, operation in _OPERATIONS:
        if os.path.exists(os.path.join(git_dir.path, name)):
            raise GitFailure(
                "GIT_COMMIT_FAILED",
                f"a {operation} is going on in the repository; the commit follows when it is "
                "finished or aborted",
                {"reason": operation},
            )


def check_path(path: str) -> None:
    """ValueError for a path that must never reach a tree: absolute, `..`, or inside `.git`."""
    parts = path.split("/")
    if any(part in ("", ".", "..") or part.lower() == ".git" for part in parts):
        raise ValueError(f"not a path below the project root: {path!r}")


def local_offset_minutes(now: float) -> int:
    """Distance of local time to UTC, which Git writes into a commit."""
    return (time.localtime(now).tm_gmtoff or 0) // 60


def safe_directory_failure() -> GitFailure:
    """The failure for a repository that belongs to another user."""
    return GitFailure(
        "GIT_COMMIT_FAILED",
        "Git refuses the repository because another user owns it; give it to the user who "
        "runs the server, or add it to safe.directory in that user's Git configuration",
        {"reason": "safe-directory"},
    )
