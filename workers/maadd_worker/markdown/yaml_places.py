"""Where the keys and items of a YAML document stand, for messages about them (spec 01 §4.2)."""

from __future__ import annotations

from yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    StreamEndEvent,
)

from maadd_worker.markdown.frontmatter import BOM
from maadd_worker.markdown.text import js_text
from maadd_worker.markdown.yaml_events import Event, EventSource, Place, read_events
from maadd_worker.markdown.yaml_scalars import core_scalar

Path = tuple[str | int, ...]
"""Keys and numbers of items from the top of the document."""


Places = dict[Path, Place]


def find_places(text: str, file: str) -> Places:
    """The place of every key and of every item of a list; `()` is that of the document.

    For a document that `load_yaml_document` takes. What an alias repeats has none.
    """
    return read_events(text.removeprefix(BOM), file, 1, _of_document)


def _of_document(source: EventSource) -> Places:
    source.next_event()
    if type(source.next_event()) is StreamEndEvent:
        return {}
    first = source.next_event()
    places: Places = {(): source.place(first.start_mark)}
    _add_children(source, first, (), places)
    return places


def _add_children(source: EventSource, start: Event, path: Path, places: Places) -> None:
    if type(start) in (ScalarEvent, AliasEvent):
        return
    number = 0
    while type(event := source.next_event()) not in (MappingEndEvent, SequenceEndEvent):
        name: str | int = number
        place = source.place(event.start_mark)
        if type(start) is MappingStartEvent:
            name = _key_text(source, event)
            event = source.next_event()
        number += 1
        places[*path, name] = place
        _add_children(source, event, (*path, name), places)


def _key_text(source: EventSource, event: Event) -> str:
    if type(event) is AliasEvent:
        return f"*{event.anchor}"
    text = source.scalar_text(event)
    value = core_scalar(text) if event.implicit[0] and event.tag is None else text
    return value if isinstance(value, str) else js_text(value)
