"""A frontmatter block after a change of fields (spec 01 §9.1)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from maadd_worker.markdown.layout import BlockLayout, Entry, comments_in
from maadd_worker.markdown.values import same_value
from maadd_worker.markdown.yaml_write import yaml_string, yaml_value

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


@dataclass(frozen=True, slots=True)
class BlockEdit:
    """A block with its layout, the fields it holds, and the fields it shall hold.

    `key_order` names every wanted key; a new one is written behind the nearest key before it
    that the block has. `newline` is the line end of new lines.
    """

    block: str
    layout: BlockLayout
    newline: str
    stored: Mapping[str, Any]
    wanted: Mapping[str, Any]
    key_order: Sequence[str]


def field_line(key: str, value: Any) -> str:
    """`key: value` without a line end."""
    return f"{yaml_string(key, in_flow=False)}: {yaml_value(value, key)}"


def edit_lines(edit: BlockEdit) -> str:
    """The block with only the lines of changed, new and removed fields touched.

    Works on a line-based layout; blank lines and comments stay, except the comment lines
    right above a removed field.
    """
    entries = dict(zip(edit.stored, edit.layout.entries, strict=True))
    rewritten = _fields_to_rewrite(edit, entries)
    first = next(iter(entries.values()), None)
    indent = " " * (first.key_start - first.start) if first else ""
    added = {
        place: "".join(f"{indent}{field_line(key, edit.wanted[key])}{edit.newline}" for key in keys)
        for place, keys in _new_keys(edit).items()
    }
    if first is None:
        return edit.block + added.get(None, "")

    parts: list[str] = []
    position = 0
    for key, entry in entries.items():
        gap = edit.block[position : entry.start]
        attached = _attached_comments(gap)
        parts.append(gap[:attached])
        if position == 0:
            parts.append(added.get(None, ""))
        if key in edit.wanted:
            parts.append(gap[attached:])
            if key in rewritten:
                parts.append(_edited_entry(edit, entry, yaml_value(edit.wanted[key], key)))
            else:
                parts.append(edit.block[entry.start : entry.end])
        parts.append(added.get(key, ""))
        position = entry.end
    parts.append(edit.block[position:])
    return "".join(parts)


def rebuild(edit: BlockEdit) -> str:
    """Every wanted field on one new line, the comments of the block above their fields."""
    new_keys = _new_keys(edit)
    lines = [field_line(key, edit.wanted[key]) for key in new_keys.get(None, ())]
    position = 0
    for key, entry in zip(edit.stored, edit.layout.entries, strict=True):
        lines += comments_in(edit.block, position, entry.key_start)
        lines += entry.comments
        if key in edit.wanted:
            lines.append(field_line(key, edit.wanted[key]))
        lines += [field_line(new_key, edit.wanted[new_key]) for new_key in new_keys.get(key, ())]
        position = entry.value_end
    lines += comments_in(edit.block, position, len(edit.block))
    return "".join(f"{line}{edit.newline}" for line in lines)


def _new_keys(edit: BlockEdit) -> dict[str | None, list[str]]:
    """New keys by the stored key they follow; None before all of them."""
    places: dict[str | None, list[str]] = {}
    place = None
    for key in edit.key_order:
        if key in edit.stored:
            place = key
        else:
            places.setdefault(place, []).append(key)
    return places


def _fields_to_rewrite(edit: BlockEdit, entries: Mapping[str, Entry]) -> set[str]:
    """Fields with another value, and those with aliases when an anchor may go away."""
    changed = {
        key
        for key, value in edit.stored.items()
        if key not in edit.wanted or not same_value(value, edit.wanted[key])
    }
    if any(entries[key].anchored for key in changed):
        changed |= {key for key, entry in entries.items() if entry.aliased}
    return changed


def _edited_entry(edit: BlockEdit, entry: Entry, value: str) -> str:
    """The lines of a field with another value; what stands around the value stays."""
    block = edit.block
    rest = block[entry.value_end : entry.end]
    before = block[entry.start : entry.value_start]
    if "\n" in before:
        before = block[entry.start : block.index(":", entry.key_end) + 1]
    if before.endswith(":"):
        before += " "
    comments = ""
    if "\n" in block[entry.key_end : entry.value_end]:
        indent = block[entry.start : entry.key_start]
        comments = "".join(f"{indent}{comment}{edit.newline}" for comment in entry.comments)
    return f"{comments}{before}{value}{rest}"


def _attached_comments(gap: str) -> int:
    """Where in the lines above a field its own comment lines begin."""
    attached = len(gap)
    for line in reversed(_LINE.findall(gap)):
        if not line.lstrip(" \t").startswith("#"):
            break
        attached -= len(line)
    return attached
