"""The statements behind `maad_aggregate` (spec 02 §4.6), where columns in memory do not tell.

Records are brought together once per group before anything is measured, so that neither
repeated list items nor a list of measured values multiply anything. Child rows exist for live
records only: an edge to a tombstone leads nowhere, as one to a missing record does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from maadd.protocol.arguments.read import Having, Metric
from maadd_worker.index.layout import ALONE, NUMBER_KNOWN
from maadd_worker.index.scope import Scope, candidates, record_tests
from maadd_worker.read.group_keys import GroupKey

Statement = tuple[str, list[Any]]

_NUMBER = f"CASE m.numeric_rank WHEN {NUMBER_KNOWN} THEN m.numeric_value END"
_SCALE = (
    "iif(instr(m.decimal_value, '.'), length(m.decimal_value) - instr(m.decimal_value, '.'), 0)"
)
# Amounts know the decimals they were written with, so their sums end where those do.
_SUM = f"iif(count(m.decimal_value), round(sum({_NUMBER}), max({_SCALE})), sum({_NUMBER}))"
_METRICS = {
    "sum": _SUM,
    "avg": f"{_SUM} / count({_NUMBER})",
    "min": f"min({_NUMBER})",
    "max": f"max({_NUMBER})",
    "countDistinct": "count(DISTINCT m.field_value)",
}
# Most records have one row; only the others need to be told apart.
_RECORDS = (
    f"count(*) FILTER (WHERE v0.extreme & {ALONE}) "
    f"+ count(DISTINCT iif(v0.extreme & {ALONE}, NULL, v0.doc_id))"
)
_COMPARISONS = {"eq": "=", "neq": "<>", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_CURRENCY_MARKERS = 20

CURRENCY_SIGNS = "0123456789.,+- "
"""What an amount has beside its currency."""


class Grouping(msgspec.Struct, frozen=True):
    """What is grouped, by what, and what is measured; `doc_ids` are the records of the scope,
    where they are known."""

    scope: Scope
    keys: tuple[GroupKey, ...]
    metric: Metric | None
    doc_ids: tuple[str, ...] | None = None

    @property
    def is_listed(self) -> bool:
        """Whether the records come from a list, not from the rows of the first key."""
        return self.doc_ids is not None or bool(self.scope.conditions)

    def ids(self) -> Statement:
        """The ids of the scope, in a column `doc_id`: those known, or else one condition lists
        them by index and the others test."""
        if self.doc_ids is not None:
            return "SELECT value AS doc_id FROM json_each(?)", [_json(self.doc_ids)]
        conditions, doc_type = self.scope.conditions, self.scope.doc_type
        driver = min(range(len(conditions)), key=lambda place: conditions[place].access)
        listed, params = candidates(conditions[driver], doc_type)
        tests, values = record_tests(conditions, "o.doc_id", doc_type, known=driver)
        sql = f"SELECT DISTINCT o.doc_id AS doc_id FROM (SELECT v.doc_id {listed}) o WHERE 1{tests}"
        return sql, [*params, *values]


def groups_page(
    grouping: Grouping, having: Having | None, order_by: str | None, order: str | None
) -> Statement:
    """Rows of group texts, count, metric and the number of all groups; takes the limit last."""
    names = ", ".join(f"g{number}" for number in range(len(grouping.keys)))
    grouped, params = _grouped(grouping, names)
    measure = "number" if grouping.metric is None else "metric"
    kept = ""
    if having is not None:
        kept = f" WHERE {measure} {_COMPARISONS[having.op]} ?"
        params.append(having.value)
    column = {"metric": measure, "count": "number", "value": names, None: measure}[order_by]
    sql = (
        f"SELECT {names}, number, metric, count(*) OVER () FROM ({grouped}){kept} "
        f"ORDER BY {_ordered(column, order_by, order)}{names} LIMIT ?"
    )
    return sql, params


def members(grouping: Grouping) -> Statement:
    """How many records have a value for every group key."""
    source = _source(grouping)
    number = _RECORDS if len(grouping.keys) == 1 else "count(DISTINCT v0.doc_id)"
    return f"SELECT {number} {source.sql()}", source.params()


def currencies(grouping: Grouping, field: str) -> Statement:
    """The different texts around the numbers of an amount field, each with one of its texts."""
    scope = grouping.scope
    types = [] if scope.doc_type is None else [scope.doc_type]
    source = f"field_values m WHERE m.field_name = ? AND m.present = 1 AND {_of_type('m', scope)}"
    params: list[Any] = [field, *types]
    if grouping.is_listed:
        ids, values = grouping.ids()
        source = f"({ids}) s CROSS JOIN field_values {_row_of('m', 's.doc_id')}"
        params = [*values, field]
    sql = (
        f"SELECT upper(trim(m.field_value, '{CURRENCY_SIGNS}')) AS marker, min(m.field_value) "
        f"FROM {source} GROUP BY marker ORDER BY marker LIMIT {_CURRENCY_MARKERS}"
    )
    return sql, params


def leaves(key: GroupKey, texts: Sequence[str]) -> Statement:
    """Rows of a place in `texts` and a group's text, for all that a text of the key's first
    field leads to."""
    joins, leaf = _hops(key, "i.value", "h")
    sql = f"SELECT i.key, {key.value_sql(leaf)} FROM json_each(?) i{joins}"
    return sql, [_json(texts), *key.fields[1:]]


def _ordered(column: str, order_by: str | None, order: str | None) -> str:
    if order_by == "value":
        if order != "desc":
            return ""
        return ", ".join(f"{name} DESC" for name in column.split(", ")) + ", "
    direction = "ASC" if order == "asc" else "DESC"
    return f"{column} {direction} NULLS LAST, "


def _grouped(grouping: Grouping, names: str) -> Statement:
    """One row per group: its texts, `number` of records, `metric`."""
    metric = grouping.metric
    counts_only = metric is None or metric.op == "count"
    if counts_only and len(grouping.keys) == 1 and not grouping.keys[0].is_chain:
        source = _source(grouping)
        value = grouping.keys[0].value_sql("v0.field_value")
        sql = f"SELECT {value} AS g0, {_RECORDS} AS number, count(*) AS metric {source.sql()}"
        return f"{sql} GROUP BY 1", source.params()
    base, params = _base(grouping)
    if metric is None or metric.op == "count":
        sql = f"SELECT {names}, count(*) AS number, sum(row_count) AS metric FROM ({base})"
        return f"{sql} GROUP BY {names}", params
    sql = (
        f"SELECT {names}, count(DISTINCT b.doc_id) AS number, {_METRICS[metric.op]} AS metric "
        f"FROM ({base}) b CROSS JOIN field_values {_row_of('m', 'b.doc_id')} GROUP BY {names}"
    )
    return sql, [*params, metric.field]


class _Source(msgspec.Struct, frozen=True):
    """FROM and WHERE over the rows `v0`, `v1`… of the group keys, one for each key's first
    field."""

    tables: str
    table_params: tuple[Any, ...]
    where: str = "1"
    where_params: tuple[Any, ...] = ()

    def sql(self, joins: str = "") -> str:
        return f"FROM {self.tables}{joins} WHERE {self.where}"

    def params(self, joined: tuple[Any, ...] = ()) -> list[Any]:
        return [*self.table_params, *joined, *self.where_params]


def _source(grouping: Grouping) -> _Source:
    scope, first = grouping.scope, grouping.keys[0].fields[0]
    others = [(number, key.fields[0]) for number, key in enumerate(grouping.keys)][1:]
    joins = "".join(f" CROSS JOIN field_values {_row_of(f'v{n}', 'v0.doc_id')}" for n, _ in others)
    names = tuple(name for _, name in others)
    if grouping.is_listed:
        ids, params = grouping.ids()
        tables = f"({ids}) s CROSS JOIN field_values {_row_of('v0', 's.doc_id')}{joins}"
        return _Source(tables, (*params, first, *names))
    where = f"v0.field_name = ? AND v0.present = 1 AND {_of_type('v0', scope)}"
    types = () if scope.doc_type is None else (scope.doc_type,)
    return _Source(f"field_values v0{joins}", names, where, (first, *types))


def _of_type(alias: str, scope: Scope) -> str:
    """The test for rows of the scope's type, which is the next parameter; of any without one."""
    if scope.doc_type is None:
        return f"{alias}.doc_type IN (SELECT doc_type FROM type_counts)"
    return f"{alias}.doc_type = ?"


