"""Chains of refs that lead from a record to a field of another one (spec 02 §4.6, §9).

Groups and filters write them alike, `asset->site`, and are checked alike.
"""

from __future__ import annotations

from maadd.protocol.errors import MaadError
from maadd_worker.schema.model import Model
from maadd_worker.schema.schema import FieldDef

ARROW = "->"

MAX_FIELDS = 20
"""Of a chain: three of them, as groups, are about as many tables as SQLite can join."""


class ChainFault(Exception):
    """Why a chain leads nowhere; the caller names the argument."""


def is_chain(text: str) -> bool:
    """Whether the text is meant as a chain."""
    return ARROW in text


def parse_chain(text: str, doc_type: str | None, model: Model) -> tuple[tuple[str, ...], FieldDef]:
    """The fields of a chain that starts at records of a type, and the declaration of its leaf.

    ChainFault without a type, for an empty segment, more than 20 fields, a type without schema, an
    unknown field, or something else than a single ref before the leaf.
    """
    fields = tuple(part.strip() for part in text.split(ARROW))
    if not all(fields):
        raise ChainFault("a segment is empty; write field->field")
    if len(fields) > MAX_FIELDS:
        raise ChainFault(f"a chain has at most {MAX_FIELDS} fields")
    if doc_type is None:
        raise ChainFault("a chain needs docType")
    for name in fields[:-1]:
        field = _declared(name, doc_type, model)
        if field.type != "ref" or field.target is None:
            raise ChainFault(f'"{name}" of "{doc_type}" is no single ref with a target')
        doc_type = field.target
    return fields, _declared(fields[-1], doc_type, model)


def unindexed_fields(
    fields: tuple[str, ...], doc_type: str | None, model: Model
) -> list[tuple[str, str]]:
    """The fields of a chain or a single field that have no index rows, each with its type."""
    found: list[tuple[str, str]] = []
    for name in fields:
        field = _field(name, doc_type, model)
        if doc_type in model.registry.types and (field is None or not field.index):
            found.append((name, doc_type))
        doc_type = None if field is None else field.target
    return found


def _declared(name: str, doc_type: str, model: Model) -> FieldDef:
    try:
        schema = model.schema(doc_type)
    except MaadError as error:
        raise ChainFault(error.message) from error
    field = schema.fields.get(name)
    if field is None:
        raise ChainFault(f'"{doc_type}" has no field "{name}"')
    return field


def _field(name: str, doc_type: str | None, model: Model) -> FieldDef | None:
    if doc_type is None:
        return None
    try:
        return model.schema(doc_type).fields.get(name)
    except MaadError:
        return None
