"""Fingerprints that tell which index rows a changed model makes stale (spec 01 §14.2)."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from maadd_worker.schema.model import Model
from maadd_worker.schema.schema import Schema

EXTRACTOR_VERSION = 1
"""Raise it when the same file and schema give other objects, edges or field rows than before."""

VALIDATOR_VERSION = 1
"""Raise it when the same record and schema may be judged otherwise than before."""

_DIGITS = 16


def index_fingerprint(schema: Schema) -> str:
    """First 16 hex digits of SHA-256 over the sorted `name:type` of the indexed fields."""
    parts = sorted(f"{field.name}:{field.type}" for field in schema.fields.values() if field.index)
    return _digest("|".join(parts))


def derived_fingerprint(model: Model, doc_type: str) -> str:
    """Fingerprint of all that the derived rows of a type depend on.

    Covers indexed fields with item types and roles, ref fields and their targets, the id
    prefixes and the annotation types. Raises like `Model.schema`.
    """
    schema = model.schema(doc_type)
    fields = [
        [field.name, field.type, field.item_type, field.index, field.role, field.target]
        for field in schema.fields.values()
        if field.index or field.scalar_type == "ref"
    ]
    registry = model.registry
    return _fingerprint(
        [
            EXTRACTOR_VERSION,
            fields,
            sorted(registry.id_prefixes),
            sorted(registry.subtype_map.items()),
        ]
    )


def validation_fingerprint(model: Model, doc_type: str) -> str:
    """Fingerprint of the structural rules, which decide `valid` of indexed records.

    Precision and length rules bind writes only and are left out. Raises like `Model.schema`.
    """
    schema = model.schema(doc_type)
    types = model.registry.types
    fields = [
        [
            field.name,
            field.type,
            field.item_type,
            field.format if field.scalar_type == "date" else None,
            target.id_prefix if (target := types.get(field.target or "")) else None,
            field.values,
            field.default is not None,
        ]
        for field in schema.fields.values()
    ]
    return _fingerprint([VALIDATOR_VERSION, schema.required, fields])


def _fingerprint(parts: list[Any]) -> str:
    return _digest(json.dumps(parts, separators=(",", ":")))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
