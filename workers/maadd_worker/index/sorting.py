"""The sort contract of queries (spec 02 §4.2).

Every order is total: (rank, value, doc_id), all in one direction. Records without the field
have rank 0, records whose number cannot be read rank 1, the others rank 2, so the first come
first ascending and last descending.
"""

from __future__ import annotations

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.index.layout import LARGEST, SMALLEST
from maadd_worker.index.plan import is_numeric
from maadd_worker.schema.model import Model

SYSTEM_KEYS: tuple[str, ...] = ("doc_id", "doc_type", "updated_at", "indexed_at", "created_at")

_ALIASES = {
    "docId": "doc_id",
    "docType": "doc_type",
    "updatedAt": "updated_at",
    "indexedAt": "indexed_at",
    "createdAt": "created_at",
} | {key: key for key in SYSTEM_KEYS}

_INDEX_OF_KEY = {
    "doc_id": "documents_by_id",
    "doc_type": "documents_by_id",
    "updated_at": "documents_by_updated_at",
    "indexed_at": "documents_by_indexed_at",
    "created_at": "documents_by_created_at",
}


class Sort(msgspec.Struct, frozen=True):
    """A resolved order. `key` is a system key or a field name; `index` names the SQLite index
    that holds one type in this order."""

    key: str
    descending: bool
    is_field: bool
    numeric: bool
    index: str

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Columns that decide before the id: of `field_values` for a field, else `documents`."""
        if not self.is_field:
            return () if self.key == "doc_id" else (self.key,)
        if self.numeric:
            return ("numeric_rank", "numeric_value")
        return ("present", "field_value")

    @property
    def extreme(self) -> int:
        """The bit of `extreme` that marks the one row a record is ordered by."""
        return LARGEST if self.descending else SMALLEST


DEFAULT_SORT = Sort("indexed_at", True, False, False, _INDEX_OF_KEY["indexed_at"])
"""Without `sortBy`: newest index stamp first, then doc_id, both descending."""


def resolve_sort(
    doc_type: str | None, sort_by: str | None, sort_order: str | None, model: Model
) -> Sort:
    """The order that a call asks for; UNSUPPORTED_SORT_FIELD with the keys that would do.

    `sort_order` is `asc` or `desc` (also for None) and is ignored without `sort_by`.
    """
    if sort_by is None:
        return DEFAULT_SORT
    descending = sort_order != "asc"
    system_key = _ALIASES.get(sort_by)
    if system_key is not None:
        return Sort(system_key, descending, False, False, _INDEX_OF_KEY[system_key])
    if doc_type is None:
        raise MaadError(
            "UNSUPPORTED_SORT_FIELD",
            f'"{sort_by}" can only sort one type; pass docType, or sort by a system key',
            {"provided": sort_by, "systemKeys": list(SYSTEM_KEYS)},
        )
    try:
        schema = model.schema(doc_type)
    except MaadError as error:
        raise MaadError(
            "UNSUPPORTED_SORT_FIELD",
            f'cannot sort by "{sort_by}": {error.message}',
            {"provided": sort_by, "docType": doc_type},
        ) from error
    field = schema.fields.get(sort_by)
    if field is None or not field.index:
        indexed = [name for name, other in schema.fields.items() if other.index]
        raise MaadError(
            "UNSUPPORTED_SORT_FIELD",
            f'"{sort_by}" is no indexed field of "{doc_type}"; sort by one of '
            f"{', '.join([*indexed, *SYSTEM_KEYS])}",
            {
                "provided": sort_by,
                "docType": doc_type,
                "indexedFields": indexed,
                "systemKeys": list(SYSTEM_KEYS),
            },
        )
    numeric = is_numeric(field)
    index = "field_values_by_number" if numeric else "field_values_by_text"
    return Sort(sort_by, descending, True, numeric, index)
