"""The engine's commits, read from Git for the tools that show history (spec 02 §7).

Only commits whose subject is ours count. One commit may stand for the writes of several
records (bulk calls, batches).
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.history.command import TIMEOUT_S, child_environment, stop_group
from maadd_worker.history.git_dir import locate
from maadd_worker.history.message import ParsedBody, ParsedSubject, parse_body, parse_subject
from maadd_worker.history.outcome import CommitIdentity, GitFailure, LogicalWrite
from maadd_worker.read.context import ReadContext

_POLL_S = 0.05
_MARK = b"\x01"
_FIELDS = ("%H", "%an", "%aI", "%s", "%b")
_FORMAT = "--format=" + "%x01" + "".join(f"{field}%x00" for field in _FIELDS)
_SETTINGS = (
    "core.quotepath=false",
    "core.fsmonitor=false",
    "log.follow=false",
    "log.showRoot=true",
    "log.showSignature=false",
    "i18n.logOutputEncoding=UTF-8",
)
_BARE_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_SHARED = re.compile(r"(?:bulk|purge|repair|batch|recovery):(?:.*:)?(\d+)", re.ASCII)


class PathChange(msgspec.Struct, frozen=True):
    """One file of a commit: Git's status letter, its path, and where a renamed one was."""

    status: str
    path: str
    old_path: str | None = None


class LogEntry(msgspec.Struct, frozen=True):
    """One commit of anybody; `timestamp` is the author date. `changes` are empty unless asked."""

    sha: str
    author: str
    timestamp: str
    subject: str
    body: str
    changes: tuple[PathChange, ...]


class Commit(msgspec.Struct, frozen=True):
    """One commit of ours, its subject and body taken apart."""

    sha: str
    author: str
    timestamp: str
    subject: ParsedSubject
    body: ParsedBody
    changes: tuple[PathChange, ...] = ()

    @property
    def shared(self) -> int | None:
        """The number of writes behind a commit for several; None for a single write."""
        if len(self.body.writes) > 1:
            return len(self.body.writes)
        found = _SHARED.fullmatch(self.subject.detail)
        return int(found[1]) if found else None

    def identity_of(self, write: LogicalWrite | None) -> CommitIdentity | None:
        """Who made a write; the commit's own lines count where no trailer names anybody."""
        if write is not None and any(other.identity for other in self.body.writes):
            return write.identity
        return self.body.identity


def has_repository(context: ReadContext) -> bool:
    """Whether a `.git` entry stands at the project root itself."""
    try:
        return locate(context.root.path) is not None
    except GitFailure:
        return True


def require_repository(context: ReadContext) -> None:
    """HISTORY_DISABLED or GIT_NOT_INITIALIZED without a repository (spec 02 §7)."""
    if has_repository(context):
        return
    mode = context.history.effective_mode
    if mode in ("feed", "read"):
        raise MaadError(
            "HISTORY_DISABLED",
            f"history mode {mode} without a Git repository keeps no history",
            {"historyMode": mode},
        )
    raise MaadError(
        "GIT_NOT_INITIALIZED", "there is no Git repository at the project root; run git init there"
    )


def date_options(since: str | None, until: str | None) -> list[str]:
    """Bounds for `git log`; a bare day begins at midnight, or ends right before the next."""
    options = []
    if since is not None:
        options.append(f"--since={_with_time(since, '00:00:00')}")
    if until is not None:
        options.append(f"--until={_with_time(until, '23:59:59')}")
    return options


def read_commits(
    context: ReadContext,
    options: Sequence[str],
    pathspecs: Iterable[str] = (),
    *,
    with_changes: bool = False,
) -> Iterator[Commit]:
    """Our commits on the checked out branch that `git log` finds, newest first; GIT_ERROR."""
    for entry in read_log(context, options, pathspecs, with_changes=with_changes):
        commit = parse_commit(entry)
        if commit is not None:
            yield commit


def read_log(
    context: ReadContext,
    options: Sequence[str],
    pathspecs: Iterable[str] = (),
    *,
    with_changes: bool = False,
) -> Iterator[LogEntry]:
    """Everybody's commits on the checked out branch, newest first; GIT_ERROR."""
    changes = ("--name-status", "-M") if with_changes else ("--no-patch",)
    arguments = ["log", "-z", _FORMAT, "--no-color", "--no-ext-diff", *changes, *options, "--"]
    try:
        output = run_read(context, [*arguments, *pathspecs])
    except MaadError as error:
        if error.code == "GIT_ERROR" and _is_unborn(context):
            return iter(())
        raise
    return _entries(output)


def parse_commit(entry: LogEntry) -> Commit | None:
    """The commit of a log entry; None when it is not ours."""
    subject = parse_subject(entry.subject)
    if subject is None:
        return None
    body = parse_body(entry.body)
    return Commit(entry.sha, entry.author, entry.timestamp, subject, body, entry.changes)


