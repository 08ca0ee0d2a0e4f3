"""Material on its way in: what a source holds, item by item (`maad import`, spec 04 §19; ours).

A source is only ever read. Its items are Markdown files, or the rows of one table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from maadd.protocol.errors import MaadError

SourceKind = Literal["markdown", "csv", "jsonl"]


class Misfit(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Something that did not become a record: where, why, and what to do about it."""

    source: str
    reason: str
    advice: str
    line: int | None = None


class Link(msgspec.Struct, frozen=True):
    """A link in a body. `start` and `end` are code points of the body, `line` is the file's.

    `target` is what it names, `heading` the place in there, `label` what it shows, each as
    written. `wiki` links stand in `[[ ]]`, the others in `[ ]( )`. An embedding has a `!`.
    """

    start: int
    end: int
    line: int
    target: str
    heading: str
    label: str
    wiki: bool
    embeds: bool


class Item(msgspec.Struct, frozen=True):
    """One file or row.

    `key` names it within the source: a relative path, or the number of a row. `raw` has, for
    values that are no text, the text they were written with. `sections` has the first line
    below each heading. `digest` is the SHA-256 of its bytes, `size` their number.
    """

    key: str
    digest: str
    fields: Mapping[str, Any]
    field_lines: Mapping[str, int]
    raw: Mapping[str, Any]
    line: int = 1
    heading: str | None = None
    sections: Mapping[str, str] = {}
    links: tuple[Link, ...] = ()
    size: int = 0

    @property
    def empty(self) -> bool:
        """Whether there is nothing in it at all."""
        return self.size == 0

    @property
    def folder(self) -> str:
        """The folder of a file within the source, empty for the source itself."""
        return self.key.rpartition("/")[0]

    @property
    def stem(self) -> str:
        """The name of a file without its suffix."""
        name = self.key.rpartition("/")[2]
        return name.rpartition(".")[0] or name


class Source(msgspec.Struct, frozen=True):
    """A source that was read once; `path` is absolute, `name` what its folder or file is called.

    `others` counts files that are no Markdown, by suffix; `passed_over` are folders that were
    not looked into, and hidden Markdown files. `read_text` gives the whole text of a Markdown
    item, and raises MaadError when it is no longer what was read.
    """

    kind: SourceKind
    path: str
    name: str
    items: tuple[Item, ...]
    misfits: tuple[Misfit, ...]
    read_text: Callable[[Item], str]
    others: Mapping[str, int] = {}
    passed_over: tuple[str, ...] = ()

    @property
    def textual(self) -> bool:
        """Whether every value is a text, so that other types show in its form only."""
        return self.kind == "csv"


_PLACE = re.compile(r"^:[0-9]+(?::[0-9]+)?: ")

Progress = Callable[[int, int], None]
"""Told how many items are done, of how many."""


def misfit_of(key: str, error: MaadError, advice: str | None = None) -> Misfit:
    """The misfit that an error makes of an item: its message is `reason; advice`."""
    reason, _, next_step = error.message.partition("; ")
    line = error.location.line if error.location is not None else (error.details or {}).get("line")
    reason = _PLACE.sub("", reason.removeprefix(key))
    return Misfit(key, reason, advice or next_step or "correct the file and run again", line)
