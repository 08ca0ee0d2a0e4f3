"""The child rows of one record as tuples in column order (spec 01 §12)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import astuple

from maadd_worker.extract.extraction import ExtractedObject, FieldRow, Relationship
from maadd_worker.index.layout import (
    ALONE,
    LARGEST,
    NUMBER_KNOWN,
    NUMBER_UNPARSEABLE,
    SMALLEST,
)
from maadd_worker.index.plan import TypePlan
from maadd_worker.markdown.blocks import Block

Row = tuple[Any, ...]

_ONLY = SMALLEST | LARGEST | ALONE


def object_rows(doc_id: str, objects: Sequence[ExtractedObject]) -> list[Row]:
    """Rows of `objects`, whose members are the columns behind the key."""
    return [(doc_id, number, *astuple(found)) for number, found in enumerate(objects)]


def relationship_rows(
    doc_id: str, doc_type: str, relationships: Sequence[Relationship]
) -> list[Row]:
    """Rows of `relationships`, whose members are the columns between key and type."""
    return [(doc_id, number, *astuple(edge), doc_type) for number, edge in enumerate(relationships)]


def block_rows(doc_id: str, blocks: Sequence[Block]) -> list[Row]:
    """Rows of `blocks`; an empty id is stored as null."""
    return [
        (
            doc_id,
            number,
            block.block_id or None,
            block.heading,
            block.level,
            block.start_line,
            block.end_line,
        )
        for number, block in enumerate(blocks)
    ]


def field_value_rows(doc_id: str, plan: TypePlan, values: Sequence[FieldRow]) -> list[Row]:
    """Rows of `field_values`: the values, and one row for each indexed field without any."""
    doc_type = plan.entry.name
    by_name: dict[str, list[FieldRow]] = {}
    for value in values:
        known = by_name.get(value.name)
        if known is None:
            by_name[value.name] = [value]
        else:
            known.append(value)
    rows: list[Row] = []
    for name, field_type, numeric in plan.fields:
        found = by_name.get(name)
        if found is None:
            rank, number = (0, 0.0) if numeric else (None, None)
            rows.append((doc_id, name, 0, doc_type, field_type, 0, "", rank, number, None, _ONLY))
            continue
        extremes = (_ONLY,) if len(found) == 1 else _extremes(found, numeric)
        for place, item in enumerate(found):
            rank, number = _numeric(item) if numeric else (None, None)
            rows.append(
                (doc_id, name, place, doc_type, field_type, 1, item.text, rank, number,
                 item.decimal, extremes[place])
            )  # fmt: skip
    return rows


def _extremes(items: list[FieldRow], numeric: bool) -> list[int]:
    """For each item of a list the bits of `extreme`: what the list sorts by either way.

    Among numbers an item that is none counts only when no item is one.
    """
    places = range(len(items))
    if numeric:
        numbers = [_numeric(item) for item in items]
        best = max(rank for rank, _ in numbers)
        counting = [place for place in places if numbers[place][0] == best]
        smallest = min(counting, key=numbers.__getitem__)
        largest = max(counting, key=numbers.__getitem__)
    else:
        texts = [item.text for item in items]
        smallest = min(places, key=texts.__getitem__)
        largest = max(places, key=texts.__getitem__)
    return [SMALLEST * (place == smallest) | LARGEST * (place == largest) for place in places]


def _numeric(value: FieldRow) -> tuple[int, float]:
    if value.numeric is None:
        return NUMBER_UNPARSEABLE, 0.0
    return NUMBER_KNOWN, float(value.numeric)