def changes_of(context: ReadContext, shas: Collection[str]) -> dict[str, tuple[PathChange, ...]]:
    """The files of some commits, by commit; GIT_ERROR."""
    if not shas:
        return {}
    arguments = ["diff-tree", "--stdin", "--root", "-r", "-z", "-M", "--name-status"]
    output = run_read(context, arguments, stdin="".join(f"{sha}\n" for sha in shas).encode())
    found: dict[str, tuple[PathChange, ...]] = {}
    tokens = _tokens(output)
    sha, changes = "", list[PathChange]()
    for token in tokens:
        if token in shas:
            sha, changes = token, []
        else:
            changes.append(_change(token, tokens))
        found[sha] = tuple(changes)
    return found


def newest_commit(context: ReadContext, paths: Mapping[str, str]) -> tuple[str, Commit] | None:
    """The newest of our commits on some files, and the record (`path -> id`) it belongs to."""
    pathspecs = [literal(path) for path in paths]
    for commit in read_commits(context, ["--max-count=50"], pathspecs, with_changes=True):
        for change in commit.changes:
            if change.path in paths:
                return paths[change.path], commit
    return None


def literal(path: str) -> str:
    """A pathspec that means exactly this path."""
    return f":(top,literal){path}"


def run_read(context: ReadContext, arguments: Sequence[str], stdin: bytes | None = None) -> bytes:
    """The output of a reading `git`; it is ended with the call. GIT_ERROR, REQUEST_TIMEOUT."""
    settings = [part for setting in _SETTINGS for part in ("-c", setting)]
    try:
        child = subprocess.Popen(
            ["git", "--no-optional-locks", *settings, *arguments],
            cwd=context.root.path,
            env=child_environment(context.root.path),
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as failure:
        raise MaadError(
            "GIT_ERROR", f"the git program cannot be started: {failure.strerror}"
        ) from failure
    end = time.monotonic() + TIMEOUT_S
    while True:
        try:
            stdout, stderr = child.communicate(stdin, timeout=_POLL_S)
            break
        except subprocess.TimeoutExpired:
            stdin = None  # what was not written yet is remembered
            if context.reader.stopped():
                stop_group(child)
                context.check_time()
            if time.monotonic() > end:
                stop_group(child)
                raise MaadError(
                    "GIT_ERROR", f"git {arguments[0]} did not end within {TIMEOUT_S:g} s"
                ) from None
        except BaseException:
            stop_group(child)
            raise
    if child.returncode:
        complaint = stderr.decode("utf-8", "replace").replace(context.root.path, ".").strip()[-500:]
        raise MaadError("GIT_ERROR", f"git {arguments[0]} failed: {complaint or child.returncode}")
    return stdout


def _entries(output: bytes) -> Iterator[LogEntry]:
    """The commits in the output of `git log -z` with our format."""
    tokens = _pieces(output)
    token: bytes | None = next(tokens, None)
    while token is not None and token.startswith(_MARK):
        sha, author, timestamp, subject, body = (
            part.decode("utf-8", "replace")
            for part in (token[1:], *(next(tokens) for _ in _FIELDS[1:]))
        )
        changes: list[PathChange] = []
        rest = (part.decode("utf-8", "surrogateescape") for part in tokens)
        token = None
        for part in rest:
            if part.startswith("\x01"):
                token = part.encode("utf-8", "surrogateescape")
                break
            if status := part.lstrip("\n"):
                changes.append(_change(status, rest))
        yield LogEntry(sha, author, timestamp, subject, body, tuple(changes))


def _pieces(output: bytes) -> Iterator[bytes]:
    """The NUL-terminated pieces of an output, without a list of them all."""
    start = 0
    while (end := output.find(b"\0", start)) >= 0:
        yield output[start:end]
        start = end + 1


def _tokens(output: bytes) -> Iterator[str]:
    return (part.decode("utf-8", "surrogateescape") for part in _pieces(output))


def _change(status: str, rest: Iterator[str]) -> PathChange:
    first = next(rest)
    return (
        PathChange(status[0], next(rest), first) if status[0] in "RC" else PathChange(status, first)
    )


def _with_time(date: str, time_of_day: str) -> str:
    """A bare day with a time; `today` is one too, which not every Git knows."""
    if date.strip().lower() == "today":
        return f"midnight {time_of_day}"
    return f"{date}T{time_of_day}" if _BARE_DATE.fullmatch(date) else date


def _is_unborn(context: ReadContext) -> bool:
    """Whether the branch has no commit yet."""
    try:
        run_read(context, ["rev-parse", "--quiet", "--verify", "HEAD"])
    except MaadError:
        try:
            run_read(context, ["symbolic-ref", "--quiet", "HEAD"])
        except MaadError:
            return False
        return True
    return False
