"""What a parsed record gives to the index: objects, edges, field rows (spec 01 §6.3, §7, §12)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import msgspec

from maadd.protocol.doc_ids import doc_id_fault
from maadd_worker.extract.numbers import field_number, money_decimal
from maadd_worker.extract.primitives import normalize
from maadd_worker.extract.references import looks_like_contact
from maadd_worker.markdown.annotations import Annotation
from maadd_worker.markdown.blocks import Block
from maadd_worker.markdown.document import ParsedDocument
from maadd_worker.markdown.text import js_text
from maadd_worker.schema.registry import Registry
from maadd_worker.schema.schema import FieldDef, Schema

_FIELD_SOURCE_LINE = 1
_PRIMITIVE_OF_TYPE = {"date": "date", "amount": "amount", "number": "quantity"}


class ExtractedObject(msgspec.Struct, frozen=True):
    """A typed value found in a record. `role` comes from the schema, `block_id` from the body;
    `source_line` is the file line of an annotation and 1 for a field."""

    primitive: str
    subtype: str
    value: str
    normalized: str | None
    label: str
    role: str | None
    source_line: int
    block_id: str | None


class Relationship(msgspec.Struct, frozen=True):
    """An edge to another record. `relation_type` is `ref` or `mention`, `field` the name of the
    field or annotation type it stands in, `origin_kind` `field` or `annotation`."""

    target: str
    field: str
    relation_type: str
    source_line: int | None
    source_block_id: str | None
    origin_kind: str


class FieldRow(msgspec.Struct, frozen=True):
    """One value of an indexed field. `type` is the field's (`list` for list items); `decimal` is
    the number of an amount as written, for exact sums."""

    name: str
    text: str
    numeric: float | None
    type: str
    decimal: str | None = None


class Extraction(msgspec.Struct, frozen=True):
    """Everything derived from one record, in the order in which it is stored."""

    objects: tuple[ExtractedObject, ...]
    relationships: tuple[Relationship, ...]
    field_rows: tuple[FieldRow, ...]


def extract(parsed: ParsedDocument, schema: Schema, registry: Registry) -> Extraction:
    """Derive objects, edges and field rows: fields in schema order, then annotations.

    Takes valid and invalid records alike; a value without a normal form is kept as text.
    """
    objects: list[ExtractedObject] = []
    edges: list[Relationship] = []
    rows: list[FieldRow] = []
    value_of = parsed.frontmatter.get
    for name, field in schema.fields.items():
        value = value_of(name)
        if value is None:
            continue
        kind = field.scalar_type
        if field.index:
            if isinstance(value, list):
                for item in value:
                    if item is not None:
                        _add_value(field, kind, item, objects, rows)
            else:
                _add_value(field, kind, value, objects, rows)
        if kind == "ref":
            line = parsed.key_lines.get(name)
            edges.extend(
                Relationship(target, name, "ref", line, None, "field")
                for target in _ref_targets(field, value)
            )
    if parsed.annotations:
        block_starts = [block.start_line for block in parsed.blocks]
        for annotation in parsed.annotations:
            block_id = _block_id(annotation.line, parsed.blocks, block_starts)
            objects.append(_annotation_object(annotation, block_id, registry))
            if _is_mention(annotation.value, registry):
                edges.append(
                    Relationship(
                        annotation.value,
                        annotation.type,
                        "mention",
                        annotation.line,
                        block_id,
                        "annotation",
                    )
                )
    return Extraction(tuple(objects), tuple(edges), tuple(rows))


def indexed_items(value: object) -> Iterator[object]:
    """The values to index: the items of a list without nulls, or the value itself."""
    if isinstance(value, list):
        return (item for item in value if item is not None)
    return iter((value,))


def _add_value(
    field: FieldDef,
    kind: str,
    value: object,
    objects: list[ExtractedObject],
    rows: list[FieldRow],
) -> None:
    """Add the object and the row of one value of an indexed field."""
    text = value if isinstance(value, str) else js_text(value)
    numeric = decimal = None
    primitive = _PRIMITIVE_OF_TYPE.get(kind)
    if primitive is None:
        contact = kind == "string" and looks_like_contact(text)
        primitive = "contact" if contact else "entity"
    elif kind != "date":
        numeric = field_number(kind, value)
        if kind == "amount" and numeric is not None:
            decimal = money_decimal(text)
    normalized = normalize(primitive, text)
    objects.append(
        ExtractedObject(
            primitive, field.name, text, normalized, text, field.role, _FIELD_SOURCE_LINE, None
        )
    )
    rows.append(FieldRow(field.name, text, numeric, field.type, decimal))


def _ref_targets(field: FieldDef, value: object) -> list[str]:
    """The texts a ref field points to; empty texts and other values make no edge."""
    if field.type == "list":
        items = value if isinstance(value, list) else []
        return [item for item in items if isinstance(item, str) and item]
    return [value] if isinstance(value, str) and value else []


def _annotation_object(
    annotation: Annotation, block_id: str | None, registry: Registry
) -> ExtractedObject:
    primitive = registry.subtype_map.get(annotation.type, "entity")
    return ExtractedObject(
        primitive,
        annotation.type,
        annotation.value,
        normalize(primitive, annotation.value, annotation.type),
        annotation.label,
        None,
        annotation.line,
        block_id,
    )


def _block_id(line: int, blocks: Sequence[Block], starts: Sequence[int]) -> str | None:
    """The id of the block that holds the line; None for the preamble and outside of blocks."""
    position = bisect_right(starts, line) - 1
    if position < 0 or line > blocks[position].end_line:
        return None
    return blocks[position].block_id or None


def _is_mention(value: str, registry: Registry) -> bool:
    """Whether an annotation's value is a document id with the prefix of a registered type."""
    prefix, hyphen, _ = value.partition("-")
    return bool(hyphen) and prefix in registry.id_prefixes and doc_id_fault(value) is None
