"""What in a plan means nothing for its source and its project, named by its key."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from maadd_worker.imports.plan import (
    DATE_IN_NAME,
    FILE_NAME,
    HEADING,
    SECTION,
    TITLE,
    ImportPlan,
    TypePlan,
)
from maadd_worker.imports.source import Item, Misfit, Source
from maadd_worker.schema.model import Model
from maadd_worker.schema.schema import IDENTITY_KEYS

_WHERE = "plan"
_REMOVE = "correct it, or remove it"


def plan_faults(plan: ImportPlan, source: Source, model: Model) -> list[Misfit]:
    """Entries that cannot do what they say; `model` has the types of the plan."""
    items = _items(plan, source)
    return [
        Misfit(_WHERE, f"types.{name}.{reason}", advice)
        for name, type_plan in plan.types.items()
        for reason, advice in _type_faults(name, type_plan, items[name], source, model)
    ]


def plan_notes(plan: ImportPlan, source: Source, model: Model) -> list[Misfit]:
    """Entries that do nothing now, and may have before or later."""
    found = [
        *_source_notes(plan, source),
        *_item_notes(plan, source, model),
        *_type_notes(plan, source),
    ]
    return [Misfit(_WHERE, reason, advice) for reason, advice in found]


def _items(plan: ImportPlan, source: Source) -> dict[str, list[Item]]:
    items: dict[str, list[Item]] = {name: [] for name in plan.types}
    for item in source.items:
        doc_type = None if plan.leaves_out(item.key) else plan.type_of(item)
        if doc_type is not None:
            items[doc_type].append(item)
    return items


_Found = Iterator[tuple[str, str]]


def _type_faults(
    name: str, type_plan: TypePlan, items: Sequence[Item], source: Source, model: Model
) -> _Found:
    entry, schema = model.entry(name), model.schema(name)
    if type_plan.existing:
        there = {"path": entry.path, "id_prefix": entry.id_prefix, "schema": entry.schema_ref}
        for key, value in there.items():
            if getattr(type_plan, key).rstrip("/") != value.rstrip("/"):
                yield f"{key}: the project's {name} has {value!r}", "say the same"
        for key in ("required", "fields"):
            if getattr(type_plan, key):
                advice = f"remove it, and edit _schema/{entry.schema_ref}.yaml instead"
                yield f"{key}: an existing type keeps its own schema", advice
    if type_plan.id_from not in (FILE_NAME, TITLE) and _nowhere(type_plan.id_from, items):
        advice = f"name a field that they have, `{FILE_NAME}` or `{TITLE}`"
        yield f"id_from: none of its items has the field {type_plan.id_from!r}", advice
    for field, origin in type_plan.derive.items():
        if origin not in (HEADING, DATE_IN_NAME) and not origin.startswith(SECTION):
            advice = f"give `{HEADING}`, `{DATE_IN_NAME}` or `{SECTION}NAME`"
            yield f"derive.{field}: {origin!r} is nothing to make a field from", advice
        elif field not in schema.fields:
            yield f"derive.{field}: the schema has no such field", "declare it under fields"
    if type_plan.body is not None:
        if source.kind == "markdown":
            yield "body: it names a column of a table, and files have their own bodies", "remove it"
        elif _nowhere(type_plan.body, items):
            yield f"body: no row has the column {type_plan.body!r}", "name a column, or remove it"
    for target, field in type_plan.links.items():
        if target not in model.registry.types:
            yield f"links.{target}: there is no such type", _REMOVE
        elif field not in schema.fields:
            advice = f"declare {{type: list, item_type: ref, target: {target}}} under fields"
            yield f"links.{target}: the schema has no field {field!r}", advice


def _nowhere(field: str, items: Sequence[Item]) -> bool:
    return bool(items) and all(field not in item.fields for item in items)


def _source_notes(plan: ImportPlan, source: Source) -> _Found:
    if plan.source and os.path.realpath(plan.source) != source.path:
        yield f"source: it was made for {plan.source}", "see that it fits this source, too"
    keys = [item.key for item in source.items]
    keys += [misfit.source for misfit in source.misfits]
    for pattern in plan.leave_out:
        one = ImportPlan(leave_out=(pattern,), types={})
        if not any(map(one.leaves_out, keys)):
            yield f"leave_out: nothing matches {pattern!r}", _REMOVE


def _item_notes(plan: ImportPlan, source: Source, model: Model) -> _Found:
    items = {item.key: item for item in source.items}
    for key, doc_id in plan.ids.items():
        item = items.get(key)
        if item is None:
            yield f"ids: the source has no item {key!r}", _REMOVE
        elif plan.leaves_out(key):
            yield f"ids: leave_out names {key!r}, too", "remove it from one of them"
        elif (doc_type := plan.type_of(item)) is not None:
            prefix = model.entry(doc_type).id_prefix
            if not doc_id.startswith(f"{prefix}-"):
                advice = f"refs to it fail; begin it with {prefix}-"
                yield f"ids: {doc_id!r} lacks the prefix of its type", advice


def _type_notes(plan: ImportPlan, source: Source) -> _Found:
    items = _items(plan, source)
    for name, type_plan in plan.types.items():
        if source.items and not items[name]:
            advice = "look at its folders, having and doc_type, and at the types before it"
            yield f"types.{name}: it takes no item", advice
        for folder in type_plan.folders:
            held = any(
                folder == "." or item.folder == folder or item.folder.startswith(f"{folder}/")
                for item in source.items
            )
            if source.items and not held:
                yield f"types.{name}.folders: no item lies in {folder!r}", _REMOVE
        for field, origin in type_plan.derive.items():
            section = origin.removeprefix(SECTION) if origin.startswith(SECTION) else None
            if section and items[name] and all(section not in one.sections for one in items[name]):
                advice = "write the heading as it stands in the files"
                yield f"types.{name}.derive.{field}: no item has a section {section!r}", advice
        if type_plan.links and plan.links != "refs":
            yield f"types.{name}.links: links is {plan.links!r}", "say `links: refs` to fill them"
        unknown = [
            one for one in type_plan.required if one not in (*type_plan.fields, *IDENTITY_KEYS)
        ]
        for field in () if type_plan.existing else unknown:
            yield f"types.{name}.required: {field!r} is not declared", "declare it under fields"
    linking = any(item.links for item in source.items)
    if plan.links == "refs" and linking and not any(one.links for one in plan.types.values()):
        advice = "name them under links in a type, and declare them in its schema"
        yield "links: no type says which fields list links", advice
