"""What the index knows of files, for telling without reading which of them changed."""

from __future__ import annotations

from collections.abc import Iterable

import apsw
import msgspec

from maadd_worker.disk.scan import MarkdownFile
from maadd_worker.index.plan import TypePlans

_KNOWN_FILES = """
SELECT file_path, doc_type, file_hash, model_fingerprint, indexed_at, mtime_ns, size, inode
FROM documents WHERE deleted = 0 AND file_path IN (SELECT value FROM json_each(?))
"""


class KnownFile(msgspec.Struct, frozen=True):
    """The live row that the index has for a path."""

    path: str
    doc_type: str
    file_hash: str
    model_fingerprint: str
    indexed_at: str
    mtime_ns: int | None
    size: int | None
    inode: int | None

    def current_hash(self, plans: TypePlans) -> str | None:
        """The hash of content whose rows need not be made anew under the model of `plans`."""
        fingerprint = plans.fingerprint(self.doc_type)
        return self.file_hash if self.model_fingerprint == fingerprint else None

    def is_current(self, file: MarkdownFile, plans: TypePlans) -> bool:
        """Whether stat alone proves that the rows are those of the file and the model."""
        return (
            self.mtime_ns == file.mtime_ns
            and self.size == file.size
            and self.inode == file.inode
            and self.file_hash != ""
            and self.current_hash(plans) is not None
        )


def known_files(connection: apsw.Connection, paths: Iterable[str]) -> dict[str, KnownFile]:
    """The rows of those of some project-relative paths that have one."""
    listing = msgspec.json.encode(list(paths)).decode()
    return {row[0]: KnownFile(*row) for row in connection.execute(_KNOWN_FILES, (listing,))}
