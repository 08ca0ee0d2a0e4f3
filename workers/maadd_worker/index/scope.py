"""Filters as SQL (spec 02 §2.3).

A scope is a condition on live records, shared by every tool that filters. All positive
operators on one field must hold for the same value of the record; different fields are
independent; `neq` asks that the record has the field and none of its values is equal. A filter
on a chain of refs (`asset->site`) asks the same of the field that the chain reaches.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.index.chains import ChainFault, is_chain, parse_chain, unindexed_fields
from maadd_worker.index.filters import (
    ScopeWarning,
    contains_params,
    contains_test,
    filter_fields,
    flatten_condition,
    is_number,
)
from maadd_worker.index.layout import NUMBER_KNOWN
from maadd_worker.index.plan import is_numeric
from maadd_worker.markdown.text import js_text
from maadd_worker.schema.model import Model
from maadd_worker.schema.schema import FieldDef

EQUAL, ONE_OF, RANGE, PRESENT, TEXT_SCAN = range(5)
"""How well an index narrows a condition down, best first."""

_KNOWN_NUMBER = f"{{v}}.numeric_rank = {NUMBER_KNOWN}"
_ANY_OF = "SELECT value FROM json_each(?)"
_RANGE_SQL = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_ACCESS = {"eq": EQUAL, "in": ONE_OF, "contains": TEXT_SCAN}
_PLAIN_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)", re.ASCII)


class Part(msgspec.Struct, frozen=True):
    """One positive operator on a value: on its number, or on its text. The bound of `in` is a
    tuple of texts."""

    op: str
    bound: Any
    numeric: bool


class Condition(msgspec.Struct, frozen=True):
    """What a scope asks of one field: a value that passes all `parts`, and none of `excluded`.

    `test` says the parts as SQL with `{v}` for a row of `field_values`, `params` are its values;
    `access` tells how well an index serves it. With a chain, `field` is its first field and
    `behind` are the others: rows of `field` are tested by what they lead to.
    """

    field: str
    behind: tuple[str, ...]
    parts: tuple[Part, ...]
    test: str
    params: tuple[Any, ...]
    excluded: tuple[str, ...]
    access: int

    def passing(self, row: str) -> tuple[str, list[Any]]:
        """The test on one row with this alias."""
        return _reached(row, self.behind, self.test, self.params)

    def listing(self, row: str) -> tuple[str, list[Any]]:
        """The same test as a list of the values that the rows may have: for many rows."""
        return _listed(row, self.behind, self.test, self.params)

    def excluding(self, row: str) -> tuple[str, list[Any]]:
        """The test for a row with one of the values that must not be there."""
        test = f"{{v}}.present = 1 AND {{v}}.field_value IN ({_ANY_OF})"
        return _reached(row, self.behind, test, (_json_list(self.excluded),))

    def narrowed_to(self, texts: Sequence[str]) -> Condition:
        """The condition where `texts` are those of the field that pass each `contains`."""
        kept = tuple(part for part in self.parts if part.op != "contains")
        parts = (*kept, Part("in", tuple(texts), False))
        return _condition_of((self.field, *self.behind), parts, self.excluded)


class Scope(msgspec.Struct, frozen=True):
    """A condition on rows `d` of `documents`: `sql` with its `params`, for use behind WHERE."""

    doc_type: str | None
    conditions: tuple[Condition, ...]
    sql: str
    params: tuple[Any, ...]
    warnings: tuple[ScopeWarning, ...] = ()

    @property
    def reaches_out(self) -> bool:
        """Whether records of other types decide too."""
        return any(condition.behind for condition in self.conditions)


def build_scope(doc_type: str | None, filters: object, model: Model) -> Scope:
    """The scope of a call: live records, of one type if given, that pass every filter.

    Raises FILTER_EMPTY_ARRAY, FILTER_OP_INVALID, FILTER_BETWEEN_INVALID with the field, and
    SCHEMA_REF_CHAIN_INVALID for a chain of refs that leads nowhere.
    """
    fields = _indexed_fields(doc_type, model)
    warnings: list[ScopeWarning] = []
    conditions: list[Condition] = []
    for name, given in filter_fields(filters).items():
        if is_chain(name):
            chain, leaf = _chain(name, doc_type, model)
            warnings += [
                _not_indexed(missing, _indexed_fields(declared_in, model) or {})
                for missing, declared_in in unindexed_fields(chain, doc_type, model)
            ]
            numeric = is_numeric(leaf)
        else:
            chain = (name,)
            if fields is not None and name not in fields:
                warnings.append(_not_indexed(name, fields))
            numeric = _compares_as_number(name, fields, model)
        operators = flatten_condition(name, given, warnings)
        conditions.append(_condition(chain, operators, numeric))
    return scope_of(doc_type, conditions, warnings)


def scope_of(
    doc_type: str | None, conditions: Sequence[Condition], warnings: Sequence[ScopeWarning]
) -> Scope:
    """The scope of live records, of one type if given, that pass all conditions."""
    sql, params = "d.deleted = 0", []
    if doc_type is not None:
        sql += " AND d.doc_type = ?"
        params.append(doc_type)
    tests, values = record_tests(conditions, "d.doc_id", doc_type)
    return Scope(doc_type, tuple(conditions), sql + tests, (*params, *values), tuple(warnings))


def probe(
    condition: Condition,
    doc_id: str,
    doc_type: str | None,
    *,
    known: bool = False,
    few: bool = False,
) -> tuple[str, list[Any]]:
    """The condition as a test of one live record of the type (None: of any).

    `doc_id` is an SQL expression for its id, of a table not called `v`. With `known` some value
    passes already, and only what the condition excludes is tested. `few` says that few records
    will be tested: then the rows of a record, which lie together, are the shortest way.
    """
    texts: list[str] = []
    params: list[Any] = []
    if not known:
        rows, values = _rows_of(
            condition, doc_id, doc_type, exact=condition.access == EQUAL and not few
        )
        test, bounds = condition.passing("v")
        texts.append(f"EXISTS ({rows} AND {test})")
        params += [*values, *bounds]
    if condition.excluded:
        rows, values = _rows_of(condition, doc_id, doc_type, exact=not few and not condition.behind)
        test, bounds = condition.excluding("v")
        texts.append(f"NOT EXISTS ({rows} AND {test})")
        params += [*values, *bounds]
    return " AND ".join(texts) or "1", params


def record_tests(
    conditions: Sequence[Condition],
    doc_id: str,
    doc_type: str | None,
    *,
    known: int | None = None,
    few: bool = False,
) -> tuple[str, list[Any]]:
    """All conditions as tests of one record, each behind AND; `known` is the place of one that
    is known to have a value that passes, `few` as in `probe`."""
    texts: list[str] = []
    params: list[Any] = []
    for place, condition in enumerate(conditions):
        text, values = probe(condition, doc_id, doc_type, known=place == known, few=few)
        texts.append(f" AND {text}")
        params += values
    return "".join(texts), params


def candidates(condition: Condition, doc_type: str | None) -> tuple[str, list[Any]]:
    """FROM and WHERE that list, by index, the rows `v` that pass the condition's test."""
    if doc_type is None:
        types, params = "v.doc_type IN (SELECT doc_type FROM type_counts)", []
    else:
        types, params = "v.doc_type = ?", [doc_type]
    test, bounds = condition.listing("v")
    sql = f"FROM field_values v WHERE {types} AND v.field_name = ? AND {test}"
    return sql, [*params, condition.field, *bounds]


