"""`maad_search`: extracted objects by kind and value (spec 02 §4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from maadd.protocol.arguments import SearchArgs
from maadd.protocol.errors import MaadError
from maadd_worker.extract.primitives import PRIMITIVES
from maadd_worker.outcome import Outcome
from maadd_worker.read.context import ReadContext
from maadd_worker.read.limits import clamp
from maadd_worker.read.objects import OBJECT_COLUMNS, object_views

_LIMIT_CAP = 500
_LISTED = 1000
"""So many matches at most are kept as a list."""

_SHORT_WALK = 20_000
"""A walk over so many objects in their own order is cheaper than sorting all that match."""

_ONE = f"SELECT {OBJECT_COLUMNS} FROM objects WHERE doc_id = ? AND id = ?"


class _Condition(msgspec.Struct, frozen=True):
    """The tests of a call beside its primitive, and all their values."""

    tests: str
    params: tuple[str, ...]

    @property
    def indexed(self) -> str:
        """The WHERE that lists objects by the index of their values."""
        return f"primitive = ?{self.tests}"

    @property
    def unindexed(self) -> str:
        """The WHERE that walks objects in their own order; the sign keeps the index out."""
        return f"+primitive = ?{self.tests}"


class _Matches(msgspec.Struct, frozen=True):
    """How many objects match, and when they are few their (doc_id, id) in order."""

    total: int
    keys: list[tuple[str, int]] | None


def search(context: ReadContext, args: SearchArgs) -> Outcome:
    """The objects of a primitive that match every given condition; INVALID_PRIMITIVE.

    In the order of records and, as ids count along the file, of lines.
    """
    if args.primitive not in PRIMITIVES:
        raise MaadError(
            "INVALID_PRIMITIVE",
            f'"{args.primitive}" is no primitive; use one of {", ".join(PRIMITIVES)}',
            {"provided": args.primitive, "valid": list(PRIMITIVES)},
        )
    condition = _condition(args)
    limit = clamp(args.limit, _LIMIT_CAP)
    matches = _matches(context, condition)
    if args.offset >= matches.total:
        keys: Sequence[tuple[str, int]] = ()
    elif matches.keys is not None:
        keys = matches.keys[args.offset : args.offset + limit.applied]
    else:
        keys = _page(context, condition, matches.total, limit.applied, args.offset)
    rows = object_views(context.reader.connection.executemany(_ONE, keys))
    data: dict[str, Any] = {"total": matches.total, "results": rows}
    return Outcome(data, meta=limit.report(data), rows=len(rows))


def _condition(args: SearchArgs) -> _Condition:
    """What the call asks for; empty texts count as not given."""
    tests, params = [], []
    if args.subtype:
        tests.append("subtype = ?")
        params.append(args.subtype)
    if args.value:
        tests.append("value = ?")
        params.append(args.value)
    if needle := args.query or args.contains:
        # lower() folds ASCII letters only, and instr() knows no wildcards.
        tests.append("instr(lower(value), lower(?)) > 0")
        params.append(needle)
    if args.doc_id is not None:
        tests.append("doc_id = ?")
        params.append(args.doc_id)
    return _Condition("".join(f" AND {test}" for test in tests), (args.primitive, *params))


def _matches(context: ReadContext, condition: _Condition) -> _Matches:
    """What matches, remembered until any record changes."""
    reader = context.reader
    generation = context.generation()
    known = reader.recall(condition, generation)
    if isinstance(known, _Matches):
        return known
    keys: list[Any] = reader.connection.execute(
        f"SELECT doc_id, id FROM objects WHERE {condition.indexed} LIMIT {_LISTED + 1}",
        condition.params,
    ).fetchall()
    if len(keys) <= _LISTED:
        found = _Matches(len(keys), sorted(keys))
    else:
        total: int = reader.connection.execute(
            f"SELECT count(*) FROM objects WHERE {condition.indexed}", condition.params
        ).get
        found = _Matches(total, None)
    reader.remember(condition, generation, found, cost=1 + len(found.keys or ()))
    return found


def _page(
    context: ReadContext, condition: _Condition, total: int, limit: int, offset: int
) -> list[Any]:
    """The keys of one page of many matches."""
    steps = (offset + limit) * context.reader.counters().objects / total
    where = condition.unindexed if steps <= _SHORT_WALK else condition.indexed
    return context.reader.connection.execute(
        f"SELECT doc_id, id FROM objects WHERE {where} ORDER BY doc_id, id LIMIT ? OFFSET ?",
        (*condition.params, limit, offset),
    ).fetchall()
