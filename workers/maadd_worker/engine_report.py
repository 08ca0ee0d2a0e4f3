"""Parts of the engine's report in `maad_health` (spec 03 §6.3)."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.schema.model import ModelRefresh


def model_advisories(refresh: ModelRefresh) -> list[dict[str, Any]]:
    """What loading the model had to say, and the types that are refused since an edit."""
    advisories = [msgspec.to_builtins(one) for one in refresh.model.advisories]
    for name, errors in refresh.refused.items():
        advisories += [
            {"code": error.code, "message": error.message, "type": name} for error in errors
        ]
    return advisories


def empty_advisories(files: int | None, *, read_only: bool) -> list[dict[str, Any]]:
    """Why nothing is served and no file followed, while an index is empty over so many files."""
    if files is None:
        return []
    error = index_empty(files, read_only=read_only)
    return [{"code": error.code, "message": f"{error.message}; until then no file is followed"}]


def free_mb(path: str) -> int | None:
    """Free space for this user on the disk of a folder; None when it cannot be told."""
    try:
        free = os.statvfs(path)
    except OSError:
        return None
    return free.f_bavail * free.f_frsize // (1024 * 1024)


def index_empty(files: int, *, read_only: bool) -> MaadError:
    """INDEX_EMPTY over so many Markdown files, with what to do about it."""
    advice = (
        "this read-only project cannot rebuild it"
        if read_only
        else "run maad_reindex, or `maad reindex` in the project folder"
    )
    return MaadError(
        "INDEX_EMPTY",
        f"the index of {files} Markdown files is empty or was never finished; {advice}",
        {"onDiskMarkdownFiles": files},
    )