def _rows_of(
    condition: Condition, doc_id: str, doc_type: str | None, *, exact: bool
) -> tuple[str, list[Any]]:
    """The rows of the condition's field in one record.

    For `exact` look-ups of a value the index by text is better: the entries of one value lie
    together there, those of one record do not.
    """
    if exact and doc_type is not None:
        by_text = (
            "SELECT 1 FROM field_values v INDEXED BY field_values_by_text "
            f"WHERE v.doc_id = {doc_id} AND v.doc_type = ? AND v.field_name = ?"
        )
        return by_text, [doc_type, condition.field]
    by_record = f"SELECT 1 FROM field_values v WHERE v.doc_id = {doc_id} AND v.field_name = ?"
    return by_record, [condition.field]


def _indexed_fields(doc_type: str | None, model: Model) -> dict[str, FieldDef] | None:
    """The type's indexed fields; None when no type was asked or its schema is not usable."""
    if doc_type is None:
        return None
    try:
        schema = model.schema(doc_type)
    except MaadError:
        return None
    return {name: field for name, field in schema.fields.items() if field.index}


def _compares_as_number(name: str, fields: Mapping[str, FieldDef] | None, model: Model) -> bool:
    """Whether every schema that may be meant declares the field numeric."""
    if fields is not None:
        return name in fields and is_numeric(fields[name])
    declared = [schema.fields[name] for schema in model.schemas.values() if name in schema.fields]
    return bool(declared) and all(is_numeric(field) for field in declared)


