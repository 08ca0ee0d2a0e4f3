"""Where each field of a frontmatter block stands, for editing single lines (spec 01 §9.1)."""

from __future__ import annotations

import re

import msgspec
from yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from maadd_worker.markdown.frontmatter import SplitFile
from maadd_worker.markdown.yaml_events import Event, EventSource, read_events

_COMMENT = re.compile(r"(?<!\S)#[^\n]*")
_COLLECTION_STARTS = (MappingStartEvent, SequenceStartEvent)
_COLLECTION_ENDS = (MappingEndEvent, SequenceEndEvent)


class Entry(msgspec.Struct, frozen=True):
    """One top-level field; all positions are code points of the block.

    `start` is the start of the key's line, `end` the start of the line after the value,
    `value_end` the end of the value without blank lines behind it. `comments` stand inside a
    value of several lines. `anchored` and `aliased` say whether `&` or `*` occurs in it.
    """

    start: int
    key_start: int
    key_end: int
    value_start: int
    value_end: int
    end: int
    comments: tuple[str, ...]
    anchored: bool
    aliased: bool


class BlockLayout(msgspec.Struct, frozen=True):
    """The fields of a block in file order.

    `line_based` says that every field has lines of its own, so that single fields can be
    edited; a flow mapping or an explicit `? key` has not.
    """

    entries: tuple[Entry, ...]
    line_based: bool


def block_layout(split: SplitFile, file: str) -> BlockLayout:
    """The layout of a block whose values have been read before."""
    return read_events(split.block, file, split.block_start_line, _layout)


def comments_in(text: str, start: int, end: int) -> list[str]:
    """The comments of a stretch of YAML that holds no scalars."""
    return [match.group().rstrip() for match in _COMMENT.finditer(text, start, end)]


def _layout(source: EventSource) -> BlockLayout:
    next_event = source.next_event
    next_event()
    if type(next_event()) is StreamEndEvent:
        return BlockLayout((), True)
    root = next_event()
    if type(root) is not MappingStartEvent:
        return BlockLayout((), False)
    line_based = not root.flow_style and root.anchor is None and root.tag is None
    entries: list[Entry] = []
    previous_end = 0
    while type(key := next_event()) is not MappingEndEvent:
        entry = _entry(source, key)
        before_key = source.text[entry.start : entry.key_start]
        line_based = line_based and not before_key.strip(" ") and entry.start >= previous_end
        previous_end = entry.end
        entries.append(entry)
    return BlockLayout(tuple(entries), line_based and bool(entries))


def _entry(source: EventSource, key: Event) -> Entry:
    text = source.text
    anchored = type(key) is ScalarEvent and key.anchor is not None
    aliased = type(key) is AliasEvent
    comments: list[str] = []
    open_collections: list[bool] = []
    event = source.next_event()
    value_start: int = event.start_mark.index
    last_end = outside_scalars = key.end_mark.index
    while True:
        kind = type(event)
        if kind in _COLLECTION_STARTS:
            open_collections.append(event.flow_style)
            anchored = anchored or event.anchor is not None
        elif kind in _COLLECTION_ENDS:
            if open_collections.pop():
                last_end = event.end_mark.index
        else:
            comments += comments_in(text, outside_scalars, event.start_mark.index)
            last_end = outside_scalars = event.end_mark.index
            if kind is AliasEvent:
                aliased = True
            else:
                anchored = anchored or event.anchor is not None
                comments += _header_comment(event, text)
        if not open_collections:
            break
        event = source.next_event()
    comments += comments_in(text, outside_scalars, last_end)
    value_end = value_start + len(text[value_start:last_end].rstrip(" \t\r\n"))
    if value_end < last_end and text[last_end - 1] == "\n":
        end = last_end
    else:
        end = text.find("\n", last_end) + 1 or len(text)
    key_start = key.start_mark.index
    return Entry(
        text.rfind("\n", 0, key_start) + 1,
        key_start,
        key.end_mark.index,
        value_start,
        value_end,
        end,
        tuple(comments),
        anchored,
        aliased,
    )


def _header_comment(scalar: Event, text: str) -> list[str]:
    """The comment behind the `|` or `>` of a block scalar."""
    if scalar.style not in ("|", ">"):
        return []
    start = scalar.start_mark.index
    header_end = text.find("\n", start)
    return comments_in(text, start, header_end if header_end >= 0 else len(text))
