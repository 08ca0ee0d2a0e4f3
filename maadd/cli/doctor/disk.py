"""Permissions, the kind of file system, and room on it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from maadd.cli.doctor.check import Check, ok, problem, some, warning
from maadd_worker.disk.scaffold import linked_places

_NETWORK = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre",
     "fuse.sshfs", "fuse.rclone", "fuse.s3fs", "fuse.gcsfuse", "davfs", "fuse.davfs2")
)  # fmt: skip
_IN_MEMORY = frozenset(("tmpfs", "ramfs"))
_FOLDERS = ("_registry", "_schema", "_backend")
_FILES = ("maad.db", "maad.db-wal", "maad.db-shm", "journal.db", "journal.json", "lock")
_LITTLE_MB = 1024
_TOO_LITTLE_MB = 100
_MB = 1024 * 1024
_ESCAPES = (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\"))


def checks(root: str, record_paths: list[str]) -> Iterator[Check]:
    """What the disk allows in the folder of a project; `record_paths` are those of its types."""
    yield from _kinds(root)
    yield _permissions(root, record_paths)
    yield _ownership(root)
    yield _file_system(root)
    yield _room(root)


def file_system(path: str) -> str | None:
    """The kind of file system that a path is on, None when the system does not tell."""
    real = os.path.realpath(path)
    best, kind = "", None
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
            lines = table.read().splitlines()
    except OSError:
        return None
    for line in lines:
        before, _, after = line.partition(" - ")
        point = before.split(" ")[4]
        for escape, character in _ESCAPES:
            point = point.replace(escape, character)
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, after.split(" ")[0]
    return kind


def _kinds(root: str) -> Iterator[Check]:
    """A problem for each name that the program needs and that is something else."""
    for name in _FOLDERS:
        path = os.path.join(root, name)
        if os.path.lexists(path) and not os.path.isdir(path):
            advice = "move it away, and put the folder back"
            yield problem("places", f"{name} is there and is no folder", advice)
    for name in linked_places(root):
        yield problem("places", f"{name} is a link", "remove it: nothing is written through links")
    for name in _FILES:
        path = os.path.join(root, "_backend", name)
        if os.path.exists(path) and not os.path.isfile(path):
            yield problem("places", f"_backend/{name} is no regular file", "move it away")


def _permissions(root: str, record_paths: list[str]) -> Check:
    """Folders that the program must be able to write in."""
    folders = [".", *_FOLDERS, *record_paths]
    refused = []
    for folder in folders:
        path = os.path.join(root, folder)
        if os.path.isdir(path) and not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            refused.append(folder)
    for name in _FILES:
        path = os.path.join(root, "_backend", name)
        if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK):
            refused.append(f"_backend/{name}")
    mounted = [name for name in refused if _is_read_only(os.path.join(root, name))]
    if mounted:
        whole = "." in mounted
        tops = [name for name in mounted if os.path.dirname(name) not in mounted]
        text = f"the file system of {'the project' if whole else some(tops)} is mounted read-only"
        return problem(
            "permissions", text, "mount it for writing; history mode read serves it as is"
        )
    if refused:
        text = f"user {os.geteuid()} may not read and write {some(refused)}"
        return problem("permissions", text, "give them to the user that runs the server (chown)")
    return ok("permissions", "the folders of the project can be read and written")


def _is_read_only(path: str) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _ownership(root: str) -> Check:
    """Files of another user in `_backend` come from one command run as root."""
    owner = os.stat(root).st_uid
    backend = os.path.join(root, "_backend")
    others = []
    if os.path.isdir(backend):
        with os.scandir(backend) as entries:
            others = sorted(
                f"_backend/{entry.name}"
                for entry in entries
                if entry.stat(follow_symlinks=False).st_uid != owner
            )
    if others:
        text = f"{some(others)} belong to another user than the project"
        return warning("ownership", text, f"chown -R {owner} {backend}")
    return ok("ownership", f"all of user {owner}")


def _file_system(root: str) -> Check:
    kind = file_system(root)
    if kind is None:
        return ok("file system", "its kind is not known here")
    if kind in _NETWORK:
        advice = "put the project on a local disk; if it must be here, set MAAD_WATCH=poll"
        text = f"{kind} is a network file system: locks and change events are not reliable"
        return warning("file system", text, advice)
    if kind in _IN_MEMORY:
        return warning("file system", f"{kind} is memory: all is gone at a restart", "move it")
    return ok("file system", kind)


def _room(root: str) -> Check:
    free_mb = shutil.disk_usage(root).free // _MB
    entries = os.statvfs(root)
    if free_mb < _TOO_LITTLE_MB:
        return problem("room", f"{free_mb} MB free", "make room; writes will fail soon")
    if entries.f_files and not entries.f_favail:
        return problem("room", "no inodes are free", "remove files; none can be created")
    if free_mb < _LITTLE_MB:
        return warning("room", f"{free_mb} MB free", "make room before it is too little")
    return ok("room", f"{free_mb} MB free")
