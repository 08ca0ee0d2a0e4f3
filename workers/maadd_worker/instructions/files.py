"""The managed files of a project as they are on disk (spec 03 §11.1)."""

from __future__ import annotations

import time
from typing import Literal

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.disk.root import FileContent, ProjectRoot
from maadd_worker.instructions.manifest import Template, load_templates
from maadd_worker.instructions.stamp import body_hash, split_stamp

State = Literal["missing", "unmanaged", "modified", "outdated", "current"]
"""`unmanaged` has no stamp of ours, `modified` was edited below it, `outdated` is what another
version wrote."""

MAX_BYTES = 1024 * 1024
"""A larger file is not one of ours."""

_SETTLED_NS = 20_000_000
"""A file changed more recently may change again within the clock's grain, unseen by stat."""


class FileStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One managed file. `stamped_engine` is who wrote it, None without a stamp; `error` says why
    a file that is there could not be judged."""

    name: str
    rel_path: str
    state: State
    stamped_engine: str | None
    error: str | None = None


class InstructionFiles:
    """The files of one project, judged anew when they change; usable from several threads."""

    __slots__ = ("_known", "_root", "templates")

    def __init__(self, root: ProjectRoot) -> None:
        self._root = root
        self._known: dict[str, tuple[tuple[int, int, int], FileStatus]] = {}
        self.templates = load_templates()

    def statuses(self) -> list[FileStatus]:
        """Every managed file, in the order of the manifest."""
        return [self.status(template) for template in self.templates]

    def stale(self, *, read_only: bool = False) -> list[FileStatus]:
        """What a refresh would write without force. A read-only project gets nothing written,
        so that what is missing there is not worth telling."""
        wanted = ("outdated",) if read_only else ("outdated", "missing")
        return [status for status in self.statuses() if status.state in wanted]

    def status(self, template: Template) -> FileStatus:
        """One file as it is now; an unchanged one costs a `stat`."""
        path = template.path
        try:
            now = self._root.stat(path)
        except OSError:
            return self._absent(template)
        known = self._known.get(path)
        if known is not None and known[0] == (now.st_mtime_ns, now.st_size, now.st_ino):
            return known[1]
        try:
            content = self._root.read(path, MAX_BYTES)
        except MaadError as failure:
            return FileStatus(template.name, path, "unmanaged", None, failure.message)
        status = classify(template, content.data)
        self._keep(path, content, status)
        return status

    def _absent(self, template: Template) -> FileStatus:
        """A name that leads to no file: free, or taken by something that cannot be read."""
        try:
            taken = self._root.exists(template.path)
        except MaadError as failure:
            return FileStatus(template.name, template.path, "unmanaged", None, failure.message)
        if taken:
            error = f"{template.path} is a link that leads nowhere"
            return FileStatus(template.name, template.path, "unmanaged", None, error)
        return FileStatus(template.name, template.path, "missing", None)

    def _keep(self, path: str, content: FileContent, status: FileStatus) -> None:
        if time.time_ns() - content.mtime_ns > _SETTLED_NS:
            stamp = (content.mtime_ns, content.size, content.inode)
            self._known[path] = (stamp, status)


def classify(template: Template, data: bytes) -> FileStatus:
    """What the content of a managed file says of it. The version in the stamp plays no part."""
    found = split_stamp(data)
    if found is None or found[0].name != template.name:
        return FileStatus(template.name, template.path, "unmanaged", None)
    stamp, body = found
    state: State = "current"
    if body_hash(body) != stamp.body_hash:
        state = "modified"
    elif stamp.body_hash != template.body_hash:
        state = "outdated"
    return FileStatus(template.name, template.path, state, stamp.engine)
