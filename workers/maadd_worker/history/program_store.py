"""Commits through the `git` program, for repositories that ask for what libgit2 does not do:
signing, hooks, SHA-256 names, reftable (design §7, spec 03 §9.3)."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from maadd_worker.disk.journal import Journal
from maadd_worker.failpoints import reach
from maadd_worker.history.command import (
    NO_GARBAGE_COLLECTION,
    NO_HOOKS,
    TIMEOUT_S,
    GitResult,
    GitTimeout,
    child_environment,
    run_git,
)
from maadd_worker.history.git_dir import GitDir, LocalConfig
from maadd_worker.history.index_lock import LOCK_NAME, LockPatience, reclaim_lock
from maadd_worker.history.outcome import GitFailure
from maadd_worker.history.store import (
    Change,
    Committed,
    check_path,
    refuse_while_busy,
    safe_directory_failure,
)

_PORTION = 1_000
_SHORTEST_S = 0.05
_TIDY_S = 2.0
_UNSTAGE_ATTEMPTS = 3

_Run = Callable[..., GitResult]


def wished_settings(git_dir: GitDir, config: LocalConfig) -> tuple[str, ...]:
    """Settings of a run that signs and runs hooks as far as the repository itself asks for it."""
    hooks = config.hooks_path or os.path.join(git_dir.common, "hooks")
    return (
        *NO_GARBAGE_COLLECTION,
        *("-c", f"commit.gpgsign={str(config.sign).lower()}"),
        *("-c", f"tag.gpgsign={str(config.sign_tags).lower()}"),
        *(("-c", f"core.hooksPath={hooks}") if config.hooks else NO_HOOKS),
    )


class ProgramStore:
    """The store that runs `git`. It keeps the index itself; nothing is left for later."""

    name = "program"

    def __init__(self, git_dir: GitDir, config: LocalConfig, journal: Journal | None) -> None:
        self._git_dir = git_dir
        self._config = config
        self._journal = journal
        self._lock = os.path.join(git_dir.path, LOCK_NAME)
        self._patience = LockPatience(git_dir)
        self._settings = wished_settings(git_dir, config)

    def prepare(self, *, patient: bool) -> None:
        """See Store.prepare. Git takes its lock itself, with each command."""
        refuse_while_busy(self._git_dir)
        self._patience.until(self._is_free, patient=patient)

    def commit(self, changes: Sequence[Change], *, timeout_s: float) -> list[Committed]:
        """See Store.commit."""
        results: list[Committed] = []
        for change in changes:
            try:
                results.append(self._commit_one(change, timeout_s))
            except GitFailure as failure:
                results.append(Committed(failure=failure))
            except OSError as failure:
                text = f"the commit failed: {os.strerror(failure.errno or 0)}"
                results.append(Committed(failure=GitFailure("GIT_COMMIT_FAILED", text)))
        return results

    def _is_free(self) -> bool:
        return not os.path.lexists(self._lock)

    def _commit_one(self, change: Change, timeout_s: float) -> Committed:
        environment = child_environment(
            self._git_dir.root,
            {
                "GIT_AUTHOR_NAME": change.author.name,
                "GIT_AUTHOR_EMAIL": change.author.email,
                "GIT_COMMITTER_NAME": change.committer.name,
                "GIT_COMMITTER_EMAIL": change.committer.email,
            },
        )
        run = partial(self._git, environment, time.monotonic() + timeout_s)
        paths, added, skipped = self._select(run, change.paths)
        if not paths:
            return Committed(skipped=skipped)
        reach("git.program.add")
        for some in _portions(added):
            self._checked(run("add", "--intent-to-add", "--", *some), "GIT_ADD_FAILED")
        try:
            if self._unchanged(run, paths):
                return Committed(skipped=skipped)
            reach("git.program.commit")
            self._make_commit(run, change.message, paths)
            reach("git.program.committed")
        except (GitFailure, OSError):
            self._unstage(partial(self._git, environment, time.monotonic() + _TIDY_S), added)
            raise
        sha = run("rev-parse", "--verify", "HEAD").stdout.decode("ascii", "replace").strip()
        if not sha:
            raise GitFailure("GIT_COMMIT_EMPTY", "git made a commit but names no id for it")
        return Committed(sha, skipped=skipped)

    def _unstage(self, run: _Run, added: Sequence[str]) -> None:
        """After a commit that failed: have the index show what HEAD has for the paths that were
        added for it, which somebody else may have committed meanwhile (`git commit -a`)."""
        if not added:
            return
        head: bytes | None = None
        for _ in range(_UNSTAGE_ATTEMPTS):
            found = run("rev-parse", "--quiet", "--verify", "HEAD").stdout
            if found == head:
                return  # HEAD has not moved while its paths were taken over
            head = found
            for some in _portions(added):
                if head:
                    run("reset", "--quiet", "HEAD", "--", *some)
                else:
                    run("rm", "--cached", "--quiet", "--force", "--ignore-unmatch", "--", *some)

    def _select(
        self, run: _Run, paths: Sequence[str]
    ) -> tuple[list[str], list[str], tuple[tuple[str, str], ...]]:
        """The paths to commit, those among them that are new to Git, and those left out."""
        try:
            for path in paths:
                check_path(path)
        except ValueError as failure:
            raise GitFailure("GIT_ADD_FAILED", str(failure)) from failure
        nested = {path: inner for path in paths if (inner := self._repository_above(path))}
        foreign = {path: f"it lies in the submodule {inner}" for path, inner in nested.items()}
        paths = [path for path in paths if path not in nested]
        tracked: set[str] = set()
        for some in _portions(paths):
            listed = self._checked(run("ls-files", "-z", "--", *some), "GIT_ADD_FAILED")
            tracked.update(_names(listed.stdout))
        fresh = [path for path in paths if path not in tracked and self._exists(path)]
        reasons = self._unversioned(run, fresh)
        added = [path for path in fresh if path not in reasons]
        known = tracked.union(added)
        skipped = foreign | reasons
        return [path for path in paths if path in known], added, tuple(skipped.items())

    def _repository_above(self, path: str) -> str | None:
        """The folder of another repository that a path leads into."""
        directory = ""
        for name in path.split("/")[:-1]:
            directory = os.path.join(directory, name)
            if os.path.lexists(os.path.join(self._git_dir.root, directory, ".git")):
                return directory
        return None

    def _exists(self, path: str) -> bool:
        return os.path.lexists(os.path.join(self._git_dir.root, path))

    def _unversioned(self, run: _Run, paths: Sequence[str]) -> dict[str, str]:
        reasons: dict[str, str] = {}
        for path in paths:
            directory = self._git_dir.root
            for name in path.split("/")[:-1]:
                directory = os.path.join(directory, name)
                if os.path.islink(directory):
                    reasons[path] = "it lies beyond a symbolic link"
        for asked in _portions([path for path in paths if path not in reasons]):
            result = run(
                "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--", *asked
            )
            self._checked(result, "GIT_ADD_FAILED")
            reasons |= dict.fromkeys(_names(result.stdout), "it is ignored by .gitignore")
        return reasons

    def _unchanged(self, run: _Run, paths: Sequence[str]) -> bool:
        if run("rev-parse", "--quiet", "--verify", "HEAD").status != 0:
            return False
        for some in _portions(paths):
            result = run("diff", "--quiet", "--no-ext-diff", "HEAD", "--", *some)
            if result.status > 1:
                raise self._failure(result, "GIT_STATUS_FAILED")
            if result.status == 1:
                return False
        return True

    def _make_commit(self, run: _Run, message: str, paths: Sequence[str]) -> None:
        arguments = ["commit", "--quiet", "--cleanup=verbatim", "--file=-", "--only"]
        if not self._config.hooks:
            arguments.append("--no-verify")
        with tempfile.NamedTemporaryFile() as names:
            names.write(b"\0".join(os.fsencode(path) for path in paths))
            names.flush()
            arguments += (f"--pathspec-from-file={names.name}", "--pathspec-file-nul")
            result = run(*arguments, stdin=message.encode())
        self._checked(result, "GIT_COMMIT_FAILED")

    def _git(
        self,
        environment: Mapping[str, str],
        give_up: float,
        *arguments: str,
        stdin: bytes | None = None,
    ) -> GitResult:
        try:
            return run_git(
                self._git_dir.root,
                arguments,
                settings=self._settings,
                stdin=stdin,
                environment=environment,
                timeout_s=max(give_up - time.monotonic(), _SHORTEST_S),
            )
        except GitTimeout as failure:
            reason = "timeout"
            if arguments[0] == "commit" and self._config.sign != self._config.hooks:
                reason = "signing" if self._config.sign else "hook"
            raise GitFailure(
                "GIT_COMMIT_FAILED", str(failure), {"reason": reason}, timed_out=True
            ) from failure

    def _checked(self, result: GitResult, code: str) -> GitResult:
        if result.status != 0:
            raise self._failure(result, code)
        return result

    def _failure(self, result: GitResult, code: str) -> GitFailure:
        """The failure that the program's own words tell of."""
        text = result.complaint
        if f"{LOCK_NAME}'" in text and "File exists" in text:
            return self._patience.failure()
        if "dubious ownership" in text:
            return safe_directory_failure()
        message = self._git_dir.scrub(text)
        if code == "GIT_COMMIT_FAILED":
            if self._config.sign and ("sign" in text or "gpg" in text):
                return GitFailure(code, f"signing failed: {message}", {"reason": "signing"})
            if self._config.hooks:
                return GitFailure(code, f"a hook refused the commit: {message}", {"reason": "hook"})
        return GitFailure(code, message)

    def settle(self, *, force: bool = False) -> float | None:
        """See Store.settle: there is never anything left."""
        return None

    def refresh_index(self, paths: Sequence[str]) -> None:
        """See Store.refresh_index; done at once."""
        environment = child_environment(self._git_dir.root)
        run = partial(self._git, environment, time.monotonic() + TIMEOUT_S)
        if run("rev-parse", "--quiet", "--verify", "HEAD").status == 0:
            for some in _portions(paths):
                self._checked(run("reset", "--quiet", "--", *some), "GIT_UNKNOWN_ERROR")

    def take_over_lock(self, paths: Sequence[str]) -> bool:
        """See Store.take_over_lock. Only a store of the other kind can have left it, before the
        configuration changed; Git writes no index under a lock of ours."""
        if self._journal is None or not reclaim_lock(self._git_dir, self._journal):
            return False
        self.refresh_index(paths)
        return True

    def recheck_index(self) -> bool:
        """See Store.recheck_index: Git keeps its index itself."""
        return True

    def lock_is_held(self) -> bool:
        return not self._is_free()

    def close(self) -> None:
        """Nothing is held."""


def _portions(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    """The paths in lists that a command line can hold."""
    return (paths[start : start + _PORTION] for start in range(0, len(paths), _PORTION))


def _names(output: bytes) -> list[str]:
    return [name.decode("utf-8", "surrogateescape") for name in output.split(b"\0") if name]
