"""Schema files and registry entries for the new types of an import (spec 01 §2, §3).

Nothing that exists is overwritten: the registry gets lines, its own stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import yaml
from yaml.nodes import MappingNode, Node

from maadd.protocol.errors import MaadError
from maadd_worker.disk.publish import create_exclusive, replace
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.imports.plan import ImportPlan, TypePlan
from maadd_worker.markdown.frontmatter import BOM
from maadd_worker.markdown.yaml_profile import load_yaml_document
from maadd_worker.markdown.yaml_write import yaml_string, yaml_value
from maadd_worker.schema.registry import REGISTRY_PATH, decode_model_file
from maadd_worker.schema.schema import schema_path

_INDENT = 2


class ModelChange(msgspec.Struct, frozen=True):
    """Files that the types of a plan need: new schema files, and the registry as it will be
    (None: it has the types already)."""

    schemas: Mapping[str, bytes]
    registry: bytes | None

    @property
    def paths(self) -> list[str]:
        return [*self.schemas, *([] if self.registry is None else [REGISTRY_PATH])]


def model_change(root: ProjectRoot, plan: ImportPlan) -> ModelChange:
    """What has to be written before the records can be.

    Raises SCHEMA_INVALID for a schema file that is there and says something else, and
    REGISTRY_INVALID for a registry that cannot take the entries by itself, or has one of the
    types otherwise; the message holds the lines to add.
    """
    schemas: dict[str, bytes] = {}
    new: dict[str, TypePlan] = {}
    registry = root.read(REGISTRY_PATH).data
    document = load_yaml_document(decode_model_file(registry, REGISTRY_PATH), REGISTRY_PATH)
    declared = document.get("types") if isinstance(document, dict) else None
    known: Mapping[str, Any] = declared if isinstance(declared, dict) else {}
    for name, type_plan in plan.types.items():
        if type_plan.existing:
            continue
        path = schema_path(type_plan.schema)
        if root.exists(path):
            _check_schema(root, path, name, type_plan)
        else:
            schemas[path] = schema_text(name, type_plan).encode()
        if name in known:
            _check_entry(name, known[name], type_plan)
        else:
            new[name] = type_plan
    return ModelChange(schemas, _with_types(registry, new) if new else None)


def write_model(root: ProjectRoot, change: ModelChange, *, fsync: bool) -> None:
    """Write the files, schemas first; WRITE_ERROR, DUPLICATE_DOC_ID when one has come up since."""
    for path, data in change.schemas.items():
        create_exclusive(root, path, data, fsync=fsync)
    if change.registry is not None:
        replace(root, REGISTRY_PATH, change.registry, fsync=fsync)


def schema_text(name: str, type_plan: TypePlan) -> str:
    """The schema file of a type, one field a line."""
    document = type_plan.schema_document(name)
    lines = [
        f"type: {yaml_string(name, in_flow=False)}",
        f"version: {document['version']}",
        f"required: {yaml_value(document['required'], 'required')}",
        "fields:" if type_plan.fields else "fields: {}",
    ]
    for field, definition in type_plan.fields.items():
        key = yaml_string(field, in_flow=False)
        lines.append(f"  {key}: {yaml_value(definition, field)}")
    return "".join(f"{line}\n" for line in lines)


def entry_lines(name: str, type_plan: TypePlan, indent: int) -> list[str]:
    """The registry entry of a type, indented by so many blanks."""
    outer, inner = " " * indent, " " * (indent + _INDENT)
    return [
        f"{outer}{name}:",
        f"{inner}path: {yaml_string(type_plan.path, in_flow=False)}",
        f"{inner}id_prefix: {yaml_string(type_plan.id_prefix, in_flow=False)}",
        f"{inner}schema: {yaml_string(type_plan.schema, in_flow=False)}",
    ]


def _with_types(data: bytes, new: Mapping[str, TypePlan]) -> bytes:
    """The registry with more entries behind its last one; everything else to the byte."""
    text = decode_model_file(data, REGISTRY_PATH)
    bom = BOM if data.startswith(BOM.encode()) else ""
    newline = "\r\n" if "\r\n" in text else "\n"
    types = _types_node(text)
    if types is None:
        raise _cannot_add(new)
    key, value = types
    if isinstance(value, MappingNode) and value.value and not value.flow_style:
        indent = value.value[0][0].start_mark.column
        at = _end_of_content(text, value)
        before, after = text[:at], text[at:]
        if not before.endswith("\n"):
            before += newline
    elif isinstance(value, MappingNode) and not value.value and value.flow_style:
        indent = key.start_mark.column + _INDENT
        before = text[: value.start_mark.index].rstrip(" \t") + newline
        after = text[value.end_mark.index :].lstrip(" \t")
        after = after.removeprefix("\r").removeprefix("\n") if not after.startswith("#") else after
    else:
        raise _cannot_add(new)
    lines = [line for name, plan in new.items() for line in entry_lines(name, plan, indent)]
    result = before + "".join(f"{line}{newline}" for line in lines) + after
    expected = load_yaml_document(text, REGISTRY_PATH)
    expected["types"] = {
        **expected["types"],
        **{
            name: {"path": plan.path, "id_prefix": plan.id_prefix, "schema": plan.schema}
            for name, plan in new.items()
        },
    }
    try:
        sound = load_yaml_document(result, REGISTRY_PATH) == expected
    except MaadError:
        sound = False
    if not sound:
        raise _cannot_add(new)
    return (bom + result).encode()


def _types_node(text: str) -> tuple[Node, Node] | None:
    try:
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError:
        return None
    if not isinstance(root, MappingNode):
        return None
    return next(((key, value) for key, value in root.value if key.value == "types"), None)


def _end_of_content(text: str, node: Node) -> int:
    """Where the lines of a block end, comments and blank lines behind it not counted."""
    lines = text[: node.end_mark.index].splitlines(keepends=True)
    while lines and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    return sum(map(len, lines))


def _check_schema(root: ProjectRoot, path: str, name: str, type_plan: TypePlan) -> None:
    text = decode_model_file(root.read(path).data, path)
    if load_yaml_document(text, path) != load_yaml_document(schema_text(name, type_plan), path):
        stem, _, version = type_plan.schema.rpartition(".v")
        raise MaadError(
            "SCHEMA_INVALID",
            f"{path} is there and says something else than the plan; it is not overwritten: "
            f"edit it there and mark {name} `existing: true` in the plan, without fields and "
            f"required, or give a new type the schema {stem}.v{int(version) + 1}",
        )


def _check_entry(name: str, entry: object, type_plan: TypePlan) -> None:
    members = entry if isinstance(entry, dict) else {}
    there = (str(members.get("path")).rstrip("/"), members.get("id_prefix"), members.get("schema"))
    if there != (type_plan.path.rstrip("/"), type_plan.id_prefix, type_plan.schema):
        raise MaadError(
            "REGISTRY_INVALID",
            f'{REGISTRY_PATH} has the type "{name}" with other values than the plan; say the '
            "same in the plan, and to move a type change the registry and its folder, or give "
            "the type another name",
        )


def _cannot_add(new: Mapping[str, TypePlan]) -> MaadError:
    lines = [line for name, plan in new.items() for line in entry_lines(name, plan, _INDENT)]
    return MaadError(
        "REGISTRY_INVALID",
        f"{REGISTRY_PATH} is written in a way that lines cannot be added to safely; add these "
        "under `types:` and run the import again:\n" + "\n".join(lines),
    )
