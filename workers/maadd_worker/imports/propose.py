"""Making the plan of an import from what its source holds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from maadd_worker.imports.assign import assign, identifies
from maadd_worker.imports.grouping import Group, group_items
from maadd_worker.imports.infer import Definition, closed_set, infer, infer_ref
from maadd_worker.imports.names import choose_prefix, folder_name, free_name, type_name
from maadd_worker.imports.plan import (
    DATE_IN_NAME,
    FILE_NAME,
    HEADING,
    SECTION,
    TITLE,
    ImportPlan,
    LinkMode,
    TypePlan,
)
from maadd_worker.imports.source import Item, Source
from maadd_worker.imports.targets import Targets
from maadd_worker.imports.values import values_of
from maadd_worker.schema.registry import ENGINE_FOLDERS, TypeEntry
from maadd_worker.schema.schema import IDENTITY_KEYS

_ID_FIELDS = (
    "id", "uid", "uuid", "key", "number", "no", "nr", "code", "sku", "isbn", "slug", "identifier",
)  # fmt: skip
_BODY_FIELDS = ("body", "content", "text", "markdown")
_SECTIONS = ("Status", "State", "Priority", "Category", "Severity")
_TYPE_NAME = re.compile(r"[a-z][a-z0-9_]*")
_DATED_STEM = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\b.*")
_FEW = 3
_MOST = 0.9


class Place(msgspec.Struct, frozen=True):
    """The project that a plan is for: its types with the names of their fields, schema files,
    and names at its top."""

    types: Mapping[str, TypeEntry]
    fields: Mapping[str, frozenset[str]]
    schema_refs: frozenset[str]
    names: frozenset[str]


class Proposal(msgspec.Struct, frozen=True):
    """A plan with remarks on what was close, by type and field."""

    plan: ImportPlan
    notes: tuple[str, ...]


def propose(source: Source, place: Place, links: LinkMode) -> Proposal:
    """The plan for a source. Types that the project has already are taken as they are."""
    if source.kind == "markdown":
        groups = group_items(source.items, source.name)
    else:
        groups = [Group(source.name, (".",), (), None, source.items)] if source.items else []
    types = _types(groups, place, source)
    plan = ImportPlan(source=source.path, links=links, types=types)
    prefixes = {entry.id_prefix: name for name, entry in place.types.items()}
    targets = assign(source, plan, prefixes, {}).targets
    notes: list[str] = []
    for name, type_plan in list(types.items()):
        items = [item for item in source.items if plan.type_of(item) == name]
        if type_plan.existing:
            types[name] = _with_known(type_plan, items, source, place.fields.get(name, frozenset()))
        else:
            types[name] = _with_fields(name, type_plan, items, targets, source, list(types), notes)
    if links == "refs":
        _add_link_fields(source, plan, targets, types, place.fields)
    return Proposal(msgspec.structs.replace(plan, types=types), tuple(notes))


def _types(groups: Sequence[Group], place: Place, source: Source) -> dict[str, TypePlan]:
    """The types of the groups without their fields."""
    types: dict[str, TypePlan] = {}
    prefixes = {entry.id_prefix for entry in place.types.values()}
    paths = {entry.path.partition("/")[0] for entry in place.types.values()} | place.names
    for group in groups:
        declared = group.doc_type or ""
        name = declared if _TYPE_NAME.fullmatch(declared) else type_name(group.name)
        name = free_name(name, types)
        known = place.types.get(name)
        if known is not None:
            types[name] = _selecting(
                group,
                TypePlan(
                    path=known.path,
                    id_prefix=known.id_prefix,
                    schema=known.schema_ref,
                    existing=True,
                    id_from=_id_from((name, known.id_prefix), group.items, source),
                ),
            )
            continue
        prefix = choose_prefix(name, [item.stem for item in group.items], prefixes)
        path = free_name(folder_name(group.name, name), paths | ENGINE_FOLDERS, "-")
        prefixes.add(prefix)
        paths.add(path)
        version = 1
        while f"{name}.v{version}" in place.schema_refs:
            version += 1
        schema = f"{name}.v{version}"
        id_from = _id_from((name, prefix), group.items, source)
        new = TypePlan(path=path, id_prefix=prefix, schema=schema, id_from=id_from)
        types[name] = _selecting(group, new)
    return types


def _selecting(group: Group, type_plan: TypePlan) -> TypePlan:
    return msgspec.structs.replace(
        type_plan, folders=group.folders, having=group.having, doc_type=group.doc_type
    )


def _id_from(names: Sequence[str], items: Sequence[Item], source: Source) -> str:
    """The field that identifies the items: `doc_id`, one called like the type or its prefix, or
    one with a name for ids."""
    own = [one for name in names for one in (name, f"{name}_id")]
    for name in ("doc_id", *own, *_ID_FIELDS):
        spelling = next((key for key in items[0].fields if key.lower() == name), name)
        if identifies(spelling, items):
            return spelling
    return FILE_NAME if source.kind == "markdown" else TITLE


def _with_fields(
    doc_type: str,
    type_plan: TypePlan,
    items: Sequence[Item],
    targets: Targets,
    source: Source,
    types: Sequence[str],
    notes: list[str],
) -> TypePlan:
    """The type with the fields that its items have or can be given."""
    body = _body_column(items, source)
    fields: dict[str, Definition] = {}
    counts: Counter[str] = Counter()
    for name in dict.fromkeys(key for item in items for key in item.fields):
        if name in IDENTITY_KEYS or name == body:
            continue
        values = list(values_of(name, items))
        counts[name] = len(values)
        ref: Definition | None = None
        if name != type_plan.id_from:
            ref, note = infer_ref(name, values, targets, types)
            if note is not None:
                notes.append(f"{doc_type}.{name}: {note}; it stays what it is")
        definition = ref or infer(name, values, textual=source.textual)
        if definition is not None:
            fields[name] = definition
    derive = _derived(items, counts, fields) if source.kind == "markdown" else {}
    if len(items) >= _FEW:
        counts.update({name: len(items) for name in derive if name == "title"})
    required = ["doc_id"]
    if len(items) >= _FEW:
        required += [name for name in fields if counts[name] >= len(items)]
    return msgspec.structs.replace(
        type_plan, body=body, fields=fields, derive=derive, required=tuple(required)
    )


def _with_known(
    type_plan: TypePlan, items: Sequence[Item], source: Source, known: frozenset[str]
) -> TypePlan:
    """A type of the project with what its items have in another form than its fields."""
    if source.kind != "markdown":
        body = _body_column(items, source)
        return msgspec.structs.replace(type_plan, body=None if body in known else body)
    counts = Counter(key for item in items for key, value in item.fields.items() if value)
    derive = _derived(items, counts, {})
    found = {name: origin for name, origin in derive.items() if name in known}
    return msgspec.structs.replace(type_plan, derive=found)


def _body_column(items: Sequence[Item], source: Source) -> str | None:
    if source.kind == "markdown":
        return None
    return next((key for key in items[0].fields if key.lower() in _BODY_FIELDS), None)


def _derived(
    items: Sequence[Item], counts: Counter[str], fields: dict[str, Definition]
) -> dict[str, str]:
    """Fields that files have in another form; their definitions go into `fields`."""
    derive: dict[str, str] = {}
    if max(counts["title"], counts["name"]) < len(items):
        derive["title"] = HEADING
        fields.setdefault("title", {"type": "string", "index": True})
    dated = [item for item in items if _DATED_STEM.fullmatch(item.stem)]
    if len(dated) >= _MOST * len(items) and counts["date"] < len(items):
        derive["date"] = DATE_IN_NAME
        day = {"type": "date", "index": True, "store_precision": "day"}
        if fields.setdefault("date", day)["type"] != "date":
            del derive["date"]
    for section in _SECTIONS:
        name = section.lower()
        texts = [text for item in items if (text := item.sections.get(section))]
        if name not in fields and len(items) > 1 and len(texts) >= _MOST * len(items):
            derive[name] = f"{SECTION}{section}"
            values = closed_set(name, texts)
            fields[name] = {"type": "string", "index": True}
            if values is not None:
                fields[name] = {"type": "enum", "values": list(values), "index": True}
    return derive


def _add_link_fields(
    source: Source,
    plan: ImportPlan,
    targets: Targets,
    types: dict[str, TypePlan],
    known: Mapping[str, frozenset[str]],
) -> None:
    """For each type the fields that list what its bodies link to, one for each target type.

    A type of the project gets no new fields; those that it has under these names are used.
    """
    linked: dict[str, set[str]] = {}
    for item in source.items:
        doc_type = plan.type_of(item)
        for link in item.links if doc_type is not None else ():
            target = targets.find_link(link, item)
            if target is not None and target.key != item.key:
                linked.setdefault(doc_type or "", set()).add(target.doc_type)
    for doc_type, target_types in linked.items():
        type_plan = types[doc_type]
        if type_plan.existing:
            there = known.get(doc_type, frozenset())
            names = {one: f"links_{one}" for one in sorted(target_types)}
            names = {one: name for one, name in names.items() if name in there}
            types[doc_type] = msgspec.structs.replace(type_plan, links=names)
            continue
        fields = dict(type_plan.fields)
        names = {}
        for target_type in sorted(target_types):
            name = free_name(f"links_{target_type}", fields)
            names[target_type] = name
            fields[name] = {
                "type": "list",
                "item_type": "ref",
                "target": target_type,
                "index": True,
            }
        types[doc_type] = msgspec.structs.replace(type_plan, fields=fields, links=names)
