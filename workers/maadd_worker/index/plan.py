"""What the index needs to know of a type, prepared once per model (spec 01 §14.2)."""

from __future__ import annotations

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.schema.fingerprint import derived_fingerprint, validation_fingerprint
from maadd_worker.schema.model import Model
from maadd_worker.schema.registry import TypeEntry
from maadd_worker.schema.schema import FieldDef, Schema

_NUMERIC = ("number", "amount")


class TypePlan(msgspec.Struct, frozen=True):
    """One type ready for indexing.

    `fields` are the indexed fields by name, each with its type and whether it sorts and compares
    as a number. `fingerprint` covers everything that rows of the type depend on:
    derived rows and validity.
    """

    entry: TypeEntry
    schema: Schema
    fields: tuple[tuple[str, str, bool], ...]
    fingerprint: str


class TypePlans(msgspec.Struct, frozen=True):
    """The plans of one model, made on demand."""

    model: Model
    made: dict[str, TypePlan] = msgspec.field(default_factory=dict)

    def plan(self, doc_type: str) -> TypePlan:
        """The plan of a type; UNKNOWN_TYPE without a registry entry or a usable schema."""
        plan = self.made.get(doc_type)
        if plan is None:
            plan = self.made[doc_type] = _make(self.model, doc_type)
        return plan

    def fingerprint(self, doc_type: str | None) -> str:
        """The fingerprint of a type, empty for one that cannot be indexed."""
        if doc_type is None:
            return ""
        try:
            return self.plan(doc_type).fingerprint
        except MaadError:
            return ""


def is_numeric(field: FieldDef) -> bool:
    """Whether the field's values, a list's items, compare as numbers."""
    return field.scalar_type in _NUMERIC


def _make(model: Model, doc_type: str) -> TypePlan:
    entry = model.entry(doc_type)
    try:
        schema = model.schema(doc_type)
    except MaadError as error:
        raise MaadError("UNKNOWN_TYPE", error.message, error.details) from error
    return TypePlan(
        entry,
        schema,
        tuple(
            (name, field.type, is_numeric(field))
            for name, field in sorted(schema.fields.items())
            if field.index
        ),
        derived_fingerprint(model, doc_type) + validation_fingerprint(model, doc_type),
    )
