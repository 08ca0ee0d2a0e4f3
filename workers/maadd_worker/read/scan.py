"""`maad_scan`: the structure of raw Markdown inside the project (spec 02 §3.1)."""

from __future__ import annotations

import posixpath
import stat

from maadd.protocol.arguments import ScanArgs
from maadd.protocol.errors import MaadError
from maadd_worker.disk.paths import segments
from maadd_worker.outcome import Outcome
from maadd_worker.read.context import ReadContext
from maadd_worker.read.structure import scan_directory, scan_file

_PRIVATE = ("_auth", "_backend")


def scan(context: ReadContext, args: ScanArgs) -> Outcome:
    """One file in detail, or the patterns of a directory.

    Raises PATH_OUTSIDE_PROJECT, PATH_NOT_FOUND, and for a file FILE_READ_ERROR, DOC_TOO_LARGE.
    """
    names = segments(args.path)
    shown = "/".join(names)
    if any(name.startswith(".") or name in _PRIVATE for name in names) or not _exists(
        context, shown
    ):
        raise _path_not_found(shown)
    path = context.root.resolve(shown) if names else ""
    mode = context.root.stat(path or ".").st_mode
    if stat.S_ISDIR(mode):
        report = scan_directory(
            context.root,
            path,
            shown or ".",
            context.settings,
            name=posixpath.basename(path) or None,
            check_time=context.check_time,
        )
        return Outcome(report)
    if stat.S_ISREG(mode):
        return Outcome(scan_file(context.root, path, shown, context.settings))
    raise _path_not_found(shown)


def _exists(context: ReadContext, path: str) -> bool:
    if not path:
        return True
    try:
        return context.root.exists(path)
    except OSError:
        return False


def _path_not_found(path: str) -> MaadError:
    return MaadError(
        "PATH_NOT_FOUND",
        f'"{path}" is no file or directory that can be scanned; give a path relative to the '
        "project root",
    )
