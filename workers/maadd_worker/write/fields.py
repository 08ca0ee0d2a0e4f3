"""Caller-given fields: shape, identity guard, typed comparison (spec 03 §3.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.index.store import IndexWriter
from maadd_worker.markdown.serializer import check_keys
from maadd_worker.markdown.values import same_value
from maadd_worker.outcome import Advice
from maadd_worker.schema.schema import Schema

IDENTITY_KEYS = ("doc_id", "doc_type", "schema")


def parse_fields(value: object) -> dict[str, Any]:
    """The fields as a mapping; a JSON text of an object is accepted too.

    Raises INVALID_FIELDS for anything else and FRONTMATTER_GUARD for engine-owned keys.
    """
    return check_caller_keys(fields_object(value))


def fields_object(value: object) -> Mapping[str, Any]:
    """What the caller sent as an object, whatever its keys. INVALID_FIELDS for anything else."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise MaadError(
                "INVALID_FIELDS",
                f"fields is a text that is no JSON object ({error}); send an object",
                {"field": "fields"},
            ) from error
    if not isinstance(value, Mapping):
        raise MaadError(
            "INVALID_FIELDS",
            "fields must be an object of field names and values",
            {"field": "fields"},
        )
    return value


def check_caller_keys(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, none of which is the engine's. FRONTMATTER_GUARD, INVALID_FIELDS for a key that
    cannot be stored."""
    owned = [key for key in IDENTITY_KEYS if key in fields]
    if owned:
        raise MaadError(
            "FRONTMATTER_GUARD",
            f"{', '.join(owned)}: written by the engine only; leave them out of fields "
            "(a new record's id goes into docId)",
        )
    check_keys(fields)
    return dict(fields)


def original_bytes(text: str) -> bytes:
    """The bytes of a file that a caller sent as text; half characters are left to the parser,
    which refuses them with their place."""
    return text.encode("utf-8", "surrogatepass")


def changed_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Keys whose value differs, in the order of `after`, then removed ones."""
    changed = [
        key
        for key, value in after.items()
        if key not in before or not same_value(before[key], value)
    ]
    return changed + [key for key in before if key not in after]


def missing_refs(
    writer: IndexWriter,
    schema: Schema,
    frontmatter: Mapping[str, Any],
    names: set[str] | None,
    claimed: frozenset[str] | set[str],
) -> tuple[Advice, ...]:
    """Warnings for refs that point to no live record; `names` limits them to some fields."""
    advice = []
    for field in schema.fields.values():
        if names is not None and field.name not in names:
            continue
        value = frontmatter.get(field.name)
        if field.type == "ref":
            targets = [value]
        elif field.type == "list" and field.item_type == "ref" and isinstance(value, list):
            targets = value
        else:
            continue
        for target in targets:
            if isinstance(target, str) and target not in claimed and writer.find(target) is None:
                advice.append(
                    Advice(field.name, f'"{target}" is no record yet', "REF_TARGET_MISSING")
                )
    return tuple(advice)
