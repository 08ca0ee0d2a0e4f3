"""The files that a directory scan looks at, in path order (spec 02 §3.1)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from maadd.protocol.errors import MaadError
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.disk.scan import MarkdownFile

_NEVER = "node_modules"


def walk_for_scan(root: ProjectRoot, directory: str) -> Iterator[MarkdownFile]:
    """Every `.md` file below a directory, sorted by path.

    Names that begin with `_` or `.` and `node_modules` are left out, links are not followed,
    unreadable directories are empty.
    """
    pending = [directory]
    while pending:
        path = pending.pop()
        if path.endswith(".md") and path != directory:
            found = _regular_file(root, path)
            if found is not None:
                yield found
                continue
        pending.extend(_children(root, path, follow_links=path == directory))


def _children(root: ProjectRoot, path: str, *, follow_links: bool) -> list[str]:
    """Files and directories to look at, last first; a directory sorts as its files do."""
    names: list[tuple[str, str]] = []
    try:
        descriptor = root.open_directory(path, follow_links=follow_links)
    except (OSError, MaadError):
        return []
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith(("_", ".")) or name == _NEVER or entry.is_symlink():
                    continue
                if entry.is_dir(follow_symlinks=False):
                    names.append((f"{name}/", name))
                elif name.endswith(".md"):
                    names.append((name, name))
    except OSError:
        pass
    finally:
        os.close(descriptor)
    names.sort(reverse=True)
    return [f"{path}/{name}" if path else name for _, name in names]


def _regular_file(root: ProjectRoot, path: str) -> MarkdownFile | None:
    try:
        status = root.stat(path)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return MarkdownFile(path, status.st_size, status.st_mtime_ns, status.st_ino)
