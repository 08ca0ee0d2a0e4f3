"""The repository of a project: whether commits can be made, and what is in their way."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from maadd.cli.doctor.check import Check, ok, problem, some, warning
from maadd.cli.scaffold import missing_ignores
from maadd.cli.tables import counted
from maadd.protocol.messages import HistorySettings
from maadd_worker.history.choice import program_reason
from maadd_worker.history.command import GitTimeout, run_git
from maadd_worker.history.external import UNDERWAY
from maadd_worker.history.git_dir import GitDir, locate, read_local_config
from maadd_worker.history.inspection import changed_files
from maadd_worker.history.outcome import GitFailure

_WITH_HISTORY = ("audit", "batch", "snapshot")


def checks(
    root: str, history: HistorySettings, author: tuple[str, str], record_paths: Sequence[str]
) -> Iterator[Check]:
    """The state of the repository under a history policy; `author` is that of engine commits."""
    mode = history.effective_mode
    try:
        git = locate(root)
    except GitFailure as failure:
        yield problem("repository", failure.message, "repair or remove the entry .git")
        return
    if git is None:
        if mode in _WITH_HISTORY:
            yield problem("repository", f"history mode {mode} needs one", "maad init makes it")
        else:
            yield ok("repository", f"none; history mode {mode} needs none")
        return
    try:
        yield from _repository(git, history, record_paths)
    except (GitFailure, GitTimeout) as failure:
        yield problem("repository", str(failure), "see what `git status` says there")
        return
    name, email = author
    if not name or not email:
        advice = "set MAAD_COMMIT_AUTHOR_NAME and MAAD_COMMIT_AUTHOR_EMAIL"
        yield problem("identity", "the author of commits has no name or address", advice)
    else:
        yield ok("identity", f"commits are by {name} <{email}>")
    ignores = missing_ignores(root)
    if ignores:
        text = f".gitignore does not name {', '.join(ignores)}"
        yield warning("ignored files", text, "add it: the index is no part of the history")


def _repository(
    git: GitDir, history: HistorySettings, record_paths: Sequence[str]
) -> Iterator[Check]:
    mode = history.effective_mode
    opened = run_git(git.root, ["rev-parse", "--git-dir"])
    if opened.status != 0:
        text = opened.complaint
        advice = f"git config --global --add safe.directory {git.root}"
        if "dubious ownership" not in text:
            advice = "see what `git status` says there"
        yield problem("repository", text, advice)
        return
    reason = program_reason(read_local_config(git))
    how = f"; the git program makes the commits, because {reason}" if reason else ""
    yield ok("repository", f"history mode {mode}{how}")
    yield _head(git)
    underway = [name for name in UNDERWAY if os.path.lexists(os.path.join(git.path, name))]
    if underway:
        what = "a merge" if "MERGE_HEAD" in underway else "a rebase, revert or cherry-pick"
        text = f"{what} is under way ({', '.join(underway)})"
        yield warning("work in hand", text, "finish or abort it; records may hold conflict marks")
    folders = [path for path in record_paths if os.path.isdir(os.path.join(git.root, path))]
    try:
        changed = changed_files(git.root, folders or ["_registry"])
    except GitTimeout:
        yield warning("uncommitted", "git status gave no answer in time", "run it by hand")
        return
    except GitFailure as failure:
        yield problem("uncommitted", f"git status: {failure.message}", _advice_on(failure.message))
        return
    if changed:
        text = f"{counted(len(changed), 'record file')} not as in HEAD: {some(sorted(changed))}"
        advice = "commit them by hand, or set external_edits: commit for the project"
        if history.external_edits == "commit":
            advice = "a server commits those that are records, once no merge, rebase or detached "
            advice += "HEAD is in the way; commit others by hand"
        yield (
            warning("uncommitted", text, advice)
            if mode in _WITH_HISTORY
            else ok("uncommitted", text)
        )
    else:
        yield ok("uncommitted", "no record file differs from HEAD")


def _advice_on(complaint: str) -> str:
    """What to do about a failure of `git status`."""
    if "index file" in complaint or "bad index" in complaint or "index uses" in complaint:
        return "move .git/index away, then git reset makes it anew; no file is touched"
    return "repair it as Git says; git fsck tells more"


def _head(git: GitDir) -> Check:
    branch = run_git(git.root, ["symbolic-ref", "--quiet", "--short", "HEAD"])
    commit = run_git(git.root, ["rev-parse", "--quiet", "--verify", "HEAD"])
    name = branch.stdout.decode("utf-8", "replace").strip()
    if branch.status != 0:
        text = "HEAD is detached: commits are on no branch"
        return warning("branch", text, "git switch <branch>, before the commits are lost")
    if commit.status != 0:
        return ok("branch", f"{name}, without a commit yet")
    return ok("branch", name)
