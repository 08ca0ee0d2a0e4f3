"""The automatic tags of mode `snapshot` (spec 03 §7.3)."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from maadd.protocol.messages import WorkerSettings
from maadd_worker.history.git_dir import GitDir, locate
from maadd_worker.history.outcome import GitFailure
from maadd_worker.history.refs import TAG_PREFIX, create_tag
from maadd_worker.history.store import engine_person


def snapshot_name(milliseconds: int) -> str:
    """The tag of a boundary made at a time, in milliseconds since 1970."""
    moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
    return f"{TAG_PREFIX}{moment:%Y-%m-%d-%H-%M-%S}-{milliseconds % 1000:03}"


class SnapshotTags:
    """Names and makes the tags of one project; used from the writer's thread."""

    __slots__ = ("_last_ms", "_root", "_settings")

    def __init__(self, root: str, settings: WorkerSettings) -> None:
        self._root = root
        self._settings = settings
        self._last_ms = 0

    def next_name(self) -> str:
        """A name for now, which no other boundary has."""
        self._last_ms = max(time.time_ns() // 1_000_000, self._last_ms + 1)
        return snapshot_name(self._last_ms)

    def attach(self, name: str, sha: str, writes: int, *, timeout_s: float) -> None:
        """Make the tag, unless it is there. Raises GitFailure GIT_TAG_FAILED."""
        create_tag(
            self._git_dir(),
            name,
            sha,
            f"Snapshot of {writes} write{'s' if writes != 1 else ''}",
            engine_person(self._settings),
            int(time.time()),
            timeout_s=timeout_s,
        )

    def _git_dir(self) -> GitDir:
        git_dir = locate(self._root)
        if git_dir is None:
            raise GitFailure(
                "GIT_NOT_INITIALIZED", "there is no Git repository at the project root any more"
            )
        return git_dir
