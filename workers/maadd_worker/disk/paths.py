"""Which paths are acceptable, judged by their text and by where they lead (spec 01 §16)."""

from __future__ import annotations

import os
import re

from maadd.protocol.errors import MaadError

_SEGMENT = r"[A-Za-z0-9_-][A-Za-z0-9._-]*"
_SAFE_RELATIVE = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*/?")
_SAFE_SCHEMA_REF = re.compile(r"[a-z][a-z0-9_]*\.v[1-9][0-9]*")


def is_safe_relative(path: str) -> bool:
    """Whether a configured path is relative, without `.`, `..`, dot-names, blanks or `\\`."""
    return _SAFE_RELATIVE.fullmatch(path) is not None


def is_safe_schema_ref(text: str) -> bool:
    """Whether `text` names a schema version, such as `task.v2`."""
    return _SAFE_SCHEMA_REF.fullmatch(text) is not None


def segments(rel: str) -> list[str]:
    """The names of a project-relative path, `.` and repeated `/` dropped.

    Raises PATH_OUTSIDE_PROJECT for a path that is absolute, holds a NUL, or climbs above the
    root by its text. The root itself has no segments.
    """
    if rel.startswith("/") or "\0" in rel:
        raise outside_project(rel)
    names: list[str] = []
    for name in rel.split("/"):
        if name == "..":
            if not names:
                raise outside_project(rel)
            names.pop()
        elif name not in ("", "."):
            names.append(name)
    return names


def is_within(root: str, target: str) -> bool:
    """Whether the normalized absolute `target` is `root` or lies below it, by text alone."""
    return target == root or target.startswith(root if root.endswith("/") else f"{root}/")


def is_really_within(root: str, target: str) -> bool:
    """Whether `target` lies in `root` once links of both are resolved; must exist."""
    try:
        return is_within(os.path.realpath(root, strict=True), os.path.realpath(target, strict=True))
    except (OSError, ValueError):
        return False


def outside_project(rel: str) -> MaadError:
    """PATH_OUTSIDE_PROJECT; the message keeps an absolute path to itself."""
    shown = "an absolute path" if rel.startswith("/") else repr(rel[:200])
    return MaadError(
        "PATH_OUTSIDE_PROJECT",
        f"{shown} leaves the project; give a path inside it, links included",
    )
