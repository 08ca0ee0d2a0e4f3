"""What `tools/list` says of a tool: a compact JSON Schema (2020-12) and the MCP annotations.

Schemas are written out of the argument Structs, inline, closed, with wire names. Optional
arguments are simply not required: null is not advertised, as it is not accepted (spec 04 §1.2).
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET
from msgspec import inspect as mi

from maadd.protocol.arguments.base import MAX_SAFE_INTEGER
from maadd.protocol.tools import ToolSpec

JsonObject = dict[str, Any]


def input_schema(spec: ToolSpec) -> JsonObject:
    """The JSON Schema of a tool's arguments."""
    return _schema(mi.type_info(spec.arguments))


def tool_entry(spec: ToolSpec) -> JsonObject:
    """One entry of the `tools/list` result."""
    return {
        "name": spec.name,
        "title": spec.title,
        "description": spec.description,
        "inputSchema": input_schema(spec),
        "annotations": {
            "readOnlyHint": spec.read_only_hint,
            "destructiveHint": spec.destructive_hint,
            "idempotentHint": spec.idempotent_hint,
        },
    }


def without_null(kind: mi.Type) -> mi.Type:
    """The type of an argument when it is given: None only stands for its absence."""
    if isinstance(kind, mi.UnionType):
        given = tuple(member for member in kind.types if not isinstance(member, mi.NoneType))
        return given[0] if len(given) == 1 else mi.UnionType(given)
    return kind


def _schema(described: mi.Type) -> JsonObject:
    kind = without_null(described)
    match kind:
        case mi.Metadata():
            return _schema(kind.type) | (kind.extra_json_schema or {})
        case mi.AnyType():
            return {}
        case mi.BoolType():
            return {"type": "boolean"}
        case mi.IntType():
            maximum = None if kind.le == MAX_SAFE_INTEGER else kind.le
            return _given(type="integer", minimum=kind.ge, maximum=maximum)
        case mi.StrType():
            return _given(
                type="string",
                minLength=kind.min_length,
                # A pattern from ^ to $ says it all; the length only guards our own matching.
                maxLength=None if kind.pattern else kind.max_length,
                pattern=kind.pattern,
            )
        case mi.LiteralType(values=(only,)):
            return {"type": "string", "const": only}
        case mi.LiteralType():
            return {"type": "string", "enum": list(kind.values)}
        case mi.VarTupleType():
            return _given(
                type="array",
                items=_schema(kind.item_type),
                minItems=kind.min_length,
                maxItems=kind.max_length,
            )
        case mi.DictType(value_type=mi.AnyType()):
            return {"type": "object"}
        case mi.DictType():
            return {"type": "object", "additionalProperties": _schema(kind.value_type)}
        case mi.UnionType():
            # The one union of the tables is integer or float, which JSON calls number.
            return {"type": "number"}
        case mi.StructType():
            return _object_schema(kind)
    raise TypeError(f"arguments of type {kind!r} have no JSON Schema here")


def _object_schema(struct: mi.StructType) -> JsonObject:
    properties = {member.encode_name: _member_schema(member) for member in struct.fields}
    required = [member.encode_name for member in struct.fields if member.required]
    return {
        "type": "object",
        **({"properties": properties} if properties else {}),
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _member_schema(member: mi.Field) -> JsonObject:
    """A property; defaults that say nothing (absent, false, 0, empty) are left out."""
    schema = _schema(member.type)
    default = member.default
    if default in (msgspec.NODEFAULT, UNSET) or not default:
        return schema
    return schema | {"default": list(default) if isinstance(default, tuple) else default}


def _given(**keywords: Any) -> JsonObject:
    return {key: value for key, value in keywords.items() if value is not None}
