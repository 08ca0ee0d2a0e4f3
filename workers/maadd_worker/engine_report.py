"""Parts of the engine's report in `maad_health` (spec 03 §6.3)."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.schema.model import ModelRefresh


def model_advisories(refresh: ModelRefresh) -> list[dict[str, Any]]:
    """What loading the model had to say, and what refuses types since an edit: once each, with the
    type where it is about one."""
    advisories = [msgspec.to_builtins(one) for one in refresh.model.advisories]
    told: dict[tuple[str, str], dict[str, Any]] = {}
    for name, errors in refresh.refused.items():
        for error in errors:
            before = told.get((error.code, error.message))
            if before is not None:
                before.pop("type", None)
                continue
            advisory = {"code": error.code, "message": error.message, "type": name}
            told[error.code, error.message] = advisory | _place(error)
    return [*advisories, *told.values()]


def _place(error: MaadError) -> dict[str, Any]:
    if error.location is None:
        return {}
    return {"file": error.location.file, "line": error.location.line}


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
