"""Which folders are watched, and which of their files matter (spec 01 §14.7)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from maadd_worker.disk.root import ProjectRoot
from maadd_worker.disk.scan import TOMBSTONE_PREFIX
from maadd_worker.schema.model import Model

MODEL_FOLDERS = ("_registry", "_schema")

Interest = Literal["record", "model", "folder", "nothing"]


class Place(msgspec.Struct, frozen=True):
    """A watched folder: absolute path and identity. Another folder at the path is another
    place, whose changes the old watch does not see."""

    path: str
    device: int
    inode: int


def watched_places(root: ProjectRoot, model: Model) -> tuple[Place, ...]:
    """The folders that exist now, none inside another."""
    found = []
    for rel in _outermost([*MODEL_FOLDERS, *_record_folders(model)]):
        path = os.path.join(root.path, rel)
        try:
            status = os.stat(path)
        except OSError:
            continue
        found.append(Place(path, status.st_dev, status.st_ino))
    return tuple(found)


def watched_folders(places: Iterable[Place]) -> list[str] | None:
    """Every folder below the places, when each must be watched by itself; None when whole
    trees can be watched.

    A watch of a tree follows links to folders, which records are not read through and which
    may lead to the whole disk.
    """
    folders: list[str] = []
    linked = False
    for place in places:
        for folder, names, _ in os.walk(place.path):
            folders.append(folder)
            names[:] = [name for name in names if not name.startswith(".")]
            linked = linked or any(os.path.islink(os.path.join(folder, name)) for name in names)
    return folders if linked else None


def interest(rel: str, model: Model) -> Interest:
    """What a change at a project-relative path means.

    `folder` is anything below a record folder that is no record by its name: a folder that
    came or went, or a file that does not matter.
    """
    if rel.startswith(tuple(f"{name}/" for name in MODEL_FOLDERS)) or rel in MODEL_FOLDERS:
        return "model"
    folder = next((f for f in _record_folders(model) if rel == f or rel.startswith(f"{f}/")), None)
    if folder is None:
        return "nothing"
    names = rel[len(folder) + 1 :].split("/")
    name = names[-1]
    if any(part.startswith(".") for part in names[:-1]):
        return "nothing"
    if name.endswith(".md") and rel != folder:
        return "record"
    return "nothing" if ".maad-tmp-" in name else "folder"


def is_tombstone(rel: str) -> bool:
    """Whether the path is that of a soft-deleted record."""
    return rel.rpartition("/")[2].startswith(TOMBSTONE_PREFIX)


def is_walked(root: ProjectRoot, rel: str, model: Model) -> bool:
    """Whether a walk would come to the folder that a record stands in: no link on the way
    below the registered path (spec 01 §14.1)."""
    folder = max(
        (f for f in _record_folders(model) if rel.startswith(f"{f}/")), key=len, default=None
    )
    if folder is None:
        return False
    path = os.path.join(root.path, folder)
    for name in rel[len(folder) + 1 :].split("/")[:-1]:
        path = os.path.join(path, name)
        if os.path.islink(path):
            return False
    return True


def _record_folders(model: Model) -> Iterator[str]:
    return (entry.path for entry in model.registry.types.values())


def _outermost(folders: Iterable[str]) -> list[str]:
    kept: list[str] = []
    for folder in sorted(set(folders)):
        if not any(folder.startswith(f"{other}/") for other in kept):
            kept.append(folder)
    return kept
