"""`maad_aggregate`: records counted and measured by group (spec 02 §4.6, §9)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from maadd.protocol.arguments import AggregateArgs
from maadd.protocol.errors import MaadError
from maadd_worker.extract.numbers import field_number, normalize_amount
from maadd_worker.index.pages import count_matches, list_matches
from maadd_worker.index.scope import Scope, build_scope
from maadd_worker.outcome import Advice, Outcome
from maadd_worker.read.aggregate_columns import Groups, group_by_columns
from maadd_worker.read.aggregate_sql import Grouping, currencies, groups_page, members
from maadd_worker.read.context import ReadContext
from maadd_worker.read.group_keys import UNRESOLVED, GroupKey, not_indexed, parse_group_key
from maadd_worker.read.limits import clamp, index_advice, scope_advice, type_advice
from maadd_worker.schema.model import Model

_LIMIT_CAP = 2000
_ADDITIVE = ("sum", "count")
_NUMERIC = ("sum", "avg", "min", "max")
_EXACT_INTEGERS = 2**53

_FEW = 300
"""The rows of so many records are looked up one by one."""


class _Result(msgspec.Struct, frozen=True):
    """What one state of the index gives; `groups` are rows of texts, count and metric."""

    model: Model
    groups: list[tuple[Any, ...]]
    group_count: int
    missing: int
    currencies: list[str]


def aggregate(context: ReadContext, args: AggregateArgs) -> Outcome:
    """Groups of records; FILTER_*, SCHEMA_REF_CHAIN_INVALID."""
    model, metric = context.model, args.metric
    scope = build_scope(args.doc_type, args.filters, model)
    texts = [args.group_by] if isinstance(args.group_by, str) else list(args.group_by)
    keys = [parse_group_key(text, args.doc_type, model) for text in texts]
    limit = clamp(args.limit, _LIMIT_CAP)
    result = _result(context, args, scope, keys, limit.applied)
    _note_unresolved(context, keys, result)
    groups = [_group_view(row, len(keys), args) for row in result.groups]
    data: dict[str, Any] = {
        "groups": groups,
        "total": sum(group["count"] for group in groups),
    }
    if metric is not None and metric.op in _ADDITIVE:
        data["totalMetric"] = _total([group["metric"] for group in groups])
    data |= {"groupCount": result.group_count, "missing": result.missing}
    meta = limit.report(data)
    warnings = [*type_advice(model, args.doc_type), *scope_advice(scope)]
    for key in keys:
        warnings += not_indexed(key, args.doc_type, model)
    if metric is not None and metric.op != "count":
        warnings += index_advice(model, args.doc_type, [metric.field], ", so it measures nothing")
    if len(result.currencies) > 1 and metric is not None:
        warnings.append(_mixed_currency(metric.field, result.currencies))
    if result.group_count > len(groups):
        data["truncated"] = True
        warnings.append(_truncated(len(groups), result.group_count))
    return Outcome(data, tuple(warnings), meta, len(groups))


def _result(
    context: ReadContext,
    args: AggregateArgs,
    scope: Scope,
    keys: list[GroupKey],
    limit: int,
) -> _Result:
    """The groups, remembered until any record changes."""
    generation = context.generation()
    memo_key = ("aggregate", limit, msgspec.json.encode(args))
    known = context.reader.recall(memo_key, generation)
    if isinstance(known, _Result) and known.model is context.model:
        return known
    found, in_scope = _groups(context, args, Grouping(scope, tuple(keys), args.metric), limit)
    result = _Result(
        context.model,
        found.rows,
        found.count,
        in_scope - found.members,
        _currencies(found.markers),
    )
    context.reader.remember(memo_key, generation, result, cost=len(found.rows) + 1)
    return result


def _note_unresolved(context: ReadContext, keys: list[GroupKey], result: _Result) -> None:
    """Log how many groups, of how many records, a chain of refs did not lead to a value."""
    chains = [place for place, key in enumerate(keys) if key.is_chain]
    counts = [
        row[len(keys)] for row in result.groups if any(row[place] == UNRESOLVED for place in chains)
    ]
    if counts:
        context.note("aggregate_unresolved", groups=len(counts), records=sum(counts))


def _groups(
    context: ReadContext, args: AggregateArgs, grouping: Grouping, limit: int
) -> tuple[Groups, int]:
    """The groups, and how many records are in the scope."""
    scope, metric = grouping.scope, args.metric
    fingerprint = context.plans.fingerprint(scope.doc_type)
    in_scope = count_matches(context.reader, scope, fingerprint)
    amount = (
        metric is not None
        and metric.op in _NUMERIC
        and _is_amount(context.model, metric.field, scope.doc_type)
    )
    found = None
    if in_scope > _FEW:
        found = group_by_columns(context, grouping, args, limit, amount=amount)
    elif scope.conditions:
        listed = list_matches(context.reader, scope, fingerprint, _FEW)
        grouping = msgspec.structs.replace(
            grouping, doc_ids=None if listed is None else tuple(listed)
        )
    if found is None:
        found = _groups_of_rows(context, args, grouping, limit, amount=amount)
    return found, in_scope


def _groups_of_rows(
    context: ReadContext, args: AggregateArgs, grouping: Grouping, limit: int, *, amount: bool
) -> Groups:
    """The groups by statements over the rows of the index."""
    execute = context.reader.connection.execute
    sql, params = groups_page(grouping, args.having, args.order_by, args.order)
    rows: list[Any] = execute(sql, (*params, limit)).fetchall()
    members_of_groups: int = execute(*members(grouping)).get
    markers: dict[str, str] = {}
    if amount and args.metric is not None:
        markers = dict(execute(*currencies(grouping, args.metric.field)))
    return Groups(
        [row[:-1] for row in rows], rows[0][-1] if rows else 0, members_of_groups, markers
    )


def _group_view(row: tuple[Any, ...], keys: int, args: AggregateArgs) -> dict[str, Any]:
    values, count, metric = list(row[:keys]), row[keys], row[keys + 1]
    group: dict[str, Any]
    if isinstance(args.group_by, str):
        group = {"value": values[0], "count": count}
    else:
        group = {"value": msgspec.json.encode(values).decode(), "values": values, "count": count}
    if args.metric is not None:
        group["metric"] = _tidy(metric)
    return group


def _total(metrics: list[float | int | None]) -> float | int:
    """The sum, exact in the decimals that the parts are written with."""
    parts = [metric for metric in metrics if metric is not None]
    decimals = max((_decimals(part) for part in parts), default=0)
    total = _tidy(round(math.fsum(parts), decimals))
    return 0 if total is None else total


def _decimals(number: float | int) -> int:
    text = repr(number)
    return 17 if "e" in text else len(text.partition(".")[2])


def _tidy(number: float | int | None) -> float | int | None:
    """Whole numbers without a decimal point."""
    if isinstance(number, float) and number.is_integer() and abs(number) < _EXACT_INTEGERS:
        return int(number)
    return number


def _currencies(markers: Mapping[str, str]) -> list[str]:
    """The currencies among what stands around the numbers of amounts."""
    return sorted({_currency(marker, sample) for marker, sample in markers.items()} - {""})


def _currency(marker: str, sample: str) -> str:
    """The currency of an amount, empty without one; `marker` is what stands around its number."""
    if field_number("amount", sample) is None:
        return ""
    normalized = normalize_amount(sample)
    if normalized is None:
        return marker
    currency: str = msgspec.json.decode(normalized)["currency"]
    return currency


def _is_amount(model: Model, name: str, doc_type: str | None) -> bool:
    """Whether the field is an amount, in any type when none is given."""
    for each in model.registry.types if doc_type is None else (doc_type,):
        try:
            field = model.schema(each).fields.get(name)
        except MaadError:
            continue
        if field is not None and field.scalar_type == "amount":
            return True
    return False


def _mixed_currency(field: str, found: list[str]) -> Advice:
    return Advice(
        field,
        f'"{field}" holds amounts in {", ".join(found)}; their numbers are combined as they are. '
        "Filter by currency for a figure that means something",
        "MIXED_CURRENCY",
    )


def _truncated(shown: int, there: int) -> Advice:
    return Advice(
        "limit",
        f"{shown} of {there} groups are shown; total covers these only. Raise limit or filter",
        "AGGREGATE_GROUPS_TRUNCATED",
    )
