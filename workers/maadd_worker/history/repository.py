"""Creates the Git repository of a new project (spec 03 §9.6)."""

from __future__ import annotations

import os
from collections.abc import Sequence

from maadd.protocol.errors import MaadError
from maadd.protocol.messages import WorkerSettings
from maadd_worker.history.choice import choose_store
from maadd_worker.history.command import TIMEOUT_S, GitResult, GitTimeout, run_git
from maadd_worker.history.git_dir import locate
from maadd_worker.history.message import INIT_SUMMARY
from maadd_worker.history.outcome import CommitRequest, GitFailure
from maadd_worker.history.store import change_of

_SETTINGS = (("core.looseCompression", "0"), ("gc.auto", "1000"))


def init_repository(root: str, settings: WorkerSettings, paths: Sequence[str]) -> str | None:
    """Make `root` a repository, unless it is one, and commit `paths` as its scaffold.

    Gives the full id of the commit, None when there was nothing to commit. A new repository
    stores loose objects uncompressed, which makes commits in large folders cheap, and packs
    them sooner than Git would by itself. Raises GIT_ERROR.
    """
    try:
        if not os.path.lexists(os.path.join(root, ".git")):
            _checked(run_git(root, ["init", "--quiet"]))
            for key, value in _SETTINGS:
                _checked(run_git(root, ["config", key, value]))
        git_dir = locate(root)
        if git_dir is None:
            raise GitFailure("GIT_UNKNOWN_ERROR", "git init left no repository")
        store, _ = choose_store(git_dir, None)
        try:
            request = CommitRequest("init", "", "", "", INIT_SUMMARY, tuple(paths))
            store.prepare(patient=True)
            [result] = store.commit([change_of(request, settings)], timeout_s=TIMEOUT_S)
            store.settle(force=True)
        finally:
            store.close()
        if result.failure is not None:
            raise result.failure
    except GitTimeout as failure:
        raise MaadError("GIT_ERROR", str(failure), {"reason": "timeout"}) from failure
    except GitFailure as failure:
        raise MaadError("GIT_ERROR", failure.message, failure.details) from failure
    return result.sha


def _checked(result: GitResult) -> None:
    if result.status != 0:
        raise GitFailure("GIT_UNKNOWN_ERROR", result.complaint)
