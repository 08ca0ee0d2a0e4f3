"""The scaffold of a project folder, and the repository that keeps its history (spec 03 §9.6)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence

from maadd.cli.project_folder import REGISTRY
from maadd.config.settings import Settings
from maadd.protocol.errors import MaadError
from maadd_worker.history.command import GitTimeout, child_environment, run_git
from maadd_worker.history.message import INIT_SUMMARY, format_subject
from maadd_worker.history.outcome import GitFailure
from maadd_worker.instructions.manifest import MANIFEST, load_templates

IGNORED = ("_backend/", "_import/")
"""What never belongs into the history: derived data, and files on their way in."""

POINTERS = ("CLAUDE.md", "AGENTS.md")
"""Files that agents look for by themselves; written once, then the user's (spec 03 §11.4)."""

_FOLDERS = ("_schema/", "_backend/", "_import/")
_TRACKED = (".gitignore", "_registry", "_schema")
_POINTER = """\
# Read MAAD.md first

This folder is a MAADb project: its Markdown records are a database. `MAAD.md` says how to work
with it, `_skills/` holds the guides for larger tasks, `_skills/local/` what this project adds.

Read and write records with the MCP tools of the project's server, not by editing files.

Notes about this project may be added below; no tool ever changes this file.
"""


def make_scaffold(root: str) -> list[str]:
    """Create what is absent of the scaffold in `root`, and `root` itself; what was created.

    Nothing that exists is changed. Raises WRITE_ERROR.
    """
    created = []
    try:
        os.makedirs(root, exist_ok=True)
        for folder in _FOLDERS:
            if not os.path.isdir(os.path.join(root, folder)):
                os.mkdir(os.path.join(root, folder))
                created.append(folder)
        for name, content in _files():
            path = os.path.join(root, name)
            if os.path.lexists(path):
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "xb") as file:
                file.write(content)
            created.append(name)
    except OSError as error:
        raise MaadError(
            "WRITE_ERROR",
            f"{error.filename or root} cannot be created: {error.strerror}; check that folder, or "
            "name another",
        ) from error
    return created


def _files() -> Iterator[tuple[str, bytes]]:
    """Every file of a new project."""
    yield REGISTRY, b"types: {}\n"
    yield ".gitignore", "".join(f"{name}\n" for name in IGNORED).encode()
    for template in load_templates():
        yield template.path, template.content
    for name in POINTERS:
        yield name, _POINTER.encode()


def missing_ignores(root: str) -> list[str]:
    """The folders that the project's `.gitignore` should name and does not."""
    try:
        with open(os.path.join(root, ".gitignore"), encoding="utf-8", errors="replace") as file:
            lines = {line.strip().strip("/") for line in file}
    except FileNotFoundError:
        return list(IGNORED)
    return [name for name in IGNORED if name.strip("/") not in lines]


def has_repository(root: str) -> bool:
    """Whether `root` itself is the root of a working tree; a repository above does not count."""
    return os.path.lexists(os.path.join(root, ".git"))


def make_repository(root: str, settings: Settings, created: Collection[str]) -> str:
    """A new repository in `root` with one commit of the whole scaffold and nothing else.

    `created` is what this run has made: pointers that a person had written are theirs to commit.
    The abbreviated id of the commit. Raises GIT_ERROR.
    """
    pointers = [name for name in POINTERS if name in created]
    names = [*_TRACKED, *(path for _, path in MANIFEST), *pointers]
    tracked = [name for name in names if os.path.lexists(os.path.join(root, name))]
    _git(root, ["init", "--quiet", "--initial-branch=main"])
    # Records are small files written one at a time: speed counts, not the last byte.
    _git(root, ["config", "core.looseCompression", "1"])
    return commit_paths(root, tracked, format_subject("init", "", "", "", INIT_SUMMARY), settings)


def commit_paths(
    root: str, paths: Sequence[str], subject: str, settings: Settings, *, only: bool = False
) -> str:
    """Commit `paths` as they are now; the abbreviated id. Raises GIT_ERROR.

    `only` leaves out what somebody else has staged.
    """
    author = (settings.commit_author_name, settings.commit_author_email)
    identity = {
        f"GIT_{role}_{member}": text
        for role in ("AUTHOR", "COMMITTER")
        for member, text in zip(("NAME", "EMAIL"), author, strict=True)
    }
    _git(root, ["add", "--", *paths])
    scope = ["--only", "--", *paths] if only else []
    _git(root, ["commit", "--quiet", "-m", subject, *scope], identity)
    return _git(root, ["rev-parse", "--short", "HEAD"]).strip()


def _git(root: str, arguments: Sequence[str], identity: dict[str, str] | None = None) -> str:
    try:
        result = run_git(root, arguments, environment=child_environment(root, identity))
    except (GitFailure, GitTimeout) as failure:
        raise MaadError("GIT_ERROR", f"git {arguments[0]}: {failure}") from failure
    if result.status != 0:
        raise MaadError("GIT_ERROR", f"git {arguments[0]} failed: {result.complaint}")
    return result.stdout.decode("utf-8", "replace")
