"""Schemas as values: the fields of a record type and their rules (spec 01 §3)."""

from __future__ import annotations

from typing import Any

import msgspec

SCHEMA_FOLDER = "_schema"
IDENTITY_KEYS: tuple[str, ...] = ("doc_id", "doc_type", "schema")
"""Frontmatter keys that the engine owns; they need no field definition."""

FIELD_TYPES: tuple[str, ...] = (
    "string",
    "number",
    "date",
    "enum",
    "ref",
    "boolean",
    "list",
    "amount",
)

DAY_FORMAT = "YYYY-MM-DD"
"""The default format of a date field, and the only one with an effect."""


class FieldDef(msgspec.Struct, frozen=True):
    """One field of a schema, every default applied.

    `target` is set for a ref or a list of refs only, `values` for an enum or a list of enums
    only, `item_type` for a list only (None there behaves as `string`). Lengths are code points.
    """

    name: str
    type: str
    index: bool = False
    role: str | None = None
    format: str | None = None
    target: str | None = None
    values: tuple[str, ...] | None = None
    item_type: str | None = None
    default: Any = None
    store_precision: str | None = None
    on_coarser: str | None = None
    on_finer: str | None = None
    display_precision: str | None = None
    max_length: int | None = None
    soft_max_length: int | None = None
    multiline: bool | None = None

    @property
    def scalar_type(self) -> str:
        """The type of one value: the item type of a list, the type of any other field."""
        return (self.item_type or "string") if self.type == "list" else self.type


class TemplateHeading(msgspec.Struct, frozen=True):
    """One heading of the body that a create without `body` writes."""

    level: int
    text: str
    id: str | None


class Schema(msgspec.Struct, frozen=True):
    """One schema file. `type` is the name declared inside the file, `ref` its file stem."""

    ref: str
    type: str
    version: int
    required: tuple[str, ...]
    fields: dict[str, FieldDef]
    template: tuple[TemplateHeading, ...] = ()


def schema_path(ref: str) -> str:
    """Project-relative path of the schema file `ref`."""
    return f"{SCHEMA_FOLDER}/{ref}.yaml"
