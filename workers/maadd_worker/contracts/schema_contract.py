"""`create-schema-v1`: everything that decides how a document is written, as one value (05 §5.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from maadd.protocol.canonical_json import canonical_json
from maadd.protocol.document_content import PROJECTION as CONTENT_PROJECTION
from maadd.protocol.errors import MaadError
from maadd_worker.schema.registry import Registry, TypeEntry
from maadd_worker.schema.schema import FieldDef, Schema

PROJECTION = "create-schema-v1"
MAX_CANONICAL_BYTES = 524_288


def schema_contract_text(
    engine_version: str,
    sources: Mapping[str, str],
    registry: Registry,
    schemas: Sequence[Schema],
    templated: frozenset[str],
) -> str:
    """The canonical text of a `schemaContract`.

    `templated` are the refs of the schemas that declare a template, be it an empty one.
    Raises RESPONSE_TOO_LARGE over 512 KiB, and what `canonical_json` raises.
    """
    text = canonical_json(
        {
            "projection": PROJECTION,
            "engineVersion": engine_version,
            "contentProjection": CONTENT_PROJECTION,
            "sources": dict(sources),
            "effective": {
                "types": [[entry.name, _type(entry)] for entry in registry.types.values()],
                "extraction": {"subtypes": dict(registry.subtypes)},
                "subtypeMap": dict(registry.subtype_map),
                "schemas": [
                    [schema.ref, _schema(schema, schema.ref in templated)] for schema in schemas
                ],
            },
        }
    )
    size = len(text.encode())
    if size > MAX_CANONICAL_BYTES:
        raise MaadError(
            "RESPONSE_TOO_LARGE",
            f"the schema contract has {size} bytes, at most {MAX_CANONICAL_BYTES} are allowed",
            {"observedBytes": size, "capBytes": MAX_CANONICAL_BYTES},
        )
    return text


def _type(entry: TypeEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "path": entry.path,
        "idPrefix": entry.id_prefix,
        "schemaRef": entry.schema_ref,
        "template": entry.template,
    }


def _schema(schema: Schema, has_template: bool) -> dict[str, Any]:
    headings = [
        {"level": heading.level, "text": heading.text, "id": heading.id}
        for heading in schema.template
    ]
    return {
        "type": schema.type,
        "version": schema.version,
        "required": list(schema.required),
        "fields": [[name, _field(field)] for name, field in schema.fields.items()],
        "template": headings if has_template else None,
    }


def _field(field: FieldDef) -> dict[str, Any]:
    """The 15 members of a field; options that came later only where they are used."""
    members = {
        "name": field.name,
        "type": field.type,
        "index": field.index,
        "role": field.role,
        "format": field.format,
        "target": field.target,
        "values": None if field.values is None else list(field.values),
        "defaultValue": field.default,
        "itemType": field.item_type,
        "storePrecision": field.store_precision,
        "onCoarser": field.on_coarser,
        "displayPrecision": field.display_precision,
        "maxLength": field.max_length,
        "softMaxLength": field.soft_max_length,
        "multiline": field.multiline,
    }
    if field.on_finer is not None:
        members["onFiner"] = field.on_finer
    return members
