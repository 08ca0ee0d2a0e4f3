"""What a tool hands back: the answer's data and what travels beside it (spec 04 §1)."""

from __future__ import annotations

from typing import Any

import msgspec


class Backlog(msgspec.Struct, frozen=True):
    """What an engine still does behind its answers: writes that are not yet in Git, and changed
    files that the index does not show yet."""

    history_writes: int = 0
    changed_files: int = 0


class Advice(msgspec.Struct, frozen=True):
    """One entry of `_meta.warnings`; it never changes `ok` or `data` (spec 02 §1.2)."""

    field: str
    message: str
    code: str
    location: dict[str, Any] | None = None


class Outcome(msgspec.Struct, frozen=True):
    """A success: `data` is anything msgspec can encode as JSON.

    `rows` is the length of the answer's main list, where it has one.
    """

    data: Any
    warnings: tuple[Advice, ...] = ()
    meta: dict[str, Any] | None = None
    rows: int | None = None
    audit: dict[str, Any] | None = None


def with_warnings(
    meta: dict[str, Any] | None, warnings: tuple[Advice, ...]
) -> dict[str, Any] | None:
    """`_meta` with the warnings merged in; None when it would be empty."""
    merged = dict(meta) if meta else {}
    if warnings:
        merged["warnings"] = [msgspec.to_builtins(warning) for warning in warnings]
    return merged or None


def boundary_audit(sha: str | None, tag: str | None = None) -> dict[str, Any]:
    """Audit members of a call that changed the repository and no record (spec 03 §2.6)."""
    members: dict[str, Any] = {
        "doc_id": None,
        "doc_type": None,
        "version_before": None,
        "version_after": None,
        "changed_fields": [],
        "git_commit": sha,
    }
    return members if tag is None else members | {"tag": tag}
