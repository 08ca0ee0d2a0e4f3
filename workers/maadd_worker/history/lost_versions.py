"""Versions and times of records from the commits of a project whose index is lost (spec 01 §1).

One pass over the history, newest commit first. Commits of ours name their records, so only
those of other people, and bulk commits without trailers, are compared with their parents. What
is kept is a few numbers for each record and path.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import select
import subprocess
import time
from collections.abc import Iterator, Sequence

import msgspec

from maadd_worker.history.command import (
    PLAIN,
    GitTimeout,
    child_environment,
    git_arguments,
    run_git,
    stop_group,
)
from maadd_worker.history.git_dir import locate
from maadd_worker.history.message import ParsedBody, parse_body, parse_subject
from maadd_worker.history.outcome import GitFailure
from maadd_worker.index.past import PastLookup, PastStamps
from maadd_worker.markdown.text import iso_milliseconds

_CHUNK = 1 << 16
_BATCH = 200
"""Commits compared with their parents by one run of Git."""

_RENAMES = "-l2000"
"""Files whose content is compared to find renames that changed something, at most; renames
that changed nothing are always found."""

_SILENCE_S = 60.0
"""Git is given up when it says nothing for so long."""

_READING = (*PLAIN, "-c", "core.fsmonitor=false")
_FORMAT = "--format=" + "".join(f"{field}%x00" for field in ("%H", "%ct", "%s", "%b"))
_SEVERAL = re.compile(r"(?:bulk|purge|repair|batch|recovery):.*", re.ASCII)


class _Story(msgspec.Struct):
    """The commits on one record or path, from now back to where it began."""

    newest: int = 0
    oldest: int = 0
    versions: int = 0
    begun: bool = False

    def touch(self, when: int, versions: int) -> None:
        """An earlier commit that made so many versions; none of a former life counts."""
        if self.begun:
            return
        self.newest = max(self.newest, when)
        self.oldest = when
        self.versions += versions


class _Commit(msgspec.Struct, frozen=True):
    """One commit; `when` is its committer's time in seconds."""

    sha: str
    when: int
    subject: str
    body: str


class _Stories:
    """What the commits say so far, by id where they name one, else by the path of today."""

    def __init__(self) -> None:
        self._by_id: dict[str, _Story] = {}
        self._by_path: dict[str, _Story] = {}
        self._moved: dict[str, _Story] = {}

    def take_named(self, commit: _Commit) -> bool:
        """Take over a commit whose message names its records; False when it does not."""
        subject = parse_subject(commit.subject)
        if subject is None:
            return False
        body = parse_body(commit.body) if commit.body else ParsedBody(None, ())
        if body.writes:
            for write in reversed(body.writes):
                self._take_write(write.doc_id, write.action, write.detail, commit.when)
            return True
        if _SEVERAL.fullmatch(subject.detail):
            return False
        self._take_write(subject.doc_id, subject.action, subject.detail, commit.when)
        return True

    def take_changes(self, changes: Iterator[str], when: int) -> None:
        """Take over the changed paths of a commit, as status letters and paths in turn."""
        moved: dict[str, _Story] = {}
        for status in changes:
            path = next(changes)
            new_path = next(changes) if status[0] in "RC" else path
            if not new_path.endswith(".md"):
                continue
            story = self._moved.get(new_path) or self._by_path.setdefault(new_path, _Story())
            match status[0]:
                case "A" | "C":
                    story.touch(when, 1)
                    story.begun = True
                case "D":
                    # What is there now, if anything, came later.
                    story.begun = True
                case "R":
                    story.touch(when, 0 if status == "R100" else 1)
                    moved[path] = story
                    self._moved.pop(new_path, None)
                case _:
                    story.touch(when, 1)
        # Files may change places in one commit.
        self._moved |= moved

    def find(self, doc_id: str, path: str) -> _Story | None:
        """All that is known of a record."""
        found = [
            story
            for story in (self._by_id.get(doc_id), self._by_path.get(path))
            if story is not None and story.versions
        ]
        if not found:
            return None
        return _Story(
            max(story.newest for story in found),
            min(story.oldest for story in found),
            sum(story.versions for story in found),
            any(story.begun for story in found),
        )

    def _take_write(self, doc_id: str, action: str, detail: str, when: int) -> None:
        story = self._by_id.setdefault(doc_id, _Story())
        if action != "delete":
            story.touch(when, 1)
            story.begun = story.begun or action == "create"
        elif "hard" in detail or "purge" in detail:
            # What is there now, if anything, came later.
            story.begun = True
        else:
            # A tombstone keeps its version.
            story.touch(when, 0)


