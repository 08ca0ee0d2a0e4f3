"""What the files of a directory have in common (spec 02 §3.1)."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from maadd_worker.schema.schema import IDENTITY_KEYS

_ENTITIES = 30
_SAMPLES = 3


class ScannedFile(msgspec.Struct, frozen=True):
    """One file of a corpus; `fields` is None without frontmatter, headings are (level, text)."""

    path: str
    line_count: int
    fields: tuple[str, ...] | None
    doc_type: str | None
    headings: tuple[tuple[int, str], ...]
    annotations: tuple[tuple[str, str], ...]


def corpus_report(
    directory: str,
    name: str | None,
    files: Sequence[ScannedFile],
    *,
    skipped: int,
    truncated: bool,
) -> dict[str, Any]:
    """The answer for a directory; `files` in path order, `name` is the directory's own."""
    frequency = Counter(field for file in files for field in file.fields or ())
    report: dict[str, Any] = {
        "directory": directory,
        "totalFiles": len(files),
        "totalLines": sum(file.line_count for file in files),
        "files": [
            {
                "path": file.path,
                "lineCount": file.line_count,
                "hasFrontmatter": file.fields is not None,
                "frontmatterFields": list(file.fields or ()),
            }
            for file in files
        ],
        "frontmatterFieldFrequency": dict(frequency),
        "headingPatterns": _heading_patterns(files),
        "likelyDocumentFamilies": _families(files, name),
        "entitySummary": _entities(files),
    }
    if truncated:
        report["truncated"] = True
    if skipped:
        report["skippedFiles"] = skipped
    return report


def _heading_patterns(files: Sequence[ScannedFile]) -> list[dict[str, Any]]:
    counts = Counter(heading for file in files for heading in file.headings)
    repeated = [(number, heading) for heading, number in counts.items() if number > 1]
    return [
        {"text": text, "level": level, "occurrences": number}
        for number, (level, text) in sorted(repeated, key=lambda pair: (-pair[0], pair[1]))
    ]


def same_fields(files: Sequence[ScannedFile]) -> list[tuple[tuple[str, ...], list[ScannedFile]]]:
    """Files with frontmatter by the set of their fields, identity apart; most files first."""
    groups: dict[tuple[str, ...], list[ScannedFile]] = {}
    for file in files:
        if file.fields is not None:
            own = tuple(sorted(set(file.fields) - set(IDENTITY_KEYS)))
            groups.setdefault(own, []).append(file)
    return sorted(groups.items(), key=lambda family: (-len(family[1]), family[1][0].path))


def _families(files: Sequence[ScannedFile], directory: str | None) -> list[dict[str, Any]]:
    """Files with frontmatter that have the same fields, at least two of them; largest first."""
    families = [family for family in same_fields(files) if len(family[1]) > 1]
    return [
        {
            "name": _family_name(members, directory) or f"family-{number}",
            "fileCount": len(members),
            "sharedFields": list(fields),
            "sharedHeadings": _shared_headings(members),
            "sampleFiles": [file.path for file in members[:_SAMPLES]],
        }
        for number, (fields, members) in enumerate(families, start=1)
    ]


def _family_name(members: Sequence[ScannedFile], directory: str | None) -> str | None:
    """The one type of the members, else the folder most of them lie in."""
    types = {file.doc_type for file in members if file.doc_type is not None}
    if len(types) == 1:
        return types.pop()
    folders = Counter(posixpath.basename(posixpath.dirname(file.path)) for file in members)
    folder = min(folders, key=lambda name: (-folders[name], name))
    return folder or directory


def _shared_headings(members: Sequence[ScannedFile]) -> list[str]:
    shared = set(members[0].headings).intersection(*(file.headings for file in members[1:]))
    return [text for level, text in dict.fromkeys(members[0].headings) if (level, text) in shared]


def _entities(files: Sequence[ScannedFile]) -> list[dict[str, Any]]:
    counts = Counter(annotation for file in files for annotation in file.annotations)
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return [
        {"type": kind, "value": value, "occurrences": number}
        for (kind, value), number in ranked[:_ENTITIES]
    ]
