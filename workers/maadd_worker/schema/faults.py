"""What is wrong with a registry or schema file, and where (spec 01 §2, §3)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from maadd.protocol.errors import MaadError, SourceLocation
from maadd_worker.markdown.yaml_events import Place
from maadd_worker.markdown.yaml_places import Path, Places, find_places

_TOP = Place(1, 1)


class Fault(msgspec.Struct, frozen=True):
    """`path` leads to what the message is about, or to where it is missing."""

    path: Path
    message: str
    code: str


def located_errors(
    faults: Iterable[Fault], file: str, text: str | None, named: str
) -> list[MaadError]:
    """The errors of a file with their places in `text`; without it they stand at its top.

    `named` is the member of `details` that holds the file.
    """
    places = None if text is None else find_places(text, file)
    errors: list[MaadError] = []
    for fault in faults:
        details: dict[str, object] = {named: file}
        place, where = _TOP, file
        if places is not None:
            place = _place_of(fault.path, places)
            details |= {"line": place.line, "col": place.col}
            where = f"{file}:{place.line}:{place.col}"
        location = SourceLocation(file, place.line, place.col)
        message = f"{where}: {fault.message}"
        errors.append(MaadError(fault.code, message, details, location=location))
    return errors


def _place_of(path: Path, places: Places) -> Place:
    """The place of what the path leads to, or of the nearest thing around it."""
    for length in range(len(path), -1, -1):
        place = places.get(path[:length])
        if place is not None:
            return place
    return _TOP
