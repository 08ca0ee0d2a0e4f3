"""What an aggregation groups by: a field, a field behind refs, a period (spec 02 §4.6, §9)."""

from __future__ import annotations

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.index.chains import ChainFault, is_chain, parse_chain, unindexed_fields
from maadd_worker.outcome import Advice
from maadd_worker.schema.model import Model
from maadd_worker.schema.schema import FieldDef

UNRESOLVED = "__unresolved__"
NO_VALUE = "(null)"

_PERIOD_MARK = "::"

_WHOLE = "{x} GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*'"
# SQLite takes the 30th of February for the 2nd of March.
_REAL = "date(substr({x}, 1, 10)) IS substr({x}, 1, 10)"
_DAY = f"{_WHOLE} AND {_REAL}"
_MONTH = (
    "{x} GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]*' AND substr({x}, 6, 2) BETWEEN '01' AND '12' "
    f"AND (NOT {_WHOLE} OR {_REAL})"
)
_YEAR = (
    "({x} GLOB '[0-9][0-9][0-9][0-9]' OR {x} GLOB '[0-9][0-9][0-9][0-9]-*') "
    f"AND (NOT {_WHOLE} OR {_REAL})"
)
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

    SCHEMA_REF_CHAIN_INVALID for a chain that leads nowhere (`parse_chain`), and for a period
    that is none, or of a field that is no date.
    """
    path, mark, period = text.partition(_PERIOD_MARK)
    if mark and period not in _PERIODS:
        raise _invalid(text, f'"{period}" is no period; use one of {", ".join(_PERIODS)}')
    leaf: FieldDef | None
    if is_chain(path):
        try:
            fields, leaf = parse_chain(path, doc_type, model)
        except ChainFault as fault:
            raise _invalid(text, str(fault)) from fault
    else:
        fields, leaf = (path,), _field(model, doc_type, path)
    if mark and leaf is not None and leaf.scalar_type != "date":
        raise _invalid(text, f'"{fields[-1]}" is no date field')
    return GroupKey(fields, period or None)


def not_indexed(key: GroupKey, doc_type: str | None, model: Model) -> list[Advice]:
    """FIELD_NOT_INDEXED for every field of a key that has no index rows."""
    return [
        Advice(
            name,
            f'"{name}" is no indexed field of "{declared_in}", so it gives no groups',
            "FIELD_NOT_INDEXED",
        )
        for name, declared_in in unindexed_fields(key.fields, doc_type, model)
    ]


def _field(model: Model, doc_type: str | None, name: str) -> FieldDef | None:
    if doc_type is None:
        return None
    try:
        return model.schema(doc_type).fields.get(name)
    except MaadError:
        return None


def _invalid(text: str, why: str) -> MaadError:
    return MaadError("SCHEMA_REF_CHAIN_INVALID", f'groupBy "{text}": {why}', {"groupBy": text})
