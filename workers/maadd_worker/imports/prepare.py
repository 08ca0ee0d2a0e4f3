"""The records of an import, checked before anything is written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from maadd.protocol.errors import MaadError, MaadErrors, errors_of
from maadd_worker.imports.assign import Assigned, assign
from maadd_worker.imports.convert import Converter, Unfit, as_text
from maadd_worker.imports.links import find_links, with_mentions
from maadd_worker.imports.plan import ImportPlan
from maadd_worker.imports.source import Item, Link, Misfit, Source
from maadd_worker.imports.targets import Targets
from maadd_worker.imports.toml_frontmatter import with_yaml_fences
from maadd_worker.markdown.frontmatter import split_file
from maadd_worker.markdown.serializer import check_keys
from maadd_worker.markdown.verbatim import VerbatimZones
from maadd_worker.schema.model import Model
from maadd_worker.schema.registry import parse_registry
from maadd_worker.schema.schema_file import parse_schema
from maadd_worker.schema.validation import validate


class Record(msgspec.Struct, frozen=True):
    """What an item becomes; `fields` are all but the identity, `body` is that of a table's row."""

    item: Item
    doc_type: str
    doc_id: str
    fields: dict[str, Any]
    body: str | None = None

    def digest(self, links: Sequence[str]) -> str:
        """The SHA-256 of what the plan makes of the item; `links` are the ids that its body
        mentions."""
        made = [self.doc_type, self.fields, list(links)]
        # Fields may hold integers of any size, which the faster encoder refuses.
        return hashlib.sha256(json.dumps(made).encode()).hexdigest()


class Prepared(msgspec.Struct, frozen=True):
    """The records that fit, what does not, and remarks that stop nothing: a ref to a record that
    is not there, a link that leads nowhere."""

    records: tuple[Record, ...]
    misfits: tuple[Misfit, ...]
    notes: tuple[Misfit, ...]
    assigned: Assigned


def planned_model(model: Model, plan: ImportPlan) -> Model:
    """The model of the project with the types of the plan.

    Raises MaadErrors: REGISTRY_INVALID, DUPLICATE_PREFIX, SCHEMA_INVALID, and UNKNOWN_TYPE for a
    type that the plan calls existing.
    """
    entries: dict[str, Any] = {}
    for name, entry in model.registry.types.items():
        entries[name] = {
            "path": entry.path,
            "id_prefix": entry.id_prefix,
            "schema": entry.schema_ref,
            "shard": entry.shard,
        }
    for name, type_plan in plan.types.items():
        if type_plan.existing:
            model.entry(name)
        else:
            entries.setdefault(
                name,
                {
                    "path": type_plan.path,
                    "id_prefix": type_plan.id_prefix,
                    "schema": type_plan.schema,
                },
            )
    registry = parse_registry({"types": entries})
    schemas = dict(model.schemas)
    problems: list[MaadError] = []
    for name, type_plan in plan.types.items():
        if type_plan.existing or type_plan.schema in schemas:
            continue
        try:
            schemas[type_plan.schema] = parse_schema(
                type_plan.schema, type_plan.schema_document(name), registry.types
            )
        except MaadErrors as failure:
            problems += errors_of(failure)
    if problems:
        raise MaadErrors(problems)
    return Model(registry, schemas, model.stamps)


def prepare(source: Source, plan: ImportPlan, model: Model, pinned: Mapping[str, str]) -> Prepared:
    """Convert and check every item against `model`, which has the types of the plan."""
    prefixes = {entry.id_prefix: name for name, entry in model.registry.types.items()}
    assigned = assign(source, plan, prefixes, pinned)
    notes: list[Misfit] = []

    def dangling(item: Item, field: str, doc_id: str) -> None:
        reason = f"{field}: there is no {doc_id}"
        advice = "the ref is kept; it is broken until that record exists"
        notes.append(Misfit(item.key, reason, advice, item.field_lines.get(field)))

    converter = Converter(plan, model, assigned.targets, dangling)
    records: list[Record] = []
    unread = [misfit for misfit in source.misfits if not plan.leaves_out(misfit.source)]
    misfits = [*unread, *assigned.misfits]
    for item in source.items:
        target = assigned.records.get(item.key)
        if target is None:
            continue
        noted = len(notes)
        found = _record(item, target.doc_type, target.doc_id, plan, model, converter)
        if isinstance(found, Record):
            records.append(found)
            if plan.links != "keep":
                notes += _open_links(item, plan, assigned.targets)
        else:
            del notes[noted:]
            misfits.append(found)
    return Prepared(tuple(records), tuple(misfits), tuple(notes), assigned)


def _record(
    item: Item, doc_type: str, doc_id: str, plan: ImportPlan, model: Model, converter: Converter
) -> Record | Misfit:
    try:
        fields = converter.fields(item, doc_type, doc_id)
        check_keys(fields)
        schema = model.schema(doc_type)
    except Unfit as unfit:
        line = item.field_lines.get(unfit.field, item.line)
        return Misfit(_name(item), f"{unfit.field}: {unfit.reason}", unfit.advice, line)
    except MaadError as error:
        reason, _, advice = error.message.partition("; ")
        return Misfit(_name(item), reason, advice or "correct the file", item.line)
    identity = {"doc_id": doc_id, "doc_type": doc_type, "schema": schema.ref}
    report = validate(schema, model, {**identity, **fields}, "write")
    if report.errors:
        first = report.errors[0]
        reason = "; ".join(f"{one.field}: {one.message}" for one in report.errors)
        advice = "correct it at the source, or change the field in the plan"
        return Misfit(_name(item), reason, advice, item.field_lines.get(first.field, item.line))
    column = plan.types[doc_type].body
    body = item.fields.get(column) if column is not None else None
    return Record(item, doc_type, doc_id, fields, None if body is None else as_text(body))


def _name(item: Item) -> str:
    return f"row {item.key}" if item.key.isdigit() else item.key


def _open_links(item: Item, plan: ImportPlan, targets: Targets) -> list[Misfit]:
    notes = []
    for link in item.links:
        target = targets.find_link(link, item)
        if target is None and (link.wiki or link.target.lower().endswith(".md")):
            reason = f"the link to {link.target!r} leads to no record, or to several"
        elif target is not None and plan.links == "mentions" and (link.heading or link.embeds):
            reason = f"the link to {link.target!r} is to a place or an embedding"
        else:
            continue
        notes.append(Misfit(item.key, reason, "it stays as it is", link.line))
    return notes


_NO_FIELDS = "---\n---\n"


def original_text(record: Record, source: Source, plan: ImportPlan, targets: Targets) -> str | None:
    """The text of an item as it goes to the engine, which keeps its body byte for byte; in mode
    `mentions` with annotations in place of links.

    None for a file without a byte and a row without a body. Raises MaadError when a file can no
    longer be read as it was.
    """
    if source.kind != "markdown":
        return None if record.body is None else f"{_NO_FIELDS}{record.body}"
    if record.item.empty:
        return None
    text = with_yaml_fences(source.read_text(record.item), record.item.key)
    if plan.links != "mentions":
        return text
    split = split_file(text.encode(), record.item.key)
    zones = VerbatimZones(split.body)
    links = list(find_links(split.body, split.body_start_line, zones))

    def mention(link: Link) -> tuple[str, str] | None:
        target = targets.find_link(link, record.item)
        return None if target is None else (target.doc_type, target.doc_id)

    return text[: len(text) - len(split.body)] + with_mentions(split.body, links, mention)