def _chain(name: str, doc_type: str | None, model: Model) -> tuple[tuple[str, ...], FieldDef]:
    try:
        return parse_chain(name, doc_type, model)
    except ChainFault as fault:
        raise MaadError(
            "SCHEMA_REF_CHAIN_INVALID", f'filter on "{name}": {fault}', {"field": name}
        ) from fault


def _reached(
    row: str, behind: Sequence[str], test: str, params: Sequence[Any]
) -> tuple[str, list[Any]]:
    """The test of what a row leads to, followed from this one row; a dead end fails it."""
    if not behind:
        return test.replace("{v}", row), list(params)
    target = f"c{len(behind)}"
    inner, values = _reached(target, behind[1:], test, params)
    sql = (
        f"{row}.present = 1 AND EXISTS (SELECT 1 FROM field_values {target} "
        f"WHERE {target}.doc_id = {row}.field_value AND {target}.field_name = ? AND {inner})"
    )
    return sql, [behind[0], *values]


def _listed(
    row: str, behind: Sequence[str], test: str, params: Sequence[Any]
) -> tuple[str, list[Any]]:
    """The same test, with a list of the records that may be referred to, found from the end of
    the chain by index."""
    if not behind:
        return test.replace("{v}", row), list(params)
    target = f"c{len(behind)}"
    inner, values = _listed(target, behind[1:], test, params)
    sql = (
        f"{row}.present = 1 AND {row}.field_value IN (SELECT {target}.doc_id "
        f"FROM field_values {target} WHERE {target}.doc_type IN (SELECT doc_type FROM type_counts) "
        f"AND {target}.field_name = ? AND {inner})"
    )
    return sql, [behind[0], *values]


def _condition(
    chain: tuple[str, ...], operators: Iterable[tuple[str, Any]], numeric: bool
) -> Condition:
    excluded: list[str] = []
    parts: list[Part] = []
    for op, value in operators:
        if op == "neq":
            excluded.append(js_text(value))
        else:
            parts.append(_part(op, value, numeric))
    return _condition_of(chain, tuple(parts), tuple(excluded))


def _condition_of(
    chain: tuple[str, ...], parts: tuple[Part, ...], excluded: tuple[str, ...]
) -> Condition:
    tests = [_test(part) for part in parts]
    # A known number is present; asking again would take the row out of the index by number.
    if not parts or not all(part.numeric for part in parts):
        tests.insert(0, "{v}.present = 1")
    access = min((_ACCESS.get(part.op, RANGE) for part in parts), default=PRESENT)
    return Condition(
        chain[0],
        chain[1:],
        parts,
        " AND ".join(tests),
        tuple(value for part in parts for value in _params(part)),
        excluded,
        # What a row leads to is never compared with the row itself.
        access if len(chain) == 1 else max(access, ONE_OF),
    )


def _part(op: str, value: Any, numeric: bool) -> Part:
    if op == "in":
        return Part(op, tuple(js_text(item) for item in value), False)
    if op in ("eq", "contains"):
        return Part(op, js_text(value), False)
    if is_number(value):
        return Part(op, _to_float(value), True)
    if numeric and isinstance(value, str) and _PLAIN_DECIMAL.fullmatch(value):
        return Part(op, float(value), True)
    return Part(op, js_text(value), False)


def _test(part: Part) -> str:
    """A part as SQL that takes `_params`."""
    if part.op == "eq":
        return "{v}.field_value = ?"
    if part.op == "in":
        return f"{{v}}.field_value IN ({_ANY_OF})"
    if part.op == "contains":
        return contains_test("{v}.field_value", part.bound)
    sign = _RANGE_SQL[part.op]
    if part.numeric:
        return f"{_KNOWN_NUMBER} AND {{v}}.numeric_value {sign} ?"
    return f"{{v}}.field_value {sign} ?"


def _params(part: Part) -> tuple[Any, ...]:
    if part.op == "in":
        return (_json_list(part.bound),)
    if part.op == "contains":
        return contains_params(part.bound)
    return (part.bound,)


def _to_float(value: int | float) -> float:
    """The number as SQLite compares it; an integer beyond the range of floats is infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _json_list(texts: Iterable[str]) -> str:
    return msgspec.json.encode(list(texts)).decode()


def _not_indexed(name: str, fields: Mapping[str, FieldDef]) -> ScopeWarning:
    listing = ", ".join(fields) if fields else "none"
    return ScopeWarning(
        "FILTER_FIELD_NOT_INDEXED",
        name,
        f'"{name}" is no indexed field of this type, so the filter matches nothing; '
        f"indexed fields: {listing}",
    )
