"""The eleven extraction primitives and the built-in annotation types (spec 01 §6.1)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

PRIMITIVES: tuple[str, ...] = (
    "entity",
    "date",
    "duration",
    "amount",
    "measure",
    "quantity",
    "percentage",
    "location",
    "identifier",
    "contact",
    "media",
)
"""The order in which the tools list them (spec 02 §3.3)."""

_SUBTYPES_BY_PRIMITIVE = {
    "entity": "person org team product event role",
    "date": "datetime",
    "duration": "timespan",
    "amount": "currency price",
    "measure": "weight height distance temperature dosage area",
    "quantity": "count",
    "percentage": "rate ratio",
    "location": "address place coordinates",
    "identifier": "case_number invoice license reference code",
    "contact": "email phone url",
    "media": "image video audio document diagram",
}

BUILTIN_SUBTYPES: Mapping[str, str] = MappingProxyType(
    {primitive: primitive for primitive in PRIMITIVES}
    | {
        subtype: primitive
        for primitive, subtypes in _SUBTYPES_BY_PRIMITIVE.items()
        for subtype in subtypes.split()
    }
)
"""Annotation type -> primitive; every primitive name maps to itself."""
