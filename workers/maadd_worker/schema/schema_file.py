"""Judging one schema file, `_schema/<name>.v<N>.yaml` (spec 01 §3)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from maadd.protocol.errors import MaadErrors
from maadd_worker.markdown.text import js_text
from maadd_worker.schema.faults import Fault, located_errors
from maadd_worker.schema.precision import PRECISIONS, rank
from maadd_worker.schema.schema import (
    DAY_FORMAT,
    FIELD_TYPES,
    IDENTITY_KEYS,
    FieldDef,
    Schema,
    TemplateHeading,
    schema_path,
)
from maadd_worker.schema.suggestion import did_you_mean, listed

FIELD_KEYS: tuple[str, ...] = (
    "type",
    "index",
    "role",
    "format",
    "target",
    "values",
    "item_type",
    "default",
    "store_precision",
    "on_coarser",
    "on_finer",
    "display_precision",
    "max_length",
    "soft_max_length",
    "multiline",
)
"""The closed vocabulary of a field definition."""

_PRECISION_KEYS = ("store_precision", "on_coarser", "on_finer", "display_precision")
_TEXT_KEYS = ("max_length", "soft_max_length", "multiline")
_REACTIONS = ("warn", "error")

_KeyFault = tuple[str, str]
"""The key of a field definition, empty for the whole, and what is wrong with it."""


def ref_version(ref: str) -> int:
    """N of a schema reference `<name>.v<N>`."""
    return int(ref.rpartition(".v")[2])


def parse_schema(
    ref: str, document: object, types: Collection[str], text: str | None = None
) -> Schema:
    """The schema in a parsed YAML document; `types` are the registered type names.

    Raises MaadErrors of SCHEMA_INVALID with every problem of the file, and their places in its
    `text`.
    """
    faults: list[Fault] = []
    if not isinstance(document, dict):
        raise _invalid(ref, [_fault("must be a mapping with type, required and fields")], text)
    declared_type = document.get("type")
    if not (isinstance(declared_type, str) and declared_type):
        faults.append(_fault("`type` is missing; write the name of the record type", "type"))
        declared_type = ""
    fields = _parse_fields(document.get("fields"), types, faults)
    required = document.get("required")
    listed_names = enumerate(required) if isinstance(required, list) else ()
    names = {place: name for place, name in listed_names if isinstance(name, str)}
    for place, name in names.items():
        if name not in fields and name not in IDENTITY_KEYS and not _declares(document, name):
            hint = did_you_mean(name, fields)
            fault = f'required names "{name}", which is no field{hint}; add it to `fields`'
            faults.append(_fault(fault, "required", place))
    if faults:
        raise _invalid(ref, faults, text)
    return Schema(
        ref=ref,
        type=declared_type,
        version=_version(document.get("version"), ref),
        required=tuple(names.values()),
        fields=fields,
        template=_parse_template(document.get("template")),
    )


def _invalid(ref: str, faults: list[Fault], text: str | None) -> MaadErrors:
    return MaadErrors(located_errors(faults, schema_path(ref), text, "dependency"))


def _fault(message: str, *path: str | int) -> Fault:
    return Fault(path, message, "SCHEMA_INVALID")


def _declares(document: Mapping[str, Any], name: str) -> bool:
    """Whether `fields` has the name, though its definition may be faulty."""
    fields = document.get("fields")
    return isinstance(fields, dict) and name in fields


def _version(value: object, ref: str) -> int:
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    return ref_version(ref)


def _parse_template(template: object) -> tuple[TemplateHeading, ...]:
    headings = template.get("headings") if isinstance(template, dict) else None
    if not isinstance(headings, list):
        return ()
    return tuple(_parse_heading(heading) for heading in headings if isinstance(heading, dict))


def _parse_heading(heading: Mapping[str, Any]) -> TemplateHeading:
    level, text, anchor = heading.get("level"), heading.get("text"), heading.get("id")
    return TemplateHeading(
        level=level if type(level) is int else 1,
        text=text if isinstance(text, str) else "",
        id=anchor if isinstance(anchor, str) and anchor else None,
    )


def _parse_fields(
    declared: object, types: Collection[str], faults: list[Fault]
) -> dict[str, FieldDef]:
    if declared is None:
        return {}
    if not isinstance(declared, dict):
        faults.append(_fault("`fields` must be a mapping of field names to definitions", "fields"))
        return {}
    fields: dict[str, FieldDef] = {}
    for name, definition in declared.items():
        found: list[_KeyFault] = []
        field = _parse_field(name, definition, types, found)
        faults.extend(
            _fault(f'field "{name}": {fault}', "fields", name, key) for key, fault in found
        )
        if field is not None:
            fields[name] = field
    return fields


def _parse_field(
    name: str, definition: object, types: Collection[str], found: list[_KeyFault]
) -> FieldDef | None:
    """One field with all its problems noted in `found`; None when there are any."""
    if not isinstance(definition, dict):
        found.append(("", "the definition must be a mapping such as {type: string}"))
        return None
    for key in definition:
        if key not in FIELD_KEYS:
            hint = did_you_mean(key, FIELD_KEYS)
            fault = f'unknown key "{key}"{hint}; known keys: {listed(FIELD_KEYS)}'
            found.append((key, fault))
    kind = _field_type(definition, "type", found)
    if kind is None:
        return None
    item_type = None
    if kind == "list" and definition.get("item_type") is not None:
        item_type = _field_type(definition, "item_type", found)
    scalar = (item_type or "string") if kind == "list" else kind
    default_format = DAY_FORMAT if kind == "date" else None
    declared_format = definition.get("format")
    store, on_coarser, on_finer, display = _precision_rules(kind, definition, found)
    maximum, soft, multiline = _text_rules(kind, definition, found)
    role = definition.get("role")
    field = FieldDef(
        name=name,
        type=kind,
        index=definition.get("index") is True,
        role=role if isinstance(role, str) else None,
        format=declared_format if isinstance(declared_format, str) else default_format,
        target=_target(definition, types, found) if scalar == "ref" else None,
        values=_values(definition, found) if scalar == "enum" else None,
        item_type=item_type,
        default=definition.get("default"),
        store_precision=store,
        on_coarser=on_coarser,
        on_finer=on_finer,
        display_precision=display,
        max_length=maximum,
        soft_max_length=soft,
        multiline=multiline,
    )
    return None if found else field


def _field_type(definition: Mapping[str, Any], key: str, found: list[_KeyFault]) -> str | None:
    value = definition.get(key)
    if isinstance(value, str) and value in FIELD_TYPES:
        return value
    known = f"one of {', '.join(FIELD_TYPES)}"
    if value is None:
        found.append((key, f"`{key}` is missing; write {known}"))
    else:
        hint = did_you_mean(value, FIELD_TYPES) if isinstance(value, str) else ""
        found.append((key, f'{key} "{js_text(value)}" is no field type{hint}; write {known}'))
    return None


def _target(
    definition: Mapping[str, Any], types: Collection[str], found: list[_KeyFault]
) -> str | None:
    target = definition.get("target")
    if target is None:
        found.append(("target", "a ref needs `target`, the name of a registered type"))
    elif not (isinstance(target, str) and target in types):
        name = js_text(target)
        fault = f'target "{name}" is no registered type{did_you_mean(name, types)}'
        found.append(("target", f"{fault}; registered: {listed(types)}"))
    else:
        return target
    return None


def _values(definition: Mapping[str, Any], found: list[_KeyFault]) -> tuple[str, ...] | None:
    values = definition.get("values")
    if isinstance(values, list) and values:
        return tuple(js_text(value) for value in values)
    found.append(("values", "an enum needs `values`, a list of at least one text"))
    return None


def _precision_rules(
    kind: str, definition: Mapping[str, Any], found: list[_KeyFault]
) -> tuple[str | None, str | None, str | None, str | None]:
    """store_precision, on_coarser, on_finer, display_precision."""
    if not _belongs(definition, _PRECISION_KEYS, kind, "date", found):
        return None, None, None, None
    store = _one_of(definition, "store_precision", PRECISIONS, found)
    display = _one_of(definition, "display_precision", PRECISIONS, found)
    on_coarser = _one_of(definition, "on_coarser", _REACTIONS, found)
    on_finer = _one_of(definition, "on_finer", _REACTIONS, found)
    if store is None:
        if on_finer is not None and definition.get("store_precision") is None:
            found.append(("on_finer", "on_finer needs store_precision"))
    elif display is not None and rank(display) > rank(store):
        fault = f"display_precision {display} is finer than store_precision {store}"
        found.append(("display_precision", fault))
    if store is not None and on_coarser is None:
        on_coarser = "warn"
    return store, on_coarser, on_finer, display


def _text_rules(
    kind: str, definition: Mapping[str, Any], found: list[_KeyFault]
) -> tuple[int | None, int | None, bool | None]:
    """max_length, soft_max_length, multiline."""
    if not _belongs(definition, _TEXT_KEYS, kind, "string", found):
        return None, None, None
    maximum = _length(definition, "max_length", found)
    soft = _length(definition, "soft_max_length", found)
    if maximum is not None and soft is not None and soft > maximum:
        fault = f"soft_max_length {soft} is above max_length {maximum}"
        found.append(("soft_max_length", fault))
    multiline = definition.get("multiline")
    if multiline is not None and not isinstance(multiline, bool):
        found.append(("multiline", "multiline must be true, false or null"))
        multiline = None
    return maximum, soft, multiline


def _belongs(
    definition: Mapping[str, Any],
    keys: tuple[str, ...],
    kind: str,
    owner: str,
    found: list[_KeyFault],
) -> bool:
    """Whether the keys may be read: they belong to fields of type `owner`. Null counts as unset."""
    if kind == owner:
        return True
    found.extend(
        (key, f"{key} belongs to fields of type {owner}, this one is {kind}")
        for key in keys
        if definition.get(key) is not None
    )
    return False


def _one_of(
    definition: Mapping[str, Any], key: str, allowed: tuple[str, ...], found: list[_KeyFault]
) -> str | None:
    value = definition.get(key)
    if value is None:
        return None
    if isinstance(value, str) and value in allowed:
        return value
    found.append((key, f'{key} "{js_text(value)}" must be one of {", ".join(allowed)}'))
    return None


def _length(definition: Mapping[str, Any], key: str, found: list[_KeyFault]) -> int | None:
    value = definition.get(key)
    if value is None:
        return None
    if type(value) is int and value >= 1:
        return value
    if type(value) is float and value.is_integer() and value >= 1:
        return int(value)
    found.append((key, f"{key} must be a whole number of at least 1, not {js_text(value)}"))
    return None
