"""Where the Git data of a project live, and what the repository's own configuration asks for.

Only a `.git` entry at the project root itself counts (spec 01 §1.1); it may be a directory
or, in a linked worktree or submodule, a file that names one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec
import pygit2

from maadd_worker.history.outcome import GitFailure


class GitDir(msgspec.Struct, frozen=True):
    """Absolute paths: project root, Git directory (HEAD, index), shared directory (objects).

    `real` are those of root and shared directory as others know them.
    """

    root: str
    path: str
    common: str
    real: tuple[str, str]

    @property
    def is_moved(self) -> bool:
        """Whether the root is not at its path any more."""
        try:
            return not os.path.samefile(self.root, self.real[0])
        except OSError:
            return True

    def scrub(self, text: str) -> str:
        """A message of Git without the absolute paths of this machine."""
        for directory in (self.root, self.real[0], os.path.dirname(self.real[1])):
            text = text.replace(directory + os.sep, "")
        return text


class LocalConfig(msgspec.Struct, frozen=True):
    """The settings that the repository itself, not its user, has made."""

    sign: bool = False
    sign_tags: bool = False
    hooks: bool = False
    hooks_path: str | None = None
    object_format: str = "sha1"
    ref_storage: str = "files"
    loose_compression: int = 1
    fsync_objects: bool = False


def locate(root: str) -> GitDir | None:
    """The Git directory of the project at `root`, None when there is no `.git` there.

    Raises GitFailure GIT_UNKNOWN_ERROR for a `.git` that leads nowhere or is unreadable.
    """
    entry = os.path.join(root, ".git")
    try:
        if os.path.isdir(entry):
            path = entry
        elif os.path.isfile(entry):
            path = _followed(root, entry)
        else:
            return None
        common = _common(path)
        return GitDir(root, path, common, (os.path.realpath(root), os.path.realpath(common)))
    except OSError as failure:
        raise GitFailure(
            "GIT_UNKNOWN_ERROR", f"cannot read .git: {os.strerror(failure.errno or 0)}"
        ) from failure


def _common(path: str) -> str:
    """The directory that linked worktrees share."""
    try:
        with open(os.path.join(path, "commondir"), encoding="utf-8") as file:
            return os.path.normpath(os.path.join(os.path.realpath(path), file.read().strip()))
    except FileNotFoundError:
        return path


def _followed(root: str, entry: str) -> str:
    with open(entry, encoding="utf-8", errors="surrogateescape") as file:
        key, _, target = file.read(4096).partition(":")
    path = os.path.normpath(os.path.join(os.path.realpath(root), target.strip()))
    if key != "gitdir" or not os.path.isdir(path):
        raise GitFailure(
            "GIT_UNKNOWN_ERROR",
            "the .git file does not name an existing Git directory; run `git worktree repair` "
            "or `git submodule update` in the project",
        )
    return path


def config_files(git_dir: GitDir) -> Iterator[str]:
    """The configuration files that belong to the repository itself."""
    yield os.path.join(git_dir.common, "config")
    yield os.path.join(git_dir.path, "config.worktree")


def config_stamp(git_dir: GitDir) -> tuple[int, ...]:
    """Changes when one of the repository's configuration files does."""
    stamp: list[int] = []
    for path in config_files(git_dir):
        try:
            status = os.stat(path)
        except OSError:
            stamp += (0, 0)
        else:
            stamp += (status.st_mtime_ns, status.st_size)
    return tuple(stamp)


def read_local_config(git_dir: GitDir) -> LocalConfig:
    """The repository's own settings; GitFailure GIT_UNKNOWN_ERROR when they cannot be read."""
    values: dict[str, str] = {}
    for path in config_files(git_dir):
        if not os.path.exists(path):
            continue
        try:
            for entry in pygit2.Config(path):
                values[entry.name] = entry.value or "true"
        except (pygit2.GitError, OSError, ValueError) as failure:
            raise GitFailure(
                "GIT_UNKNOWN_ERROR", f"the repository's configuration is unreadable: {failure}"
            ) from failure
    compression = values.get("core.loosecompression", values.get("core.compression"))
    return LocalConfig(
        sign=_is_true(values.get("commit.gpgsign")),
        sign_tags=_is_true(values.get("tag.gpgsign")),
        hooks=_is_true(values.get("maad.hooks")),
        hooks_path=values.get("core.hookspath"),
        object_format=values.get("extensions.objectformat", "sha1").lower(),
        ref_storage=values.get("extensions.refstorage", "files").lower(),
        loose_compression=_level(compression),
        fsync_objects=_is_true(values.get("core.fsyncobjectfiles"))
        or _fsyncs_loose_objects(values.get("core.fsync", "")),
    )


def _is_true(value: str | None) -> bool:
    return value is not None and value.strip().lower() in ("true", "yes", "on", "1")


def _level(value: str | None) -> int:
    try:
        level = int(value or "")
    except ValueError:
        level = -1
    return level if 0 <= level <= 9 else LocalConfig().loose_compression


def _fsyncs_loose_objects(value: str) -> bool:
    """Whether a `core.fsync` list ends with loose objects switched on."""
    wanted = False
    for item in value.lower().replace(" ", "").split(","):
        if item in ("all", "objects", "added", "committed", "loose-object"):
            wanted = True
        elif item in ("none", "-all", "-objects", "-loose-object", "-added", "-committed"):
            wanted = False
    return wanted
