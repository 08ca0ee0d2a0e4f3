"""YAML to values: core schema, limits and the shape of frontmatter (spec 01 §4.2).

Blocks of plain lines are read as such. For all others one pass over libyaml's events does
resolution, duplicate keys, node budget and shape check together, so that nothing is built
before it was judged.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec
from yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    StreamEndEvent,
)

from maadd.protocol.errors import MaadError
from maadd_worker.markdown.diagnostics import parse_error
from maadd_worker.markdown.frontmatter import BOM, SplitFile
from maadd_worker.markdown.text import js_text
from maadd_worker.markdown.yaml_events import Event, EventSource, read_events
from maadd_worker.markdown.yaml_scalars import CORE_TAG_PREFIX, core_scalar, tagged_scalar

__all__ = [
    "MAX_NESTING",
    "Frontmatter",
    "core_scalar",
    "key_lines",
    "load_frontmatter",
    "load_yaml_document",
    "read_frontmatter",
]

MAX_NODES = 65_536
MAX_NESTING = 100
MAX_SHAPE_DEPTH = 1
"""A list or map may stand at a top-level key (depth 0) and directly inside one (depth 1)."""


_PLAIN_KEY_STARTS = frozenset("_abcdefghijklmnopqrstuvwxyzABCDEGHIJKLMOPQRSUVWXYZ")
"""A plain key that starts with one of these is its own text: no number, no `Null` or `TRUE`
(`null`, `true` and `false` print as they are written)."""


class Frontmatter(msgspec.Struct, frozen=True):
    """The fields of a record in file order, and the 1-based file line of each key."""

    values: dict[str, Any]
    key_lines: dict[str, int]


def read_frontmatter(split: SplitFile, file: str) -> Frontmatter:
    """The fields of a split file.

    Raises PARSE_ERROR (not YAML, duplicate key, no mapping, several documents, unknown tag)
    and YAML_PROFILE_VIOLATION (a limit, the depth of values, a refused form), both with the
    place in the file. Aliased values are shared objects: treat the result as read-only.
    """
    if not split.block or split.block.isspace():
        return Frontmatter({}, {})
    # No shortcut around libyaml here, however fast: the profile forbids a parser of our own
    # (spec 01 §4.2).

    def build(source: EventSource) -> Frontmatter:
        reader = _ValueReader(source)
        values = reader.document()
        if values is None:
            return Frontmatter({}, {})
        if not isinstance(values, dict):
            raise parse_error(
                "frontmatter must be a mapping of fields (key: value lines)",
                file,
                split.block_start_line,
                1,
            )
        if reader.shape_violation is not None:
            raise reader.shape_violation
        return Frontmatter(values, reader.key_lines)

    return read_events(split.block, file, split.block_start_line, build)


def load_frontmatter(split: SplitFile, file: str) -> dict[str, Any]:
    """The fields alone; see `read_frontmatter`."""
    return read_frontmatter(split, file).values


def key_lines(split: SplitFile, file: str = "") -> dict[str, int]:
    """1-based file line of each top-level key."""
    return read_frontmatter(split, file).key_lines


def load_yaml_document(
    text: str, file: str, *, lone_surrogates: Literal["refuse", "keep"] = "refuse"
) -> Any:
    """Value of a plain YAML file (registry, schema): the same rules without the shape check.

    The text may start with a BOM and with `---`. An empty document is None.
    """
    return read_events(
        text.removeprefix(BOM),
        file,
        1,
        lambda source: _ValueReader(source).document(),
        lone_surrogates=lone_surrogates,
    )


class _Anchored(NamedTuple):
    value: Any
    nodes: int
    """Nodes the value is worth, aliases inside it expanded."""


class _ValueReader:
    """Builds the value of one document from its events, judging as it goes.

    Whoever reads a node off the events counts it.
    """

    __slots__ = (
        "_anchors",
        "_next_event",
        "_nodes",
        "_open_anchors",
        "_source",
        "_verbatim",
        "key_lines",
        "shape_violation",
    )

    def __init__(self, source: EventSource) -> None:
        self._source = source
        self._next_event = source.next_event
        self._verbatim = source.verbatim
        self._anchors: dict[str, _Anchored] = {}
        self._open_anchors: set[str] = set()
        self._nodes = 0
        self.key_lines: dict[str, int] = {}
        self.shape_violation: MaadError | None = None

    def document(self) -> Any:
        """The value of the one document of the stream; None for an empty stream."""
        next_event = self._next_event
        next_event()
        if type(next_event()) is StreamEndEvent:
            return None
        self._nodes = 1
        value = self._node(next_event(), -1, "")
        next_event()
        following = next_event()
        if type(following) is not StreamEndEvent:
            raise self._source.parse_error(
                "a second YAML document starts here; keep one", following.start_mark
            )
        return value

    def _node(self, event: Event, depth: int, path: str) -> Any:
        kind = type(event)
        if kind is AliasEvent:
            return self._alias(event, depth, path)
        if kind is ScalarEvent:
            value = self._scalar(event)
            if event.anchor is not None:
                self._anchors[event.anchor] = _Anchored(value, 1)
            return value
        if depth > MAX_SHAPE_DEPTH and self.shape_violation is None:
            self.shape_violation = self._too_deep(event, path)
        if depth > MAX_NESTING:
            raise self._source.profile_violation(
                f"more than {MAX_NESTING} levels of nesting", event.start_mark
            )
        anchor = event.anchor
        if anchor is None:
            return self._collection(event, depth, path)
        before = self._nodes - 1
        self._anchors.pop(anchor, None)
        self._open_anchors.add(anchor)
        value = self._collection(event, depth, path)
        self._open_anchors.discard(anchor)
        self._anchors[anchor] = _Anchored(value, self._nodes - before)
        return value

    def _collection(self, event: Event, depth: int, path: str) -> Any:
        is_map = type(event) is MappingStartEvent
        tag = event.tag
        if tag is not None and tag not in ("!", f"{CORE_TAG_PREFIX}{'map' if is_map else 'seq'}"):
            raise self._source.parse_error(
                f"tag {tag} is not supported here; remove it", event.start_mark
            )
        return self._mapping(event, depth, path) if is_map else self._sequence(event, depth, path)

    def _mapping(self, start: Event, depth: int, path: str) -> dict[str, Any]:
        result: dict[str, Any] = {}
        next_event = self._next_event
        verbatim = self._verbatim
        lines = self.key_lines if depth < 0 else {}
        simple_keys = verbatim and not start.flow_style and not self._source.has_lone_cr
        first_line = self._source.first_line
        while True:
            event = next_event()
            kind = type(event)
            # The common case, written out: an untagged text as key, an untagged scalar as value.
            if (
                simple_keys
                and kind is ScalarEvent
                and event.tag is None
                and event.anchor is None
                and (not event.implicit[0] or event.value[:1] in _PLAIN_KEY_STARTS)
            ):
                key = event.value
                line = first_line + event.start_mark.line
            elif kind is MappingEndEvent:
                return result
            else:
                key = self._key(event, start.flow_style)
                line = self._source.line(event.start_mark)
            if key in result:
                raise self._duplicate_key(key, event, lines)
            lines[key] = line
            self._nodes += 2
            if self._nodes > MAX_NODES:
                raise self._too_many(event)
            event = next_event()
            if (
                verbatim
                and type(event) is ScalarEvent
                and event.tag is None
                and event.anchor is None
            ):
                text = event.value
                result[key] = core_scalar(text) if event.implicit[0] else text
            else:
                result[key] = self._node(event, depth + 1, f"{path}.{key}" if path else key)

    def _sequence(self, start: Event, depth: int, path: str) -> list[Any]:
        items: list[Any] = []
        next_event = self._next_event
        verbatim = self._verbatim
        while True:
            event = next_event()
            kind = type(event)
            if kind is SequenceEndEvent:
                return items
            self._nodes += 1
            if self._nodes > MAX_NODES:
                raise self._too_many(event)
            if kind is ScalarEvent and verbatim and event.tag is None and event.anchor is None:
                text = event.value
                items.append(core_scalar(text) if event.implicit[0] else text)
                continue
            if kind is MappingStartEvent and start.flow_style and self._lacks_brace(event):
                raise self._source.profile_violation(
                    "quote this item, or write it as a map in braces", event.start_mark
                )
            items.append(self._node(event, depth + 1, f"{path}[{len(items)}]"))

    def _key(self, event: Event, in_flow: bool) -> str:
        kind = type(event)
        if kind is ScalarEvent:
            start = event.start_mark.index
            if in_flow and self._source.text[start - 1] == "?":
                raise self._source.profile_violation(
                    "a key cannot start with '?'; quote this key", event.start_mark
                )
            if event.tag is None and self._verbatim:
                text: str = event.value
                value = core_scalar(text) if event.implicit[0] else text
            else:
                value = self._scalar(event)
            if event.anchor is not None:
                self._anchors[event.anchor] = _Anchored(value, 1)
        elif kind is AliasEvent:
            value = self._alias(event, 0, "")
        else:
            value = ()
        if isinstance(value, str):
            return value
        if isinstance(value, dict | list | tuple):
            raise self._source.profile_violation(
                "a list or map cannot be a key; use a text", event.start_mark
            )
        return js_text(value)

    def _scalar(self, event: Event) -> Any:
        text = event.value if self._verbatim else self._source.scalar_text(event)
        if event.tag is not None:
            try:
                return tagged_scalar(event.tag, text, not event.style)
            except ValueError as failure:
                raise self._source.parse_error(str(failure), event.start_mark) from None
        return core_scalar(text) if event.implicit[0] else text

    def _alias(self, event: Event, depth: int, path: str) -> Any:
        name = event.anchor
        if name in self._open_anchors:
            raise self._source.profile_violation(
                f"alias *{name} contains itself; write the value out", event.start_mark
            )
        anchored = self._anchors.get(name)
        if anchored is None:
            raise self._source.parse_error(
                f"alias *{name} has no anchor before it; put the value in quotes if it is text",
                event.start_mark,
            )
        self._nodes += anchored.nodes - 1
        if self._nodes > MAX_NODES:
            raise self._too_many(event)
        height = _height(anchored.value)
        if height and depth + height - 1 > MAX_SHAPE_DEPTH and self.shape_violation is None:
            self.shape_violation = self._too_deep(event, path)
        return anchored.value

    def _too_many(self, event: Event) -> MaadError:
        return self._source.profile_violation(
            f"more than {MAX_NODES} values, aliases counted in full", event.start_mark
        )

    def _lacks_brace(self, start: Event) -> bool:
        return (
            start.anchor is None
            and start.tag is None
            and self._source.text[start.start_mark.index] != "{"
        )

    def _duplicate_key(self, key: str, event: Event, lines: dict[str, int]) -> MaadError:
        return self._source.parse_error(
            f"duplicate key {key[:128]!r}, first on line {lines[key]}; keep one", event.start_mark
        )

    def _too_deep(self, event: Event, path: str) -> MaadError:
        return self._source.profile_violation(
            f"{path[:256]} is nested too deep; a field holds at most a list or map of lists or "
            "maps of scalars",
            event.start_mark,
        )


def _height(value: Any) -> int:
    """Levels of nested collections in a value: 0 for a scalar."""
    if isinstance(value, dict):
        return 1 + max(map(_height, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_height, value), default=0)
    return 0