def _row_of(alias: str, doc_id: str) -> str:
    """The rows of a record's field, whose name is the next parameter."""
    return (
        f"{alias} ON {alias}.doc_id = {doc_id} AND {alias}.field_name = ? AND {alias}.present = 1"
    )


def _json(texts: Sequence[str]) -> str:
    return msgspec.json.encode(texts).decode()


def _hops(key: GroupKey, text: str, alias: str) -> tuple[str, str]:
    """The joins that follow a key from the text of its first field, and the text at the end;
    they take the names of the other fields."""
    joins = ""
    for place in range(len(key.fields) - 1):
        hop = f"{alias}{place}"
        joins += f" LEFT JOIN field_values {_row_of(hop, text)}"
        text = f"{hop}.field_value"
    return joins, text


def _base(grouping: Grouping) -> Statement:
    """Each record once per group: `g0`…, `doc_id`, and how many rows it has in the group."""
    joins, hops = "", list[str]()
    values: list[str] = []
    for number, key in enumerate(grouping.keys):
        followed, leaf = _hops(key, f"v{number}.field_value", f"h{number}_")
        joins += followed
        hops += key.fields[1:]
        values.append(key.value_sql(leaf))
    source = _source(grouping)
    named = ", ".join(f"{value} AS g{number}" for number, value in enumerate(values))
    grouped = ", ".join(str(number + 1) for number in range(len(values)))
    sql = (
        f"SELECT {named}, v0.doc_id AS doc_id, count(*) AS row_count "
        f"{source.sql(joins)} GROUP BY {grouped}, v0.doc_id"
    )
    return sql, source.params(tuple(hops))
