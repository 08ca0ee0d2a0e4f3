"""Reads the reference's `_backend/journal.json` so that it can be taken over (spec 01 §15.1)."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from maadd.protocol.errors import MaadError

_NAME = "_backend/journal.json"
_STATUSES = ("pending", "file_written", "indexed", "committed")


class _Identity(msgspec.Struct, rename="camel", omit_defaults=True):
    role: str | None = None
    token_id: str | None = None
    agent_id: str | None = None
    user_id: str | None = None


class _Commit(msgspec.Struct, rename="camel"):
    action: str
    doc_id: str
    doc_type: str
    detail: str
    summary: str
    files: list[str]
    identity: _Identity | None = None


class _Entry(msgspec.Struct, rename="camel"):
    id: str
    op: str
    doc_id: str
    file_path: str
    timestamp: str
    status: str
    temp_path: str | None = None
    old_hash: str | None = None
    new_hash: str | None = None
    files: list[str] | None = None
    commit: _Commit | None = None
    git_boundary_sha: str | None = None
    snapshot_tag: str | None = None


def read_reference_journal(root: str, path: str) -> list[dict[str, Any]]:
    """The entries of the file as keyword arguments of JournalEntry, paths made relative.

    Raises BACKEND_ERROR for anything that is not an array of such entries.
    """
    try:
        with open(path, "rb") as file:
            entries = msgspec.json.decode(file.read(), type=list[_Entry])
        return [_converted(os.path.realpath(root), entry) for entry in entries]
    except (OSError, ValueError) as failure:
        raise MaadError(
            "BACKEND_ERROR",
            f"{_NAME} cannot be taken over ({failure}) and was left as it is. "
            "Repair it, or move it away to start without it",
        ) from failure


def _converted(root: str, entry: _Entry) -> dict[str, Any]:
    if entry.op not in ("create", "update", "delete") or entry.status not in _STATUSES:
        raise ValueError(f"entry {entry.id!r} has op {entry.op!r} and status {entry.status!r}")
    path = _relative(root, entry.file_path)
    old_path = None
    named = entry.files or (entry.commit.files if entry.commit else ())
    others = [other for file in named if (other := _relative(root, file)) != path]
    if entry.op == "delete" and others:
        path, old_path = others[0], path  # a soft delete: the tombstone, and where it was
    return {
        "id": entry.id,
        "op": entry.op,
        "doc_id": entry.doc_id,
        "doc_type": entry.commit.doc_type if entry.commit else "unknown",
        "path": path,
        "old_path": old_path,
        "temp_path": _relative(root, entry.temp_path) if entry.temp_path else None,
        "old_hash": entry.old_hash,
        "new_hash": entry.new_hash,
        "status": entry.status,
        "created_at": entry.timestamp,
        "commit": _commit_json(root, entry.commit) if entry.commit else None,
        "boundary_sha": entry.git_boundary_sha,
        "snapshot_tag": entry.snapshot_tag,
    }


def _commit_json(root: str, commit: _Commit) -> str:
    request = msgspec.to_builtins(commit)
    request["paths"] = [_relative(root, file) for file in request.pop("files")]
    if commit.identity is None:
        del request["identity"]
    return msgspec.json.encode(request).decode()


def _relative(root: str, path: str) -> str:
    relative = os.path.relpath(os.path.join(root, path), root)
    if relative == os.curdir or relative.split(os.sep, 1)[0] == os.pardir:
        raise ValueError(f"{os.path.basename(path)!r} is not inside the project")
    return relative
