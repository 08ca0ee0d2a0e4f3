"""From the watching thread to the writer: files that may have changed.

A finding is a hint. What it says is judged again when the writer takes it: by the file's
content, or by its absence.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Literal

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.index.documents import FileIdentity

Evidence = Literal["seen", "absent", "deleted"]
"""What a path was found by: a file that was there; the absence of one from a folder that was read
completely and holds others; an event that told of its deletion. A file that was `seen` and is not
there any more proves nothing."""

_WEIGHT: dict[Evidence, int] = {"seen": 0, "absent": 1, "deleted": 2}

_REMEMBERED_FAILURES = 1000


class Finding(msgspec.Struct, frozen=True):
    """A project-relative path to look at, and how it was found."""

    path: str
    evidence: Evidence


class FailedFile(msgspec.Struct, frozen=True):
    """Why a file gave no record; with stat values, it is not read again while it has them."""

    file: FileIdentity | None
    error: MaadError


class Findings:
    """The backlog of the writer, and the files that have failed. Usable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, Evidence] = {}
        self._taken = 0
        self._model_changed = False
        self._failed: dict[str, FailedFile] = {}

    @property
    def pending(self) -> int:
        """Paths that wait, or that the writer has in hand."""
        return len(self._waiting) + self._taken

    def failed(self, path: str) -> FailedFile | None:
        """Why the file at a path could not be taken over."""
        return self._failed.get(path)

    def failures(self) -> list[tuple[str, FailedFile]]:
        """The files that could not be taken over; of very many, the latest."""
        with self._lock:
            return list(self._failed.items())

    def retry_duplicates(self) -> None:
        """A record is gone: another file may have its id now."""
        twins = [path for path, one in self.failures() if one.error.code == "DUPLICATE_DOC_ID"]
        self.add(twins, "seen")

    def forget_failures(self) -> None:
        """Have every file looked at again."""
        with self._lock:
            self._failed.clear()

    def put_back(self, findings: Iterable[Finding]) -> None:
        """Writer: what was taken could not be dealt with."""
        with self._lock:
            for finding in findings:
                self._waiting.setdefault(finding.path, finding.evidence)

    def add(self, paths: Iterable[str], evidence: Evidence) -> bool:
        """Add paths, each with its best evidence; whether there were new ones."""
        with self._lock:
            before = len(self._waiting)
            for path in paths:
                known = self._waiting.get(path, evidence)
                self._waiting[path] = max(known, evidence, key=_WEIGHT.__getitem__)
            return len(self._waiting) > before

    def note_model_change(self) -> None:
        """The registry or a schema may have changed."""
        self._model_changed = True

    def take_model_change(self) -> bool:
        """Writer: whether the model has to be looked at."""
        changed, self._model_changed = self._model_changed, False
        return changed

    def take(self, limit: int) -> list[Finding]:
        """Writer: the oldest findings; `done` must follow."""
        with self._lock:
            paths = [path for path, _ in zip(self._waiting, range(limit), strict=False)]
            taken = [Finding(path, self._waiting.pop(path)) for path in paths]
            self._taken = len(taken)
            return taken

    def done(self, failed: dict[str, FailedFile], settled: Iterable[str]) -> None:
        """Writer: what was taken is dealt with; some of it `failed`, the rest is in order."""
        with self._lock:
            self._taken = 0
            for path in settled:
                self._failed.pop(path, None)
            for path, failure in failed.items():
                self._failed.pop(path, None)
                self._failed[path] = failure
            while len(self._failed) > _REMEMBERED_FAILURES:
                del self._failed[next(iter(self._failed))]
