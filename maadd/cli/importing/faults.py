"""Faults of an import that are none of its items: what stops it, and what to do then."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

from maadd.protocol.errors import MaadError, MaadErrors, errors_of

_OF_ITEMS = frozenset(
    (
        "CONTENT_DIGEST_MISMATCH",
        "DOC_TOO_LARGE",
        "DUPLICATE_DOC_ID",
        "FILE_NOT_FOUND",
        "FRONTMATTER_GUARD",
        "INVALID_ARGS",
        "INVALID_DOC_ID",
        "INVALID_FIELDS",
        "PARSE_ERROR",
        "PATH_OUTSIDE_PROJECT",
        "VALIDATION_FAILED",
        "VERSION_CONFLICT",
        "YAML_PROFILE_VIOLATION",
    )
)
_OF_NAMES = frozenset(("EEXIST", "EINVAL", "EISDIR", "ELOOP", "ENAMETOOLONG", "ENOTDIR"))
"""Errors of the system that the name of one file may cause."""

_OF_PROJECTS = frozenset(("BACKEND_ERROR", "FILE_READ_ERROR", "GIT_ERROR", "WRITE_ERROR"))

_AGAIN = "run the import again: it goes on where it was"
_CAUSES = (
    (
        ("ENOSPC", "EDQUOT"),
        ("disk is full", "No space left", "quota exceeded"),
        "free some space, then",
    ),
    (("EROFS",), ("readonly database", "Read-only file system"), "make the project writable, then"),
    (
        ("EACCES", "EPERM"),
        ("Permission denied", "unable to open"),
        "give the project to this user (`maad doctor` names what is closed), then",
    ),
    (("EIO",), ("disk I/O",), "look at the disk, then"),
    (("EMFILE", "ENFILE"), (), "raise the limit of open files, then"),
    ((), ("database is locked",), "end whatever holds the database, then"),
)
"""Names of system errors, words of a message, and what to do about them."""


def is_of_item(failure: Mapping[str, Any]) -> bool:
    """Whether an entry of `failed` of a bulk tool says something about its item alone."""
    if failure["code"] in ("WRITE_ERROR", "FILE_READ_ERROR"):
        return (failure.get("details") or {}).get("errno") in _OF_NAMES
    return failure["code"] in _OF_ITEMS


def with_next_step(failure: MaadError | MaadErrors) -> MaadErrors:
    """The failures of an import that could not go on, each with what to do about its cause;
    what is said already is not said again."""
    found: dict[str, MaadError] = {}
    for error in errors_of(failure):
        step = _next_step(error)
        message = error.message
        if step is not None:
            message = f"{message.partition('; ')[0]}; {step} {_AGAIN}"
        shown = MaadError(error.code, message, error.details, location=error.location)
        found.setdefault(f"{shown}", shown)
    return MaadErrors(list(found.values()))


def _next_step(error: MaadError) -> str | None:
    number = (error.details or {}).get("errno")
    # Without the number of the system, what cannot be read belongs to the source.
    if error.code not in _OF_PROJECTS or (error.code == "FILE_READ_ERROR" and number is None):
        return None
    name = errno.errorcode.get(number) if isinstance(number, int) else number
    for names, words, step in _CAUSES:
        if name in names or any(word in error.message for word in words):
            return step
    return None if "; " in error.message else "mend that, then"
