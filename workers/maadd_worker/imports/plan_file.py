"""Plans as YAML: written to be read and edited, read back with names for what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.imports.plan import ImportPlan
from maadd_worker.markdown.yaml_profile import load_yaml_document
from maadd_worker.markdown.yaml_write import yaml_string, yaml_value

_HEAD = """\
# Plan of `maad import`. Edit it, then: maad import SOURCE --with THIS_FILE
#
# types     one for each kind of record. An item becomes a record of the first type whose
#           `folders` it lies in and whose `having` fields it has.
#   path, id_prefix, schema   the registry entry; `existing: true` uses a type that is there
#   id_from                   a field, `file name` or `title`
#   derive                    fields made from `heading`, `date in file name`, `section NAME`
#   body                      of a table: the column that becomes the body
#   required, fields          the schema; fields that are not listed are kept all the same
# links     keep: bodies stay as they are; refs: fields list what a body links to;
#           mentions: links in bodies become annotations
# ids       ids of single items, by their path or row
# leave_out patterns of items that nobody wants
"""


def plan_text(
    plan: ImportPlan, counts: Mapping[str, int], ids: Mapping[str, str], notes: Sequence[str]
) -> str:
    """The plan as YAML. `counts` are items by type, `ids` those that collided, with the id they
    get; `notes` stand as comments."""
    lines = [_HEAD.rstrip("\n"), f"plan: {plan.plan}"]
    lines.append(f"source: {yaml_string(plan.source, in_flow=False)}")
    lines.append(f"links: {plan.links}")
    lines.append(f"leave_out: {yaml_value(list(plan.leave_out), 'leave_out')}")
    every = {**plan.ids, **ids}
    lines.append("ids:" if every else "ids: {}")
    lines += [f"  {_key(key)}: {yaml_value(value, key)}" for key, value in every.items()]
    lines += [f"# {note}" for note in notes]
    lines.append("types:" if plan.types else "types: {}")
    for name, type_plan in plan.types.items():
        lines.append(f"  {_key(name)}:  # {counts.get(name, 0)} items")
        members: dict[str, Any] = msgspec.to_builtins(type_plan)
        for member in type_plan.__struct_fields__:
            if member in members and member != "fields":
                lines.append(f"    {member}: {yaml_value(members[member], member)}")
        if type_plan.fields:
            lines.append("    fields:")
            lines += [
                f"      {_key(field)}: {yaml_value(definition, field)}"
                for field, definition in type_plan.fields.items()
            ]
    return "".join(f"{line}\n" for line in lines)


def read_plan(text: str, file: str) -> ImportPlan:
    """The plan in a YAML text; PARSE_ERROR with its place, or INVALID_ARGS for what is no plan."""
    document = load_yaml_document(text, file)
    try:
        plan = msgspec.convert(document, ImportPlan)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        place = f" at {where.strip('`').removeprefix('$.')}" if where else ""
        raise MaadError(
            "INVALID_ARGS",
            f"{file} is no plan of an import: {what}{place}; `maad import SOURCE --plan FILE` "
            "writes one",
        ) from None
    return plan


def _key(text: str) -> str:
    return yaml_string(text, in_flow=False)
