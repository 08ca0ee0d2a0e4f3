"""The plan of an import: which types there will be, and what becomes of each item."""

from __future__ import annotations

import fnmatch
from typing import Any, Literal

import msgspec

from maadd_worker.imports.source import Item

LinkMode = Literal["keep", "refs", "mentions"]

FILE_NAME = "file name"
TITLE = "title"
HEADING = "heading"
DATE_IN_NAME = "date in file name"
SECTION = "section "
"""Where ids and derived fields come from, beside the names of fields."""


class TypePlan(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """One type: its registry entry, its schema, and which items are its records.

    An item is of the first type whose `folders` hold it (`.` is the whole source, `notes` that
    folder with all below), that has all fields of `having`, and `doc_type` where one is given.

    `id_from` is a field, or `file name` or `title`. `derive` fills fields that an item has not:
    with its first `heading`, the `date in file name`, or the first line of `section <heading>`.
    `body` is the column of a table that becomes the body. `links` names, by target type, the
    field that lists what a body links to. An `existing` type keeps its schema and its entry.
    """

    path: str
    id_prefix: str
    schema: str
    existing: bool = False
    folders: tuple[str, ...] = (".",)
    having: tuple[str, ...] = ()
    doc_type: str | None = None
    id_from: str = FILE_NAME
    derive: dict[str, str] = {}
    body: str | None = None
    links: dict[str, str] = {}
    required: tuple[str, ...] = ()
    fields: dict[str, dict[str, Any]] = {}

    def takes(self, item: Item) -> bool:
        """Whether the item meets the conditions."""
        if self.doc_type is not None and item.fields.get("doc_type") != self.doc_type:
            return False
        if not all(item.fields.get(name) is not None for name in self.having):
            return False
        return any(
            folder == "." or item.folder == folder or item.folder.startswith(f"{folder}/")
            for folder in self.folders
        )

    def schema_document(self, name: str) -> dict[str, Any]:
        """What the schema file of the type says."""
        return {
            "type": name,
            "version": int(self.schema.rpartition(".v")[2] or 1),
            "required": list(self.required),
            "fields": self.fields,
        }


class ImportPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that an import does. `ids` are ids by item; `leave_out` are patterns of items
    that nobody wants."""

    plan: Literal[1] = 1
    source: str = ""
    links: LinkMode = "keep"
    leave_out: tuple[str, ...] = ()
    ids: dict[str, str] = {}
    types: dict[str, TypePlan]

    def type_of(self, item: Item) -> str | None:
        """The type of an item, None when no type takes it."""
        return next((name for name, one in self.types.items() if one.takes(item)), None)

    def leaves_out(self, key: str) -> bool:
        """Whether a pattern of `leave_out` names the item or a folder that it is in."""
        return any(
            fnmatch.fnmatchcase(key, pattern) or key.startswith(f"{pattern.rstrip('/')}/")
            for pattern in self.leave_out
        )
