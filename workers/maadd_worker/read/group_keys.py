"""What an aggregation groups by: a field, a field behind refs, a period (spec 02 §4.6, §9)."""

from __future__ import annotations

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.outcome import Advice
from maadd_worker.schema.model import Model
from maadd_worker.schema.schema import FieldDef

UNRESOLVED = "__unresolved__"
NO_VALUE = "(null)"

_ARROW = "->"
_PERIOD_MARK = "::"

_DAY = "{x} GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*'"
_MONTH = "{x} GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]*' AND substr({x}, 6, 2) BETWEEN '01' AND '12'"
_YEAR = "({x} GLOB '[0-9][0-9][0-9][0-9]' OR {x} GLOB '[0-9][0-9][0-9][0-9]-*')"
_PERIODS = {
    "year": (_YEAR, "substr({x}, 1, 4)"),
    "quarter": (
        _MONTH,
        "substr({x}, 1, 4) || '-Q' || ((CAST(substr({x}, 6, 2) AS INTEGER) + 2) / 3)",
    ),
    "month": (_MONTH, "substr({x}, 1, 7)"),
    "week": (_DAY, "strftime('%G-W%V', substr({x}, 1, 10))"),
    "day": (_DAY, "substr({x}, 1, 10)"),
}


class GroupKey(msgspec.Struct, frozen=True):
    """`fields` lead from the record to the value: refs, then the leaf. `period` is None or the
    part of a date that counts."""

    fields: tuple[str, ...]
    period: str | None

    @property
    def is_chain(self) -> bool:
        return len(self.fields) > 1

    def value_sql(self, text: str) -> str:
        """The group's text as SQL; `text` is the leaf's column, null without a value."""
        value = text
        if self.period is not None:
            test, part = (sql.format(x=text) for sql in _PERIODS[self.period])
            value = f"CASE WHEN {test} THEN {part} ELSE '{NO_VALUE}' END"
        if not self.is_chain:
            return value
        return f"CASE WHEN coalesce({text}, '') = '' THEN '{UNRESOLVED}' ELSE {value} END"


def parse_group_key(text: str, doc_type: str | None, model: Model) -> GroupKey:
    """A `groupBy` text, checked against the schemas on its way.

    Raises SCHEMA_REF_CHAIN_INVALID for a chain without docType, with an empty segment, through
    a type without schema, an unknown field or something else than a ref; and for a period that
    is none, or of a field that is no date.
    """
    path, mark, period = text.partition(_PERIOD_MARK)
    if mark and period not in _PERIODS:
        raise _invalid(text, f'"{period}" is no period; use one of {", ".join(_PERIODS)}')
    if _ARROW not in path:
        field = _field(model, doc_type, path)
        if mark and field is not None and field.scalar_type != "date":
            raise _invalid(text, f'"{path}" is no date field')
        return GroupKey((path,), period or None)
    fields = tuple(part.strip() for part in path.split(_ARROW))
    if not all(fields):
        raise _invalid(text, "a segment is empty; write field->field")
    leaf = _leaf(text, fields, doc_type, model)
    if mark and leaf.scalar_type != "date":
        raise _invalid(text, f'"{fields[-1]}" is no date field')
    return GroupKey(fields, period or None)


def not_indexed(key: GroupKey, doc_type: str | None, model: Model) -> list[Advice]:
    """FIELD_NOT_INDEXED for every field of a key that has no index rows."""
    found: list[Advice] = []
    for name in key.fields:
        field = _field(model, doc_type, name)
        if doc_type in model.registry.types and (field is None or not field.index):
            found.append(
                Advice(
                    name,
                    f'"{name}" is no indexed field of "{doc_type}", so it gives no groups',
                    "FIELD_NOT_INDEXED",
                )
            )
        doc_type = None if field is None else field.target
    return found


def _leaf(text: str, fields: tuple[str, ...], doc_type: str | None, model: Model) -> FieldDef:
    if doc_type is None:
        raise _invalid(text, "a chain needs docType")
    for name in fields[:-1]:
        field = _chain_field(text, name, doc_type, model)
        if field.type != "ref" or field.target is None:
            raise _invalid(text, f'"{name}" of "{doc_type}" is no single ref with a target')
        doc_type = field.target
    return _chain_field(text, fields[-1], doc_type, model)


def _chain_field(text: str, name: str, doc_type: str, model: Model) -> FieldDef:
    try:
        schema = model.schema(doc_type)
    except MaadError as error:
        raise _invalid(text, error.message) from error
    field = schema.fields.get(name)
    if field is None:
        raise _invalid(text, f'"{doc_type}" has no field "{name}"')
    return field


def _field(model: Model, doc_type: str | None, name: str) -> FieldDef | None:
    if doc_type is None:
        return None
    try:
        return model.schema(doc_type).fields.get(name)
    except MaadError:
        return None


def _invalid(text: str, why: str) -> MaadError:
    return MaadError("SCHEMA_REF_CHAIN_INVALID", f'groupBy "{text}": {why}', {"groupBy": text})
