from __future__ import annotations

from typing import Any

import pytest

from maadd_worker.schema.fingerprint import (
    derived_fingerprint,
    index_fingerprint,
    validation_fingerprint,
)
from maadd_worker.schema.model import Model
from maadd_worker.schema.registry import parse_registry
from maadd_worker.schema.schema_file import parse_schema

Document = dict[str, Any]


def model(
    fields: Document,
    *,
    required: tuple[str, ...] = (),
    subtypes: Document | None = None,
    client_prefix: str = "cli",
) -> Model:
    registry = parse_registry(
        {
            "types": {
                "case": {"path": "cases", "id_prefix": "cas", "schema": "case.v1"},
                "client": {"path": "clients", "id_prefix": client_prefix, "schema": "client.v1"},
            },
            "extraction": {"subtypes": subtypes or {}},
        }
    )
    document = {"type": "case", "required": list(required), "fields": fields}
    return Model(registry, {"case.v1": parse_schema("case.v1", document, registry.types)}, {})


@pytest.mark.parametrize(
    ("fields", "fingerprint"),
    [
        ({}, "e3b0c44298fc1c14"),
        ({"note": {"type": "string"}}, "e3b0c44298fc1c14"),
        ({"title": {"type": "string", "index": True}}, "57dc7eb1c9baf600"),
        (
            {
                "title": {"type": "string", "index": True},
                "client": {"type": "ref", "target": "client", "index": True},
                "status": {"type": "enum", "values": ["open"], "index": True},
                "note": {"type": "string"},
            },
            "02e3d32f45d91a8a",
        ),
    ],
)
def test_the_index_fingerprint_covers_indexed_names_and_types(
    fields: Document, fingerprint: str
) -> None:
    assert index_fingerprint(model(fields).schemas["case.v1"]) == fingerprint


BASE: Document = {
    "title": {"type": "string", "index": True},
    "tags": {"type": "list", "index": True},
    "client": {"type": "ref", "target": "client"},
    "note": {"type": "string"},
}


def with_field(name: str, **changes: Any) -> Document:
    return {**BASE, name: {**BASE.get(name, {}), **changes}}


@pytest.mark.parametrize(
    "changed",
    [
        model(with_field("tags", item_type="number")),
        model(with_field("title", role="label")),
        model(with_field("note", index=True)),
        model(with_field("client", target="case")),
        model(with_field("others", type="list", item_type="ref", target="client")),
        model(BASE, subtypes={"ticket": "identifier"}),
        model(BASE, client_prefix="clt"),
    ],
)
def test_whatever_changes_derived_rows_changes_the_derived_fingerprint(changed: Model) -> None:
    assert derived_fingerprint(changed, "case") != derived_fingerprint(model(BASE), "case")


@pytest.mark.parametrize(
    "changed",
    [
        model(with_field("note", max_length=5)),
        model(with_field("other", type="date", store_precision="day")),
        model(BASE, required=("title",)),
    ],
)
def test_rules_that_derive_nothing_leave_it_alone(changed: Model) -> None:
    assert derived_fingerprint(changed, "case") == derived_fingerprint(model(BASE), "case")


@pytest.mark.parametrize(
    "changed",
    [
        model(BASE, required=("title",)),
        model(with_field("note", default="x")),
        model(with_field("note", type="number")),
        model(with_field("extra", type="string")),
        model(BASE, client_prefix="clt"),
    ],
)
def test_structural_rules_change_the_validation_fingerprint(changed: Model) -> None:
    assert validation_fingerprint(changed, "case") != validation_fingerprint(model(BASE), "case")


@pytest.mark.parametrize(
    "changed",
    [model(with_field("note", max_length=5, multiline=False)), model(with_field("tags", role="x"))],
)
def test_rules_for_new_values_do_not(changed: Model) -> None:
    assert validation_fingerprint(changed, "case") == validation_fingerprint(model(BASE), "case")
