"""Groups of many records, made of columns in memory (spec 02 §4.6).

Records that have the same in all group fields are counted, or their measured values collected,
in one pass; only then refs are followed, dates cut and lists taken apart, once for what many
records share. The statements of `aggregate_sql` say the same, for what columns cannot tell.
"""

from __future__ import annotations

import math
import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, cast

import msgspec

from maadd.protocol.arguments import AggregateArgs
from maadd.protocol.arguments.read import Having, Metric
from maadd_worker.extract.numbers import money_decimal
from maadd_worker.index.columns import Held, Key
from maadd_worker.read.aggregate_sql import CURRENCY_SIGNS, Grouping, leaves
from maadd_worker.read.context import ReadContext
from maadd_worker.read.group_keys import GroupKey

_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "neq": operator.ne,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
_MOST_DECIMALS = 30
"""SQLite rounds to no more."""

Row = tuple[Any, ...]
"""Texts of a group, number of its records, metric."""


class Groups(msgspec.Struct, frozen=True):
    """`rows` of one page of `count` groups; `members` have a value for every group key.
    `markers` are what stands around the numbers of a measured amount, each with a text."""

    rows: list[Row]
    count: int
    members: int
    markers: dict[str, str]


class _Group(msgspec.Struct):
    """What the records of one group have; `measures` are those of its records with the measured
    field: what they have in it, and its numbers."""

    records: int = 0
    rows: int = 0
    measures: list[tuple[Held, ...]] = msgspec.field(default_factory=list)


def group_by_columns(
    context: ReadContext, grouping: Grouping, args: AggregateArgs, limit: int, *, amount: bool
) -> Groups | None:
    """The groups of a call, at most `limit` of them; None when columns cannot tell.

    `amount` says that amounts are added or compared. REQUEST_TIMEOUT once the call is stopped.
    """
    metric = None if grouping.metric is None or grouping.metric.op == "count" else grouping.metric
    wanted = [(key.fields[0], False) for key in grouping.keys]
    if metric is not None:
        wanted += [(metric.field, False), (metric.field, True)]
    reader, scope = context.reader, grouping.scope
    fingerprint = context.plans.fingerprint(scope.doc_type)
    found = reader.selections.values(reader.connection, scope, fingerprint, wanted)
    if found is None:
        return None
    context.check_time()
    keyed, measured = found[: len(grouping.keys)], found[len(grouping.keys) :]
    parts = _counted(keyed) if metric is None else _collected(keyed, measured)
    groups = _brought_together(context, grouping.keys, parts)
    amounts = _distinct_texts(measured[0]) if amount else []
    decimals = {text: _decimals(text) for text in amounts}
    try:
        rows = [
            (*place, *_figures(grouping.metric, group, decimals))
            for place, group in groups.items()
            if metric is None or group.measures
        ]
    except OverflowError:
        # Beyond floats: SQLite has an answer for that.
        return None
    shown = _ordered(_kept(rows, grouping.metric, args.having), len(grouping.keys), args)
    members = sum(part.records for part in parts.values())
    return Groups(shown[:limit], len(shown), members, _markers(amounts))


def _counted(keyed: Sequence[Sequence[Held]]) -> dict[tuple[Held, ...], _Group]:
    """How many records have the same in all group fields, without those that lack one."""
    counted = Counter(zip(*keyed, strict=True))
    return {held: _Group(number) for held, number in counted.items() if None not in held}


def _collected(
    keyed: Sequence[Sequence[Held]], measured: Sequence[Sequence[Held]]
) -> dict[tuple[Held, ...], _Group]:
    """The same with what the records have in the measured field."""
    collected: defaultdict[tuple[Held, ...], list[tuple[Held, ...]]] = defaultdict(list)
    for held, measure in zip(zip(*keyed, strict=True), zip(*measured, strict=True), strict=True):
        collected[held].append(measure)
    return {
        held: _Group(len(measures), 0, [each for each in measures if each[0] is not None])
        for held, measures in collected.items()
        if None not in held
    }


