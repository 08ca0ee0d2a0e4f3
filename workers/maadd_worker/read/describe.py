"""`maad_describe` and `maad_schema`: what the project can hold (spec 02 §3.3, §3.4)."""

from __future__ import annotations

from typing import Any

from maadd.protocol.arguments import DescribeArgs, SchemaArgs
from maadd_worker.extract.primitives import PRIMITIVES
from maadd_worker.index.counters import read_inventory
from maadd_worker.outcome import Outcome
from maadd_worker.read.context import ReadContext
from maadd_worker.schema.schema import FieldDef

_AMOUNT_FORMAT = "<number> <currency> (e.g. 1250.00 USD)"

_RELATIONSHIP_PATHS = {
    "tool": "maad_relationship_paths",
    "contractVersion": 1,
    "defaults": {"maxDepth": 2, "maxNodes": 50, "maxEdges": 100, "maxPaths": 25},
    "caps": {"maxDepth": 4, "maxNodes": 100, "maxEdges": 200, "maxPaths": 50},
    "defaultExtractionKinds": ["ref"],
}

_INVENTORY_GROUPS = 20
_TOP_VALUES = """
SELECT value FROM objects WHERE primitive = ? AND subtype = ?
GROUP BY value ORDER BY count(*) DESC, value LIMIT 5
"""


def describe(context: ReadContext, args: DescribeArgs) -> Outcome:
    """Registry, primitives and the inventory of extracted objects."""
    registry = context.model.registry
    counters = context.reader.counters()
    data: dict[str, Any] = {
        "registryTypes": [
            {
                "type": entry.name,
                "path": entry.path,
                "idPrefix": entry.id_prefix,
                "schema": entry.schema_ref,
                "docCount": counters.documents_by_type.get(entry.name, 0),
            }
            for entry in registry.types.values()
        ],
        "extractionPrimitives": list(PRIMITIVES),
        "totalDocuments": counters.documents,
        "lastIndexedAt": counters.last_indexed_at,
        "subtypeInventory": _inventory(context),
        "capabilities": {
            "relationshipPaths": _RELATIONSHIP_PATHS,
            "semantic": _semantic(context),
        },
    }
    return Outcome(data)


def _semantic(context: ReadContext) -> dict[str, Any]:
    """Whether bodies can be searched, and how."""
    reads = context.semantic
    if reads is None:
        return {"enabled": False, "vectors": False, "modes": []}
    return {"enabled": True, "vectors": "semantic" in reads.modes, "modes": reads.modes}


def _inventory(context: ReadContext) -> list[dict[str, Any]]:
    """The most frequent kinds of objects with their most frequent values; remembered until any
    record changes."""
    generation = context.generation()
    known = context.reader.recall("inventory", generation)
    if isinstance(known, list):
        return known
    connection = context.reader.connection
    inventory = [
        {
            "primitive": found.primitive,
            "subtype": found.subtype,
            "count": found.count,
            "topValues": [
                value
                for (value,) in connection.execute(_TOP_VALUES, (found.primitive, found.subtype))
            ],
        }
        for found in read_inventory(connection, _INVENTORY_GROUPS)
    ]
    context.reader.remember("inventory", generation, inventory, cost=6 * len(inventory) + 1)
    return inventory


def schema(context: ReadContext, args: SchemaArgs) -> Outcome:
    """Field definitions of one type; UNKNOWN_TYPE, SCHEMA_NOT_FOUND."""
    entry = context.model.entry(args.doc_type)
    found = context.model.schema(args.doc_type)
    required = set(found.required)
    data: dict[str, Any] = {
        "type": entry.name,
        "idPrefix": entry.id_prefix,
        "schemaRef": found.ref,
        "fields": [field_view(field, field.name in required) for field in found.fields.values()],
    }
    if found.template:
        data["templateHeadings"] = [
            {"level": heading.level, "text": heading.text} for heading in found.template
        ]
    return Outcome(data)


def field_view(field: FieldDef, required: bool) -> dict[str, Any]:
    """One field as agents read it; optional members only when set."""
    view: dict[str, Any] = {
        "name": field.name,
        "type": _type_text(field),
        "required": required,
        "indexed": field.index,
    }
    optional = {
        "values": list(field.values) if field.values is not None else None,
        "target": field.target,
        "format": field.format or (_AMOUNT_FORMAT if field.type == "amount" else None),
        "default": field.default,
        "storePrecision": field.store_precision,
        "onCoarser": field.on_coarser,
        "onFiner": field.on_finer,
        "displayPrecision": field.display_precision,
        "maxLength": field.max_length,
        "softMaxLength": field.soft_max_length,
        "multiline": field.multiline,
    }
    view.update({name: value for name, value in optional.items() if value is not None})
    return view


def _type_text(field: FieldDef) -> str:
    if field.type == "ref" and field.target:
        return f"ref -> {field.target}"
    if field.type == "list" and field.item_type:
        target = f" -> {field.target}" if field.target else ""
        return f"list of {field.item_type}{target}"
    return field.type
