"""Which item becomes which record: types, and ids without doubles (spec 01 §10)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from maadd.protocol.doc_ids import doc_id_fault
from maadd_worker.imports.names import digest_id, record_id, same_name
from maadd_worker.imports.plan import FILE_NAME, TITLE, ImportPlan, TypePlan
from maadd_worker.imports.source import Item, Misfit, Source
from maadd_worker.imports.targets import Target, Targets
from maadd_worker.imports.values import written

_FOLDER_NAMES = frozenset(("index", "_index", "readme"))
_IN_AN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Assigned(msgspec.Struct, frozen=True):
    """The types and ids of a source's items. `collisions` are ids that had to be other than the
    first choice: by item, with the id that came before it. `left_out` is as the plan asks."""

    records: Mapping[str, Target]
    targets: Targets
    collisions: Mapping[str, tuple[str, str]]
    left_out: tuple[str, ...]
    misfits: tuple[Misfit, ...]


def assign(
    source: Source, plan: ImportPlan, prefixes: Mapping[str, str], pinned: Mapping[str, str]
) -> Assigned:
    """Give every item its type and id, in order of the items.

    `pinned` are ids from before, which stay. Of several items with one id the first keeps it,
    the others get a number; names that differ in case only count as one.
    """
    targets = Targets({**prefixes, **{one.id_prefix: name for name, one in plan.types.items()}})
    taken = {same_name(doc_id): key for key, doc_id in [*plan.ids.items(), *pinned.items()]}
    records: dict[str, Target] = {}
    collisions: dict[str, tuple[str, str]] = {}
    left_out: list[str] = []
    misfits: list[Misfit] = []
    for item in source.items:
        if plan.leaves_out(item.key):
            left_out.append(item.key)
            continue
        doc_type = plan.type_of(item)
        if doc_type is None:
            advice = (
                "give a type in the plan its folder, name it under leave_out, or plan anew "
                "with --replan"
            )
            misfits.append(Misfit(item.key, "no type of the plan takes it", advice))
            continue
        type_plan = plan.types[doc_type]
        number = id_text(item, type_plan)
        doc_id = pinned.get(item.key) or plan.ids.get(item.key)
        if doc_id is None:
            wanted = number_id(type_plan, item, number)
            doc_id, count = wanted, 2
            while (holder := taken.get(same_name(doc_id))) is not None and holder != item.key:
                doc_id = f"{wanted}-{count}"
                count += 1
            if doc_id != wanted:
                collisions[item.key] = (wanted, doc_id)
        elif (fault := doc_id_fault(doc_id, stem=True)) is not None:
            advice = "give it another id under ids in the plan"
            misfits.append(Misfit(item.key, f"{doc_id!r} is no id ({fault})", advice))
            continue
        elif (holder := taken[same_name(doc_id)]) != item.key:
            advice = "give one of them another id under ids in the plan"
            misfits.append(Misfit(item.key, f"{doc_id!r} is the id of {holder}, too", advice))
            continue
        taken[same_name(doc_id)] = item.key
        records[item.key] = Target(item.key, doc_type, doc_id)
        targets.add(item, records[item.key], number)
    return Assigned(records, targets, collisions, tuple(left_out), tuple(misfits))


def id_text(item: Item, type_plan: TypePlan) -> str | None:
    """The text that the id of an item is made from; None when it has none."""
    if type_plan.id_from == FILE_NAME:
        if item.stem.lower() in _FOLDER_NAMES and item.folder:
            return item.folder.rpartition("/")[2]
        return item.stem
    if type_plan.id_from == TITLE:
        found = item.fields.get("title") or item.fields.get("name") or item.heading
        return found if isinstance(found, str) else None
    value = item.fields.get(type_plan.id_from)
    if value is None or isinstance(value, list | dict):
        return None
    return written(value, item.raw.get(type_plan.id_from))


def number_id(type_plan: TypePlan, item: Item, text: str | None) -> str:
    """The id that an item should have."""
    keep_case = type_plan.id_from not in (FILE_NAME, TITLE)
    for candidate in (text, item.stem):
        if candidate:
            doc_id = record_id(type_plan.id_prefix, candidate, keep_case=keep_case)
            if doc_id is not None:
                return doc_id
    return digest_id(type_plan.id_prefix, item.key)


def identifies(name: str, items: Sequence[Item]) -> bool:
    """Whether every item has a value of the field that no other has, and that an id can hold."""
    seen: set[str] = set()
    for item in items:
        value = item.fields.get(name)
        if not isinstance(value, str | int) or isinstance(value, bool):
            return False
        text = written(value, item.raw.get(name))
        if not _IN_AN_ID.fullmatch(text) or same_name(text) in seen:
            return False
        seen.add(same_name(text))
    return bool(items)
