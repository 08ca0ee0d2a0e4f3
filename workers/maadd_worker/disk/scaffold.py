"""The parts of a project that a starting engine makes when they are missing (spec 01 §1.1).

They are made in the folder that was opened, and nowhere when another one has taken its place.
"""

from __future__ import annotations

import os

from maadd.protocol.errors import MaadError
from maadd_worker.disk.folders import make_folders
from maadd_worker.disk.root import ProjectRoot

REGISTRY_PATH = "_registry/object_types.yaml"
EMPTY_REGISTRY = "types: {}\n"


def make_backend(root: ProjectRoot, *, read_only: bool, served: bool = False) -> None:
    """The folder of index, journal and lock; READ_ONLY when it is missing and may not be made.

    FILE_READ_ERROR for a folder that was `served` before and has no registry now: it is an empty
    one in the place of the real one, such as the mount point of a file system that is away.
    """
    if served and not _has_registry(root):
        raise MaadError(
            "FILE_READ_ERROR",
            f"the project's folder has no {REGISTRY_PATH} any more, so that it is not the one that "
            "was served; put it back, or begin anew with maad init",
            {"file": REGISTRY_PATH, "errno": "ENOENT"},
        )
    _make_folder(root, "_backend", read_only=read_only)
    for name in linked_places(root.held_path):
        raise MaadError(
            "PATH_OUTSIDE_PROJECT",
            f"{name} is a link: what the engine writes there would be written elsewhere; remove "
            "the link (another disk can be mounted on _backend/)",
            {"file": name},
        )


def linked_places(root: str) -> list[str]:
    """What the engine would write through a link: `_backend`, where that leads out of the project,
    and its own files in there. A project may come from somebody else, links included."""
    backend = os.path.join(root, "_backend")
    if os.path.islink(backend):
        inside = os.path.realpath(root).rstrip("/") + "/"
        if not os.path.realpath(backend).startswith(inside):
            return ["_backend"]
    try:
        names = sorted(os.listdir(backend))
    except OSError:
        return []  # whoever opens it says why it cannot be read
    own = [name for name in names if name == "lock" or name.startswith(("maad.db", "journal."))]
    return [f"_backend/{name}" for name in own if os.path.islink(os.path.join(backend, name))]


def make_model_files(root: ProjectRoot, *, read_only: bool) -> None:
    """An empty registry and the schema folder, where they are missing."""
    if not _has_registry(root):
        _refuse(REGISTRY_PATH, read_only=read_only)
        try:
            make_folders(root.held_path, os.path.dirname(REGISTRY_PATH))
            with open(os.path.join(root.held_path, REGISTRY_PATH), "x", encoding="utf-8") as file:
                file.write(EMPTY_REGISTRY)
        except OSError as error:
            raise _cannot(REGISTRY_PATH, error) from error
    _make_folder(root, "_schema", read_only=read_only)


def _has_registry(root: ProjectRoot) -> bool:
    return os.path.lexists(os.path.join(root.held_path, REGISTRY_PATH))


def _make_folder(root: ProjectRoot, name: str, *, read_only: bool) -> None:
    path = os.path.join(root.held_path, name)
    if os.path.isdir(path):
        return
    _refuse(f"{name}/", read_only=read_only)
    try:
        os.mkdir(path)
    except OSError as error:
        raise _cannot(f"{name}/", error) from error


def _refuse(what: str, *, read_only: bool) -> None:
    if read_only:
        raise MaadError(
            "READ_ONLY",
            f"{what} is missing and a read-only project gets nothing written; open it once in "
            "another history mode, or run maad reindex there",
        )


def _cannot(what: str, error: OSError) -> MaadError:
    return MaadError("WRITE_ERROR", f"{what} cannot be made: {error.strerror}")
