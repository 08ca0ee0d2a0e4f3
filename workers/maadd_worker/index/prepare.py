"""Reading files and making their rows, without the index (spec 01 §14.2).

What is needed comes in and what was made goes out as values, so that this part of a pass, the
larger one, can run in another process.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from maadd.protocol.errors import MaadError, MaadErrors, SourceLocation, errors_of
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.index.documents import FileIdentity
from maadd_worker.index.new_document import NewDocument, new_document
from maadd_worker.index.plan import TypePlans
from maadd_worker.markdown.document import parse_document
from maadd_worker.markdown.frontmatter import content_hash

_SETTLED_NS = 2_000_000_000
"""A file younger than this may change again without another mtime."""


COLLECTION_THRESHOLD = 50_000
"""For `gc.set_threshold` while many files are prepared."""


class Limits(msgspec.Struct, frozen=True):
    """The caps on one file, in bytes and annotations; 0 is no cap. `texts` asks for the texts of
    its blocks too."""

    max_bytes: int
    max_annotations: int
    texts: bool = False


class FileTask(msgspec.Struct, frozen=True, array_like=True):
    """A file to look at. Content with the hash `current` needs no new rows."""

    path: str
    current: str | None


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """A MaadError as a value."""

    code: str
    message: str
    details: dict[str, Any] | None
    location: SourceLocation | None

    def error(self) -> MaadError:
        return MaadError(self.code, self.message, self.details, location=self.location)


class PreparedFile(msgspec.Struct, frozen=True, array_like=True):
    """What a file gave: a `record`, the `same` content as the task said, a failure, or nothing
    because it has vanished. `file` is None when the content may still change unseen."""

    path: str
    state: Literal["record", "same", "failed", "gone"]
    file: FileIdentity | None = None
    record: NewDocument | None = None
    failures: tuple[Failure, ...] = ()
    same_hash: str | None = None


def prepare_files(
    root: ProjectRoot, plans: TypePlans, limits: Limits, tasks: Sequence[FileTask]
) -> list[PreparedFile]:
    """Look at every file; what is wrong with one is part of the result."""
    return [_prepare(root, plans, limits, task) for task in tasks]


def _prepare(root: ProjectRoot, plans: TypePlans, limits: Limits, task: FileTask) -> PreparedFile:
    path = task.path
    now_ns = time.time_ns()
    try:
        content = root.read(path, limits.max_bytes or None)
    except MaadError as error:
        if error.code == "FILE_READ_ERROR" and not root.exists(path):
            return PreparedFile(path, "gone")
        return _failed(path, error)
    settled = now_ns - content.mtime_ns > _SETTLED_NS
    file = FileIdentity(content.mtime_ns, content.size, content.inode) if settled else None
    if task.current is not None and content_hash(content.data) == task.current:
        return PreparedFile(path, "same", file, same_hash=task.current)
    try:
        parsed = parse_document(content.data, path, max_annotations=limits.max_annotations)
        record = new_document(plans, path, parsed, file, texts=limits.texts)
        return PreparedFile(path, "record", file, record)
    except (MaadError, MaadErrors) as failure:
        return _failed(path, failure)


def _failed(path: str, failure: MaadError | MaadErrors) -> PreparedFile:
    failures = tuple(
        Failure(error.code, error.message, error.details, error.location)
        for error in errors_of(failure)
    )
    return PreparedFile(path, "failed", failures=failures)
