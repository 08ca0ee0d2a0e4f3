"""The instance: which projects one daemon serves (spec 04 §2)."""

from __future__ import annotations

import os
import re
from typing import Any

import msgspec

from maadd.config.entries import Problems, ProjectEntry, read_entries
from maadd.config.history import Advisory, resolve_history
from maadd.config.settings import Settings
from maadd.config.yaml_core import YamlError, load_yaml
from maadd.protocol.encodable import is_broken
from maadd.protocol.errors import MaadError, MaadErrors, SourceLocation
from maadd.protocol.messages import HistorySettings
from maadd.protocol.regular_file import read_regular_file
from maadd.protocol.roles import Role

_OUTSIDE_NAME = re.compile(r"[^a-z0-9_-]")


class ProjectConfig(msgspec.Struct, frozen=True):
    """One served directory; `path` is absolute, `role` its ceiling."""

    name: str
    path: str
    role: Role
    description: str | None
    history: HistorySettings
    advisories: tuple[Advisory, ...] = ()


class Instance(msgspec.Struct, frozen=True):
    """One daemon's configuration.

    `source` is `file` or `synthetic` (single-project mode, without `config_path`). `root`
    is the instance root, home of `_auth/` unless the registry is at `tokens_file`. `projects`
    keeps the file's order. `warnings` are to be logged once.
    """

    name: str
    source: str
    config_path: str | None
    root: str
    projects: dict[str, ProjectConfig]
    warnings: tuple[str, ...] = ()
    tokens_file: str | None = None

    @property
    def tokens_path(self) -> str:
        """Where the token registry of this instance is."""
        return self.tokens_file or os.path.join(self.root, "_auth", "tokens.yaml")


def load_instance(path: str, settings: Settings) -> Instance:
    """The instance that the file at `path` describes.

    Raises MaadErrors with every problem: INSTANCE_CONFIG_NOT_FOUND, FILE_READ_ERROR,
    PARSE_ERROR, INSTANCE_CONFIG_INVALID, GIT_NOT_INITIALIZED.
    """
    config_path = os.path.abspath(path)
    document = _read_document(config_path)
    problems = Problems(lenient=settings.config_lenient)
    root = os.path.dirname(config_path)
    name, entries = read_entries(document, root, problems)
    _check_paths(entries, problems)
    projects: dict[str, ProjectConfig] = {}
    for entry in entries:
        try:
            projects[entry.name] = _project(entry, settings)
        except MaadError as error:
            details = {**(error.details or {}), "project": entry.name}
            problems.errors.append(MaadError(error.code, error.message, details))
    problems.raise_any()
    warnings = tuple(problems.warnings)
    return Instance(name, "file", config_path, root, projects, warnings, settings.tokens_file)


def synthesize_instance(project_dir: str, role: Role, settings: Settings) -> Instance:
    """The instance of single-project mode: `project_dir` as the project `default`.

    Raises MaadErrors of GIT_NOT_INITIALIZED when the environment asks for a mode that needs
    a repository.
    """
    root = os.path.abspath(project_dir)
    label = _OUTSIDE_NAME.sub("-", os.path.basename(root).lower()) or "default"
    try:
        project = _project(ProjectEntry("default", root, role), settings)
    except MaadError as error:
        raise MaadErrors([error]) from None
    return Instance(f"{label}-legacy", "synthetic", None, root, {"default": project})


def refuse_broken_path(path: str) -> None:
    """INSTANCE_CONFIG_INVALID for a folder whose name is no text: SQLite opens no file there."""
    if is_broken(path):
        raise MaadError(
            "INSTANCE_CONFIG_INVALID",
            f"the path {path!a} of the project is not valid UTF-8; rename the folder",
        )


def _project(entry: ProjectEntry, settings: Settings) -> ProjectConfig:
    refuse_broken_path(entry.path)
    history, advisories = resolve_history(
        entry.name,
        configured=entry.history_mode,
        default=settings.history_mode_default,
        has_git=os.path.lexists(os.path.join(entry.path, ".git")),
        max_writes=entry.max_writes,
        max_delay_ms=entry.max_delay_ms,
        external_edits=entry.external_edits or settings.external_edits,
    )
    return ProjectConfig(entry.name, entry.path, entry.role, entry.description, history, advisories)


def _read_document(config_path: str) -> Any:
    name = os.path.basename(config_path)
    try:
        data, _status = read_regular_file(config_path)
    except (FileNotFoundError, NotADirectoryError):
        problem = f"there is no instance file {name!r} at the given place; check --instance"
        raise MaadErrors([MaadError("INSTANCE_CONFIG_NOT_FOUND", problem)]) from None
    except OSError as error:
        problem = f"instance file {name!r} cannot be read: {error.strerror}"
        raise MaadErrors([MaadError("FILE_READ_ERROR", problem)]) from None
    try:
        return load_yaml(_first_document(data.decode("utf-8-sig")))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        failure = YamlError(f"invalid UTF-8 at byte {error.start}", line, column)
    except YamlError as error:
        failure = error
    raise MaadErrors(
        [
            MaadError(
                "PARSE_ERROR",
                f"{name}: {failure}",
                {"file": name, "line": failure.line, "col": failure.column},
                location=SourceLocation(name, failure.line, failure.column),
            )
        ]
    )


def _first_document(text: str) -> str:
    """The text up to the `---` line that ends the first document; one may also lead it."""
    begun = False
    offset = 0
    for line in text.split("\n"):
        if begun and line.rstrip() == "---":
            return text[:offset]
        begun = begun or (line.strip() != "" and line.lstrip()[0] not in "#%")
        offset += len(line) + 1
    return text


def _check_paths(entries: list[ProjectEntry], problems: Problems) -> None:
    """No two projects may share a directory: two workers would own one index."""
    real = [(entry, os.path.realpath(entry.path)) for entry in entries]
    for position, (entry, path) in enumerate(real):
        if not os.path.isdir(path):
            problems.warnings.append(
                f"project {entry.name!r}: there is no directory {os.path.basename(entry.path)!r} "
                "where its path leads"
            )
        for other, other_path in real[:position]:
            if path == other_path:
                relation = "is the same as"
            elif _holds(other_path, path):
                relation = "lies inside"
            elif _holds(path, other_path):
                relation = "contains"
            else:
                continue
            problems.invalid(
                f"the directory of project {entry.name!r} {relation} that of project "
                f"{other.name!r}; projects must not overlap"
            )


def _holds(directory: str, path: str) -> bool:
    return path.startswith(directory.rstrip(os.sep) + os.sep)