def past_of(root: str) -> PastLookup:
    """What the commits on the checked out branch know of the project's records.

    Nothing without a repository or a commit. GitFailure when Git fails or falls silent.
    """
    git_dir = locate(root)
    if git_dir is None or not _has_commits(root):
        return lambda _doc_id, _path: None
    whole = not os.path.exists(os.path.join(git_dir.common, "shallow"))
    stories = _Stories()
    try:
        _read(root, stories)
        edited = _edited(root)
    except GitTimeout as failure:
        raise GitFailure("GIT_UNKNOWN_ERROR", str(failure)) from failure
    now = int(time.time())

    def look_up(doc_id: str, path: str) -> PastStamps | None:
        story = stories.find(doc_id, path)
        if story is None:
            return None
        known = whole and story.begun
        changed = path in edited
        return PastStamps(
            story.versions + changed if known else 1,
            None if changed else _stamp(min(story.newest, now)),
            _stamp(min(story.oldest, now)),
            known,
        )

    return look_up


def _has_commits(root: str) -> bool:
    result = run_git(root, ["rev-parse", "-q", "--verify", "HEAD"])
    if result.status not in (0, 1):
        raise GitFailure("GIT_UNKNOWN_ERROR", f"git rev-parse failed: {result.complaint}")
    return result.status == 0


def _read(root: str, stories: _Stories) -> None:
    """Take over the whole history; the commits that have to be compared in portions."""
    unnamed: list[_Commit] = []
    for commit in _commits(root):
        if not stories.take_named(commit):
            unnamed.append(commit)
            if len(unnamed) == _BATCH:
                _compare(root, unnamed, stories)
                unnamed = []
    if unnamed:
        _compare(root, unnamed, stories)


def _compare(root: str, commits: Sequence[_Commit], stories: _Stories) -> None:
    """Take over what each commit changed against its parent; merges change nothing."""
    arguments = ["diff-tree", "--stdin", "--root", "-r", "-z", "-M", _RENAMES, "--name-status"]
    result = run_git(
        root,
        arguments,
        stdin="".join(f"{commit.sha}\n" for commit in commits).encode(),
        timeout_s=_SILENCE_S,
    )
    if result.status:
        raise GitFailure("GIT_UNKNOWN_ERROR", f"git diff-tree failed: {result.complaint}")
    times = {commit.sha: commit.when for commit in commits}
    pieces = iter(result.stdout.decode("utf-8", "surrogateescape").split("\0"))
    changes: list[str] = []
    when = 0
    for piece in pieces:
        if piece in times:
            stories.take_changes(iter(changes), when)
            changes, when = [], times[piece]
        elif piece:
            changes.append(piece)
    stories.take_changes(iter(changes), when)


def _edited(root: str) -> set[str]:
    """Tracked files whose content is not that of the last commit."""
    arguments = [
        "status",
        "--porcelain",
        "-z",
        "--no-renames",
        "--untracked-files=no",
        "--ignore-submodules=all",
    ]
    result = run_git(root, arguments, settings=_READING, timeout_s=_SILENCE_S)
    if result.status:
        raise GitFailure("GIT_UNKNOWN_ERROR", f"git status failed: {result.complaint}")
    text = result.stdout.decode("utf-8", "surrogateescape")
    return {entry[3:] for entry in text.split("\0") if entry}


def _commits(root: str) -> Iterator[_Commit]:
    """The commits on the branch, children before parents, while Git finds them."""
    arguments = [
        "log", "-z", "--topo-order", "--no-patch", "--no-show-signature", "--encoding=UTF-8",
        _FORMAT,
    ]  # fmt: skip
    try:
        child = subprocess.Popen(
            git_arguments(arguments),
            cwd=root,
            env=child_environment(root),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as failure:
        raise GitFailure(
            "GIT_UNKNOWN_ERROR", f"the git program cannot be started: {failure.strerror}"
        ) from failure
    try:
        pieces = _pieces(child)
        for sha in pieces:
            # The separator of commits follows the last field.
            if name := sha.strip("\n"):
                yield _Commit(name, int(next(pieces)), next(pieces), next(pieces))
        if child.wait(_SILENCE_S):
            raise GitFailure("GIT_UNKNOWN_ERROR", f"git log ended with {child.returncode}")
    except subprocess.TimeoutExpired as failure:
        raise GitTimeout("git log did not end") from failure
    finally:
        stop_group(child)


def _pieces(child: subprocess.Popen[bytes]) -> Iterator[str]:
    """The NUL-terminated pieces of the output, as they come."""
    assert child.stdout is not None
    rest = b""
    while True:
        ready, _, _ = select.select([child.stdout], [], [], _SILENCE_S)
        if not ready:
            raise GitTimeout(f"git log said nothing for {_SILENCE_S:g} s")
        chunk = os.read(child.stdout.fileno(), _CHUNK)
        if not chunk:
            return
        *whole, rest = (rest + chunk).split(b"\0")
        for piece in whole:
            yield piece.decode("utf-8", "replace")


def _stamp(seconds: int) -> str:
    return iso_milliseconds(dt.datetime.fromtimestamp(seconds, dt.UTC))
