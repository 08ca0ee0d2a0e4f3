"""One normalizer per extraction primitive (spec 01 §6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from maadd_worker.extract.numbers import (
    normalize_amount,
    normalize_measure,
    normalize_percentage,
    normalize_quantity,
)
from maadd_worker.extract.references import normalize_contact, normalize_media, normalize_name
from maadd_worker.extract.times import normalize_date, normalize_duration
from maadd_worker.schema.primitives import BUILTIN_SUBTYPES, PRIMITIVES

__all__ = ["BUILTIN_SUBTYPES", "PRIMITIVES", "normalize"]

_NORMALIZERS: Mapping[str, Callable[[str], str | None]] = MappingProxyType(
    {
        "entity": normalize_name,
        "date": normalize_date,
        "duration": normalize_duration,
        "amount": normalize_amount,
        "measure": normalize_measure,
        "quantity": normalize_quantity,
        "percentage": normalize_percentage,
        "location": normalize_name,
        "identifier": normalize_name,
        "contact": normalize_contact,
        "media": normalize_media,
    }
)


def normalize(primitive: str, value: str, kind: str | None = None) -> str | None:
    """The comparable text of a value, or None when the value has no such form.

    `kind` is the annotation's own type name and matters to contacts only; None stands for a
    frontmatter field. `primitive` is one of `PRIMITIVES`.
    """
    if primitive == "contact":
        return normalize_contact(value, kind)
    return _NORMALIZERS[primitive](value)
