"""Reading the entries of instance.yaml, every problem collected (spec 04 §2.1, §2.2)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from maadd.config.rules import EXTERNAL_EDITS, HISTORY_MODES, MAX_SAFE_INTEGER
from maadd.protocol.errors import MaadError, MaadErrors
from maadd.protocol.roles import ROLE_NAMES, Role, parse_role
from maadd.protocol.suggestion import nearest

PROJECT_NAME = re.compile(r"[a-z][a-z0-9_-]*", re.ASCII)
"""What a project may be called; match it whole."""

_TOP_KEYS = ("name", "projects")
_ENTRY_KEYS = (
    "name",
    "path",
    "role",
    "description",
    "history_mode",
    "history_options",
    "external_edits",
)
_OPTION_KEYS = ("max_writes", "max_delay_ms")


class ProjectEntry(msgspec.Struct, frozen=True):
    """An entry that breaks no rule by itself; `path` is absolute."""

    name: str
    path: str
    role: Role
    description: str | None = None
    history_mode: str | None = None
    max_writes: int | None = None
    max_delay_ms: int | None = None
    external_edits: str | None = None


class Problems:
    """What is wrong with one instance file, collected while it is read."""

    def __init__(self, *, lenient: bool) -> None:
        self.lenient = lenient
        self.errors: list[MaadError] = []
        self.warnings: list[str] = []

    def invalid(self, problem: str) -> None:
        """Records a broken rule."""
        self.errors.append(MaadError("INSTANCE_CONFIG_INVALID", problem))

    def unknown_keys(self, where: str, mapping: Mapping[str, Any], known: tuple[str, ...]) -> None:
        """Records keys outside `known`; in lenient mode they are only warned of."""
        for key in mapping:
            if key in known:
                continue
            near = nearest(key, known)
            hint = f"did you mean {near!r}?" if near else f"known are {', '.join(known)}"
            problem = f"{where}: unknown key {key!r}, {hint}"
            if self.lenient:
                self.warnings.append(f"{problem}; it is ignored")
            else:
                self.invalid(problem)

    def raise_any(self) -> None:
        """Raises MaadErrors when there are errors."""
        if self.errors:
            raise MaadErrors(self.errors)


def read_entries(document: Any, root: str, problems: Problems) -> tuple[str, list[ProjectEntry]]:
    """The instance's name and its valid entries; relative paths start at `root`."""
    if document is None:
        document = {}
    if not isinstance(document, dict):
        problems.invalid("the file must be a mapping with the keys name and projects")
        problems.raise_any()
    problems.unknown_keys("top level", document, _TOP_KEYS)
    name = document.get("name")
    if not isinstance(name, str) or not name:
        problems.invalid("name: a non-empty string is required")
        name = ""
    projects = document.get("projects")
    if not isinstance(projects, list) or not projects:
        problems.invalid("projects: a list with at least one entry is required")
        problems.raise_any()
    entries: list[ProjectEntry] = []
    names: set[str] = set()
    for position, raw in enumerate(projects):
        where = f"projects[{position}]"
        if not isinstance(raw, dict):
            problems.invalid(f"{where}: must be a mapping, not {_shown(raw)}")
            continue
        entry = _read_entry(raw, where, root, problems)
        taken = raw.get("name")
        if isinstance(taken, str) and taken in names:
            problems.invalid(f"{where}.name: {taken!r} is already taken")
        elif entry is not None:
            entries.append(entry)
        if isinstance(taken, str):
            names.add(taken)
    return name, entries


def _read_entry(
    raw: dict[str, Any], where: str, root: str, problems: Problems
) -> ProjectEntry | None:
    """The entry, or None when a problem was recorded."""
    before = len(problems.errors)
    problems.unknown_keys(where, raw, _ENTRY_KEYS)

    name = raw.get("name")
    if not isinstance(name, str) or PROJECT_NAME.fullmatch(name) is None:
        problems.invalid(
            f"{where}.name: {_shown(name)} is not accepted; a lower-case letter, then lower-case "
            "letters, digits, '_' and '-'"
        )
    path = raw.get("path")
    if not isinstance(path, str) or not path or "\0" in path:
        problems.invalid(f"{where}.path: a non-empty path is required")
    role_text = _optional(raw, "role", Role.READER.text)
    role = parse_role(role_text) if isinstance(role_text, str) else None
    if role is None:
        problems.invalid(f"{where}.role: {_shown(role_text)} is none of {', '.join(ROLE_NAMES)}")
    description = raw.get("description")
    if description is not None and not isinstance(description, str):
        problems.invalid(f"{where}.description: must be a string, not {_shown(description)}")
    mode = raw.get("history_mode")
    if mode is not None and mode not in HISTORY_MODES:
        problems.invalid(
            f"{where}.history_mode: {_shown(mode)} is none of {', '.join(HISTORY_MODES)}"
        )
    edits = raw.get("external_edits")
    if edits is not None and edits not in EXTERNAL_EDITS:
        problems.invalid(
            f"{where}.external_edits: {_shown(edits)} is none of {', '.join(EXTERNAL_EDITS)}"
        )
    options = _read_options(_optional(raw, "history_options", {}), where, problems)
    if len(problems.errors) > before or role is None:
        return None
    return ProjectEntry(
        name=str(name),
        path=os.path.abspath(os.path.join(root, str(path))),
        role=role,
        description=description,
        history_mode=mode,
        max_writes=options.get("max_writes"),
        max_delay_ms=options.get("max_delay_ms"),
        external_edits=edits,
    )


def _read_options(options: Any, where: str, problems: Problems) -> dict[str, int]:
    if not isinstance(options, dict):
        problems.invalid(f"{where}.history_options: must be a mapping, not {_shown(options)}")
        return {}
    accepted: dict[str, int] = {}
    for key, value in options.items():
        place = f"{where}.history_options.{key}"
        if key not in _OPTION_KEYS:
            problems.invalid(f"{place}: unknown option; known are {', '.join(_OPTION_KEYS)}")
        elif (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not 1 <= value <= MAX_SAFE_INTEGER
            or value != int(value)
        ):
            problems.invalid(f"{place}: {_shown(value)} is no positive whole number")
        else:
            accepted[key] = int(value)
    return accepted


def _optional(raw: Mapping[str, Any], key: str, default: Any) -> Any:
    """The value of `key`; an empty one (`key:`) counts as absent."""
    value = raw.get(key)
    return default if value is None else value


def _shown(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
