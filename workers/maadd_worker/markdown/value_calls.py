"""Value calls `{{field}}` of a body: recorded, never expanded (spec 01 §5.4)."""

from __future__ import annotations

import re

import msgspec

from maadd_worker.markdown.verbatim import VerbatimZones

VALUE_CALL = re.compile(r"\{\{([A-Za-z_][A-Za-z0-9_.]*)\}\}")


class ValueCall(msgspec.Struct, frozen=True):
    """One call; `line` is the 1-based line of the file, `col` the 0-based code point in it."""

    field: str
    line: int
    col: int


def find_value_calls(
    body: str, body_start_line: int, zones: VerbatimZones
) -> tuple[ValueCall, ...]:
    """The value calls of a body outside code, in order."""
    if "{{" not in body:
        return ()
    calls: list[ValueCall] = []
    line = body_start_line
    counted = line_start = 0
    for match in VALUE_CALL.finditer(body):
        at = match.start()
        if zones.covers(at):
            continue
        line_feeds = body.count("\n", counted, at)
        if line_feeds:
            line += line_feeds
            line_start = body.rfind("\n", counted, at) + 1
        counted = at
        calls.append(ValueCall(match[1], line, at - line_start))
    return tuple(calls)
