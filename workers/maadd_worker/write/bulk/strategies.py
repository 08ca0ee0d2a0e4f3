"""The repairs of `maad_repair_where` as functions of frontmatter (spec 03 §5.6)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.schema.model import Model
from maadd_worker.schema.schema import IDENTITY_KEYS, FieldDef, Schema

Frontmatter = Mapping[str, Any]
IsLive = Callable[[str], bool]


class Repaired(msgspec.Struct, frozen=True):
    """The frontmatter after a repair; `changed` are the keys that differ, `kept` fields with
    list items that are no refs and were left alone."""

    frontmatter: dict[str, Any]
    changed: tuple[str, ...]
    kept: tuple[str, ...] = ()


def prune_orphan_refs(
    frontmatter: Frontmatter, doc_type: str, model: Model, is_live: IsLive
) -> Repaired:
    """Refs to records that do not live become null, in lists they go.

    A type without a usable schema has no refs to prune.
    """
    after = dict(frontmatter)
    changed: list[str] = []
    kept: list[str] = []
    for field in _ref_fields(doc_type, model):
        value = frontmatter.get(field.name)
        if field.type == "ref":
            if isinstance(value, str) and not is_live(value):
                after[field.name] = None
                changed.append(field.name)
        elif isinstance(value, list):
            left = [item for item in value if not isinstance(item, str) or is_live(item)]
            if len(left) != len(value):
                after[field.name] = left
                changed.append(field.name)
            if not all(isinstance(item, str) for item in left):
                kept.append(field.name)
    return Repaired(after, tuple(changed), tuple(kept))


def fix_schema_drift(
    frontmatter: Frontmatter, doc_type: str, model: Model, _is_live: IsLive
) -> Repaired:
    """A record of an older schema brought to the type's present one; nothing is coerced.

    Raises REPAIR_REQUIRES_MIGRATION for a type without a usable schema, and for values that
    do not have the declared shape.
    """
    schema = _target_schema(doc_type, model)
    if frontmatter.get("schema") == schema.ref:
        return Repaired(dict(frontmatter), ())
    after = {
        key: value
        for key, value in frontmatter.items()
        if key in IDENTITY_KEYS or key in schema.fields
    }
    changed = [key for key in frontmatter if key not in after]
    for name, field in schema.fields.items():
        value = after.get(name)
        if name not in IDENTITY_KEYS and value is not None and not _has_shape(field, value):
            raise MaadError(
                "REPAIR_REQUIRES_MIGRATION",
                f"{name} is no {field.type} as {schema.ref} declares; change the value first",
            )
    for name, field in schema.fields.items():
        if name not in after and field.default is not None and name not in schema.required:
            after[name] = field.default
            changed.append(name)
    after["schema"] = schema.ref
    return Repaired(after, (*changed, "schema"))


STRATEGIES: Mapping[str, Callable[[Frontmatter, str, Model, IsLive], Repaired]] = {
    "prune_orphan_refs": prune_orphan_refs,
    "fix_schema_drift": fix_schema_drift,
}


def _ref_fields(doc_type: str, model: Model) -> list[FieldDef]:
    try:
        fields = model.schema(doc_type).fields.values()
    except MaadError:
        return []
    return [field for field in fields if field.scalar_type == "ref"]


def _target_schema(doc_type: str, model: Model) -> Schema:
    try:
        return model.schema(doc_type)
    except MaadError as error:
        raise MaadError(
            "REPAIR_REQUIRES_MIGRATION", f"there is no schema to repair to: {error.message}"
        ) from error


def _has_shape(field: FieldDef, value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match field.type:
        case "number":
            return number
        case "boolean":
            return isinstance(value, bool)
        case "list":
            return isinstance(value, list)
        case "amount":
            return number or isinstance(value, str)
        case "date":
            return isinstance(value, str | dt.datetime)
        case _:
            return isinstance(value, str)
