"""Chooses how commits are made in a repository (design §7)."""

from __future__ import annotations

from maadd_worker.disk.journal import Journal
from maadd_worker.history.git_dir import GitDir, LocalConfig, read_local_config
from maadd_worker.history.libgit2_store import Libgit2Store
from maadd_worker.history.program_store import ProgramStore
from maadd_worker.history.store import Store


def choose_store(git_dir: GitDir, journal: Journal | None) -> tuple[Store, str | None]:
    """The store for a repository, and why it is not the usual one, if so.

    Raises GitFailure for a repository that cannot be opened.
    """
    config = read_local_config(git_dir)
    reason = program_reason(config)
    if reason is None:
        return Libgit2Store.open(git_dir, config, journal), None
    return (
        ProgramStore(git_dir, config, journal),
        f"commits are made by the git program, which takes longer, because {reason}",
    )


def program_reason(config: LocalConfig) -> str | None:
    """Why the git program has to make the commits of a repository; None when it has not."""
    if config.sign:
        return "the repository's configuration asks for signed commits (commit.gpgsign)"
    if config.hooks:
        return "the repository's configuration asks for hooks (maad.hooks)"
    if config.object_format != "sha1":
        return f"the repository's object names are {config.object_format}"
    if config.ref_storage != "files":
        return f"the repository keeps its refs as {config.ref_storage}"
    return None
