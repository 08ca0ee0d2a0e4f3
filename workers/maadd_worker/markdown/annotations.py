"""Inline annotations `[[type:value|label]]` of a body (spec 01 §5.3)."""

from __future__ import annotations

import re

import msgspec

from maadd_worker.markdown.text import js_trim
from maadd_worker.markdown.verbatim import VerbatimZones

_TYPE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*):")
_VALUE_END = re.compile(r"\||\[\[|\]\]|\n")
_LABEL_END = re.compile(r"[\]\n]")


class Annotation(msgspec.Struct, frozen=True):
    """One annotation; `type` as written, `value` and `label` trimmed.

    `line` is the 1-based line of the file, `col` the 0-based code point of `[[` in it.
    """

    type: str
    value: str
    label: str
    line: int
    col: int


def find_annotations(
    body: str, body_start_line: int, zones: VerbatimZones, limit: int
) -> tuple[tuple[Annotation, ...], bool]:
    """The annotations of a body outside code, and whether more than `limit` exist.

    `limit` 0 means no limit. Linear in the body: a value ends at the next `[[` or `]]`, and
    the end of a label, once found, is not looked for again.
    """
    found: list[Annotation] = []
    line = body_start_line
    counted = line_start = 0
    label_end = -1
    at = body.find("[[")
    while at >= 0:
        here = at
        at = body.find("[[", here + 1)
        kind = _TYPE.match(body, here + 2)
        if kind is None:
            continue
        value_start = kind.end()
        value_end = _VALUE_END.search(body, value_start)
        if value_end is None or value_end.group() != "|" or value_end.start() == value_start:
            continue
        label_start = value_end.end()
        if label_end < label_start:
            closing = _LABEL_END.search(body, label_start)
            label_end = len(body) if closing is None else closing.start()
        if label_end == label_start or not body.startswith("]]", label_end):
            continue
        if zones.covers(here):
            continue
        if limit and len(found) == limit:
            return tuple(found), True
        line_feeds = body.count("\n", counted, here)
        if line_feeds:
            line += line_feeds
            line_start = body.rfind("\n", counted, here) + 1
        counted = here
        found.append(
            Annotation(
                kind[1],
                js_trim(body[value_start : value_end.start()]),
                js_trim(body[label_start:label_end]),
                line,
                here - line_start,
            )
        )
        at = body.find("[[", label_end + 2)
    return tuple(found), False