def _brought_together(
    context: ReadContext, keys: Sequence[GroupKey], parts: Mapping[tuple[Held, ...], _Group]
) -> dict[tuple[str, ...], _Group]:
    """The groups by their texts: of each record once, its rows as often as it has them."""
    if not any(key.is_chain or key.period for key in keys) and not any(
        isinstance(each, tuple) for held in parts for each in held
    ):
        for part in parts.values():
            part.rows = part.records
        return cast("dict[tuple[str, ...], _Group]", parts)
    texts_of = [
        _texts(context, key, [held[number] for held in parts]) for number, key in enumerate(keys)
    ]
    groups: defaultdict[tuple[str, ...], _Group] = defaultdict(_Group)
    for held, part in parts.items():
        context.check_time()
        places = product(*(texts(each) for texts, each in zip(texts_of, held, strict=True)))
        for place, times in Counter(places).items():
            group = groups[place]
            group.records += part.records
            group.rows += part.records * times
            group.measures += part.measures
    return groups


def _texts(
    context: ReadContext, key: GroupKey, held: Iterable[Held]
) -> Callable[[Held], list[Any]]:
    """What tells the group texts of what a record has in the first field of a key."""
    if not key.is_chain and key.period is None:
        return _as_list
    given = _distinct_texts(held)
    found: dict[str, list[str]] = {text: [] for text in given}
    for place, leaf in context.reader.connection.execute(*leaves(key, given)):
        found[given[place]].append(leaf)
    return lambda each: [leaf for text in _as_list(each) for leaf in found[text]]


def _as_list(held: Held) -> list[Any]:
    return list(held) if isinstance(held, tuple) else [held]


def _flat(found: Iterable[Held]) -> list[Key]:
    """All values, those of lists one by one."""
    values: list[Key] = []
    for held in found:
        if isinstance(held, tuple):
            values += held
        elif held is not None:
            values.append(held)
    return values


def _distinct_texts(found: Iterable[Held]) -> list[str]:
    """The different texts in order."""
    return sorted({str(text) for text in _flat(set(found))})


def _figures(
    metric: Metric | None, group: _Group, decimals: Mapping[str, int]
) -> tuple[int, float | int | None]:
    """The records that a group counts, and its metric; `decimals` are those of all amounts, none
    for other numbers. OverflowError."""
    if metric is None or metric.op == "count":
        return group.records, group.rows
    return len(group.measures), _measured(metric, group, decimals)


def _measured(metric: Metric, group: _Group, decimals: Mapping[str, int]) -> float | int | None:
    if metric.op == "countDistinct":
        return len(_distinct_texts(text for text, _ in group.measures))
    numbers = [float(number) for number in _flat([number for _, number in group.measures])]
    if not numbers:
        return None
    if metric.op in ("min", "max"):
        return min(numbers) if metric.op == "min" else max(numbers)
    total = math.fsum(numbers)
    if decimals:
        # Amounts know the decimals they were written with, so their sums end where those do.
        texts = _distinct_texts(text for text, _ in group.measures)
        total = round(total, min(_MOST_DECIMALS, max(decimals[text] for text in texts)))
    return total if metric.op == "sum" else total / len(numbers)


def _decimals(text: str) -> int:
    return len((money_decimal(text) or "").partition(".")[2])


def _kept(rows: list[Row], metric: Metric | None, having: Having | None) -> list[Row]:
    if having is None:
        return rows
    passes, measure = _COMPARISONS[having.op], -2 if metric is None else -1
    return [row for row in rows if row[measure] is not None and passes(row[measure], having.value)]


def _ordered(rows: list[Row], keys: int, args: AggregateArgs) -> list[Row]:
    """By what the call orders by, groups without a metric last; then by texts."""
    by_text = sorted(
        rows, key=lambda row: row[:keys], reverse=args.order_by == "value" and args.order == "desc"
    )
    if args.order_by == "value":
        return by_text
    counts = args.order_by == "count" or (args.order_by is None and args.metric is None)
    measure, sign = -2 if counts else -1, 1 if args.order == "asc" else -1
    return sorted(by_text, key=lambda row: (row[measure] is None, sign * (row[measure] or 0)))


def _markers(amounts: Sequence[str]) -> dict[str, str]:
    """The different texts around the numbers of amounts, each with the first of its texts."""
    # As SQLite does it, letters of ASCII only.
    return {
        text.strip(CURRENCY_SIGNS).encode().upper().decode(): text for text in reversed(amounts)
    }
