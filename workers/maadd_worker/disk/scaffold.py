"""The parts of a project that a starting engine makes when they are missing (spec 01 §1.1)."""

from __future__ import annotations

import os

from maadd.protocol.errors import MaadError
from maadd_worker.disk.root import ProjectRoot

REGISTRY_PATH = "_registry/object_types.yaml"
EMPTY_REGISTRY = "types: {}\n"


def make_backend(root: ProjectRoot, *, read_only: bool) -> None:
    """The folder of index, journal and lock; READ_ONLY when it is missing and may not be made."""
    _make_folder(root, "_backend", read_only=read_only)


def make_model_files(root: ProjectRoot, *, read_only: bool) -> None:
    """An empty registry and the schema folder, where they are missing."""
    if not os.path.lexists(os.path.join(root.path, REGISTRY_PATH)):
        _refuse(REGISTRY_PATH, read_only=read_only)
        try:
            os.makedirs(os.path.join(root.path, "_registry"), exist_ok=True)
            with open(os.path.join(root.path, REGISTRY_PATH), "x", encoding="utf-8") as file:
                file.write(EMPTY_REGISTRY)
        except OSError as error:
            raise _cannot(REGISTRY_PATH, error) from error
    _make_folder(root, "_schema", read_only=read_only)


def _make_folder(root: ProjectRoot, name: str, *, read_only: bool) -> None:
    path = os.path.join(root.path, name)
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
            "another history mode, or run maad init there",
        )


def _cannot(what: str, error: OSError) -> MaadError:
    return MaadError("WRITE_ERROR", f"{what} cannot be made: {error.strerror}")
