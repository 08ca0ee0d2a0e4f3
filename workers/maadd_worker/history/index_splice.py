"""Edits a few entries of a large Git index without walking all of it.

Landmarks, every so many entries, tell where a path belongs. They follow each edit, so that the
next one neither walks the file nor checks a checksum that it has just written itself. Edits that
turn files into directories, or the other way, are left to `edit_index`.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Mapping

import msgspec

from maadd_worker.history.index_format import (
    HEADER,
    IndexEntry,
    check_head,
    encode_entry,
    entries,
    extensions,
    parents,
)

_SPACING = 64
_FARTHEST = 512
"""Entries between landmarks; where insertions have made them more, the file is walked again."""


class Landmarks(msgspec.Struct, frozen=True):
    """Name and start of some entries, in order, and where the entries end."""

    names: list[bytes]
    starts: list[int]
    end: int


class Spliced(msgspec.Struct, frozen=True):
    """An edited index, in parts that refer to the old one, and its landmarks."""

    parts: tuple[bytes | memoryview, ...]
    landmarks: Landmarks


class _Place(msgspec.Struct, frozen=True):
    """Where a path is, or belongs: its entries (stages of a conflict) lie from start to end."""

    start: int
    end: int
    entries: int


class _TooFar(Exception):
    """The landmarks have drifted apart."""


def splice_index(
    data: bytes, updates: Mapping[bytes, IndexEntry | None], landmarks: Landmarks | None
) -> Spliced | None:
    """The index with the given paths set, or removed where the value is None.

    `landmarks` are those of these very bytes, None when they are not known. None when the edit
    is not for this module. Raises DamagedIndex, UnsupportedIndex.
    """
    version, count = check_head(data, checksum=landmarks is None)
    known = landmarks or _survey(data, count)
    try:
        edits = _edits(data, updates, known)
    except _TooFar:
        known = _survey(data, count)
        edits = _edits(data, updates, known)
    if edits is None:
        return None
    added = sum(entry is not None for entry in updates.values())
    removed = sum(place.entries for place, _ in edits)
    # Megabytes stay as they are: they are hashed and written from where they lie.
    old = memoryview(data)
    parts: list[bytes | memoryview] = [HEADER.pack(b"DIRC", version, count + added - removed)]
    kept_from = HEADER.size
    for place, replacement in edits:
        parts += (old[kept_from : place.start], replacement)
        kept_from = place.end
    parts.append(old[kept_from : known.end])
    parts.extend(extensions(data, known.end, updates))
    digest = hashlib.sha1()
    for part in parts:
        digest.update(part)
    return Spliced((*parts, digest.digest()), _moved(known, edits))


def _survey(data: bytes, count: int) -> Landmarks:
    names: list[bytes] = []
    starts: list[int] = []
    end = HEADER.size
    for number, (start, name, end) in enumerate(entries(data, count)):  # noqa: B007 -- the last end
        if number % _SPACING == 0:
            names.append(name)
            starts.append(start)
    return Landmarks(names, starts, end)


def _edits(
    data: bytes, updates: Mapping[bytes, IndexEntry | None], known: Landmarks
) -> list[tuple[_Place, bytes]] | None:
    """What to put where, in order; None when a path changes between file and directory."""
    edits: list[tuple[_Place, bytes]] = []
    directories: set[bytes] = set()
    for path in sorted(updates):
        entry = updates[path]
        place = _find(data, path, known)
        edits.append((place, b"" if entry is None else encode_entry(path, entry)))
        if entry is not None and not place.entries:
            directories.update(parents(path))
            if _holds(data, path + b"/", known):
                return None
    if any(_find(data, directory, known).entries for directory in directories):
        return None
    return edits


def _find(data: bytes, path: bytes, known: Landmarks) -> _Place:
    found = 0
    start = at = _from(path, known)
    if at < known.end:
        for _, name, end in entries(data, _FARTHEST, at):
            if name > path:
                break
            at = end
            if name == path:
                found += 1
            else:
                start = end
            if at == known.end:
                break
        else:
            raise _TooFar
    return _Place(start, at, found)


def _holds(data: bytes, directory: bytes, known: Landmarks) -> bool:
    """Whether there is an entry below a directory, given with its slash."""
    at = _find(data, directory, known).end
    return at < known.end and next(entries(data, 1, at))[1].startswith(directory)


def _from(path: bytes, known: Landmarks) -> int:
    """Where to begin to look: the last landmark whose name lies before the path."""
    index = bisect_right(known.names, path) - 1
    while index >= 0 and known.names[index] == path:
        index -= 1
    return known.starts[index] if index >= 0 else HEADER.size


def _moved(known: Landmarks, edits: list[tuple[_Place, bytes]]) -> Landmarks:
    """The landmarks after the edits; one whose entry is gone is left out."""
    names: list[bytes] = []
    starts: list[int] = []
    shift = 0
    upcoming = iter([*edits, None])
    edit = next(upcoming)
    for name, start in zip(known.names, known.starts, strict=True):
        while edit is not None and edit[0].end <= start:
            shift += len(edit[1]) - (edit[0].end - edit[0].start)
            edit = next(upcoming)
        if edit is not None and edit[0].start <= start:
            replaced = edit[1] and edit[0].start == start
            if not replaced:
                continue
        names.append(name)
        starts.append(start + shift)
    while edit is not None:
        shift += len(edit[1]) - (edit[0].end - edit[0].start)
        edit = next(upcoming)
    return Landmarks(names, starts, known.end + shift)
