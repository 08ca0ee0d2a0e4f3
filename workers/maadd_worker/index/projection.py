"""Index text of chosen fields for the records of a page (spec 02 §4.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.index.counters import read_type_state
from maadd_worker.index.reader import IndexReader
from maadd_worker.schema.model import Model

FieldText = str | list[str]

_PROJECT = """
SELECT v.doc_id, v.field_name, v.field_value
FROM json_each(?) i CROSS JOIN json_each(?) f
CROSS JOIN field_values v ON v.doc_id = i.value AND v.field_name = f.value AND v.present = 1
ORDER BY i.id, f.id, v.id
"""


def project_fields(
    reader: IndexReader,
    doc_ids: Sequence[str],
    fields: Sequence[str],
    model: Model,
    doc_type: str,
) -> dict[str, dict[str, FieldText]]:
    """Index text by record and field, both in the order asked for.

    A field that the schema declares a list gives the texts of its items; any other field one
    text. Names that are not indexed or have no value are left out. The result is shared:
    treat it as read-only.
    """
    generation = read_type_state(reader.connection, doc_type, "").generation
    lists = _list_fields(model, doc_type)
    key = (tuple(doc_ids), tuple(fields), lists)
    known = reader.recall(key, generation)
    if known is not None:
        return cast("dict[str, dict[str, FieldText]]", known)
    found: dict[str, dict[str, FieldText]] = {doc_id: {} for doc_id in doc_ids}
    rows = reader.connection.execute(_PROJECT, (_json(found), _json(dict.fromkeys(fields))))
    for doc_id, name, text in rows:
        values = found[doc_id]
        if name not in lists:
            values.setdefault(name, text)
            continue
        items = values.setdefault(name, [])
        if isinstance(items, list):
            items.append(text)
    reader.remember(key, generation, found, cost=1 + len(found) * (1 + len(fields)))
    return found


def _list_fields(model: Model, doc_type: str) -> frozenset[str]:
    try:
        schema = model.schema(doc_type)
    except MaadError:
        return frozenset()
    return frozenset(name for name, field in schema.fields.items() if field.type == "list")


def _json(names: Iterable[str]) -> str:
    return msgspec.json.encode(list(names)).decode()
