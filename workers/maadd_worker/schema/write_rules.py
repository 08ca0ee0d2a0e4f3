"""The rules that bind new values only: precision and text constraints (spec 01 §8).

Validation in write mode applies them to what a call changes; the audit lists where stored
records break them. Neither ever makes a stored record invalid.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from maadd_worker.schema.precision import literal_precision, rank
from maadd_worker.schema.schema import FieldDef, Schema

MULTILINE_NOT_ALLOWED = "FIELD_MULTILINE_NOT_ALLOWED"
MAX_LENGTH_EXCEEDED = "FIELD_MAX_LENGTH_EXCEEDED"
SOFT_MAX_LENGTH_EXCEEDED = "FIELD_SOFT_MAX_LENGTH_EXCEEDED"


class PrecisionDrift(msgspec.Struct, frozen=True):
    """A date written `coarser` or `finer` (`direction`) than its field declares."""

    field: str
    declared: str
    actual: str
    direction: str


class ConstraintViolation(msgspec.Struct, frozen=True):
    """A text against a constraint of its field; lengths in code points, null for line breaks.

    `severity` is `error` or `warning`.
    """

    field: str
    code: str
    actual: int | None
    limit: int | None
    severity: str


def precision_drift(schema: Schema, frontmatter: Mapping[str, object]) -> list[PrecisionDrift]:
    """Every date of a stored record that differs from its declared precision.

    Finer ones are listed for fields that set `on_finer` only.
    """
    found: list[PrecisionDrift] = []
    for name, field in schema.fields.items():
        if field.store_precision is None:
            continue
        drift = date_drift(field, frontmatter.get(name))
        if drift is not None:
            found.append(drift)
    return found


def constraint_violations(
    schema: Schema, frontmatter: Mapping[str, object]
) -> list[ConstraintViolation]:
    """Every text of a stored record that breaks a length or line rule."""
    found: list[ConstraintViolation] = []
    for name, field in schema.fields.items():
        if field.type == "string":
            found.extend(text_violations(field, frontmatter.get(name)))
    return found


def date_drift(field: FieldDef, value: object) -> PrecisionDrift | None:
    """How the literal text of a date differs from `store_precision`; None when it agrees, has
    no known form, or is finer in a field without `on_finer`."""
    declared = field.store_precision
    if declared is None or not isinstance(value, str):
        return None
    actual = literal_precision(value)
    if actual is None or actual == declared:
        return None
    if rank(actual) < rank(declared):
        return PrecisionDrift(field.name, declared, actual, "coarser")
    if field.on_finer is None:
        return None
    return PrecisionDrift(field.name, declared, actual, "finer")


def text_violations(field: FieldDef, value: object) -> list[ConstraintViolation]:
    """The constraints of a string field that `value` breaks; hard and soft limit independently."""
    if not isinstance(value, str):
        return []
    found: list[ConstraintViolation] = []
    if field.multiline is False and ("\n" in value or "\r" in value):
        found.append(ConstraintViolation(field.name, MULTILINE_NOT_ALLOWED, None, None, "error"))
    length, limit, soft = len(value), field.max_length, field.soft_max_length
    if limit is not None and length > limit:
        found.append(ConstraintViolation(field.name, MAX_LENGTH_EXCEEDED, length, limit, "error"))
    if soft is not None and length > soft:
        found.append(
            ConstraintViolation(field.name, SOFT_MAX_LENGTH_EXCEEDED, length, soft, "warning")
        )
    return found
