"""Extracted objects by kind and value (spec 02 §4.3).

Values are matched first, then the objects that have them: the total is a sum over the counts
of the matching values, or known for short texts.
"""

from __future__ import annotations

from typing import Any

import msgspec

from maadd_worker.index.counters import read_type_state
from maadd_worker.index.filters import contains_params, contains_test
from maadd_worker.index.reader import IndexReader
from maadd_worker.index.short_texts import (
    changes_since_fold,
    counted_objects,
    is_counted,
    last_fold,
)
from maadd_worker.index.text_lookup import look_up

_LISTED = 1000
"""So many matches at most are kept as a list."""

_PROBED = 300
"""So many matches are listed before it is known whether there are few."""

_SHORT_WALK = 20_000
"""A walk over so many objects in their own order is cheaper than sorting all that match."""

_MOST_READ = 2000
"""A text that more values may have is no rare one."""

Key = tuple[str, int]
"""The record's id and the object's number in it."""


class ObjectQuery(msgspec.Struct, frozen=True):
    """What is asked of objects; None asks nothing. `contains` folds ASCII letters only."""

    primitive: str
    subtype: str | None = None
    value: str | None = None
    contains: str | None = None
    doc_id: str | None = None


class ObjectPage(msgspec.Struct, frozen=True):
    """`total` counts all matches; `keys` are those of the page, by record and number."""

    total: int
    keys: tuple[Key, ...]


class _Matches(msgspec.Struct, frozen=True):
    """How many objects match, and when they are few all their keys in order."""

    total: int
    keys: tuple[Key, ...] | None


def object_page(reader: IndexReader, wanted: ObjectQuery, *, limit: int, offset: int) -> ObjectPage:
    """The objects that match from `offset`, at most `limit`; total and page of one snapshot."""
    with reader.snapshot():
        generation = read_type_state(reader.connection, None, "").generation
        known = reader.recall((wanted, limit, offset), generation)
        if isinstance(known, ObjectPage):
            return known
        matches = _matches(reader, wanted, generation)
        if offset >= matches.total:
            return ObjectPage(matches.total, ())
        if matches.keys is not None:
            keys = matches.keys[offset : offset + limit]
        else:
            keys = _page_of_many(reader, wanted, generation, matches.total, limit, offset)
        page = ObjectPage(matches.total, keys)
        reader.remember((wanted, limit, offset), generation, page, cost=1 + len(keys))
    return page


def few_values(
    reader: IndexReader, subtype: str, text: str, generation: int, most: int
) -> list[str] | None:
    """The distinct values of a subtype that contain a text; None when that are more than `most`,
    or when to find them would take long. `generation` is that of all types."""
    key = ("values", subtype, text, most)
    known = reader.recall(key, generation)
    if isinstance(known, list):
        return known
    fold = last_fold(reader.connection)
    if reader.recall(("many", *key), fold) is not None:
        return None
    lookup = look_up(reader, text, generation)
    if lookup is None or lookup.guess > _MOST_READ:
        return None
    sql = f"""
        SELECT DISTINCT v.value FROM ({lookup.sql}) l CROSS JOIN object_values v ON v.id = l.id
        WHERE v.subtype = ? AND {contains_test("v.value", text)} LIMIT ?
    """
    rows = reader.connection.execute(
        sql, (*lookup.params, subtype, *contains_params(text), most + 1)
    )
    values = [value for (value,) in rows]
    if len(values) > most:
        reader.remember(("many", *key), fold, True)
        return None
    reader.remember(key, generation, values, cost=1 + len(values))
    return values


def _matches(reader: IndexReader, wanted: ObjectQuery, generation: int) -> _Matches:
    known = reader.recall(wanted, generation)
    if isinstance(known, _Matches):
        return known
    found = (
        _of_values(reader, wanted, generation)
        if _is_about_values(wanted)
        else _of_objects(reader, wanted)
    )
    reader.remember(wanted, generation, found, cost=1 + len(found.keys or ()))
    return found


def _is_about_values(wanted: ObjectQuery) -> bool:
    return wanted.doc_id is None and not (wanted.value is None and wanted.contains is None)


def _of_values(reader: IndexReader, wanted: ObjectQuery, generation: int) -> _Matches:
    """The objects whose value matches, found through the distinct values."""
    total = _known_total(reader, wanted)
    if total == 0:
        return _Matches(0, ())
    if total is not None and total > _LISTED:
        return _Matches(total, None)
    source, params = _values(reader, wanted, generation)

    def first_keys(most: int) -> list[Key]:
        rows: list[Any] = reader.connection.execute(
            f"SELECT o.doc_id, o.id {source.format(joined=_ITS_OBJECTS)} LIMIT ?", (*params, most)
        ).fetchall()
        return rows

    if total is None:
        keys = first_keys(_PROBED + 1)
        if len(keys) <= _PROBED:
            return _Matches(len(keys), tuple(sorted(keys)))
        total = reader.connection.execute(
            f"SELECT coalesce(sum(v.objects), 0) {source.format(joined='')}", params
        ).get
        counted = total - _changed(reader, wanted)
        reader.remember(("folded", wanted), last_fold(reader.connection), counted)
    listed = tuple(sorted(first_keys(_LISTED))) if total <= _LISTED else None
    return _Matches(total, listed)


def _known_total(reader: IndexReader, wanted: ObjectQuery) -> int | None:
    """How many objects have a short text, or one that was summed up since the last fold."""
    text = wanted.contains
    if text is not None and wanted.value is None and is_counted(text):
        counted = counted_objects(reader.connection, text, wanted.primitive, wanted.subtype)
    else:
        known = reader.recall(("folded", wanted), last_fold(reader.connection))
        if not isinstance(known, int):
            return None
        counted = known
    return counted + _changed(reader, wanted)


def _changed(reader: IndexReader, wanted: ObjectQuery) -> int:
    return changes_since_fold(reader.connection, *_tests("c", wanted))


def _of_objects(reader: IndexReader, wanted: ObjectQuery) -> _Matches:
    """All objects of a kind, or those of one record that match."""
    if wanted.doc_id is not None:
        tests, params = _tests("o", wanted)
        sql = f"SELECT count(*) FROM objects o WHERE {tests}"
    else:
        tests, params = _tests("c", wanted)
        sql = f"SELECT coalesce(sum(objects), 0) FROM subtype_counts c WHERE {tests}"
    total: int = reader.connection.execute(sql, params).get
    if not 0 < total <= _LISTED:
        return _Matches(total, None)
    tests, params = _tests("o", wanted)
    rows: list[Any] = reader.connection.execute(
        f"SELECT doc_id, id FROM objects o WHERE {tests}", params
    ).fetchall()
    return _Matches(total, tuple(sorted(rows)))


def _page_of_many(
    reader: IndexReader,
    wanted: ObjectQuery,
    generation: int,
    total: int,
    limit: int,
    offset: int,
) -> tuple[Key, ...]:
    """One page of many matches: the objects in their order tested one by one, or all that
    match sorted."""
    steps = (offset + limit) * reader.counters().objects / total
    if wanted.doc_id is None and steps <= max(_SHORT_WALK, total):
        # A column behind "+" is no use to an index, which leaves the order of the table itself.
        tests, params = _tests("+o", wanted)
        source = f"FROM objects o WHERE {tests}"
    elif _is_about_values(wanted):
        source, params = _values(reader, wanted, generation)
        source = source.format(joined=_ITS_OBJECTS)
    else:
        tests, params = _tests("o", wanted)
        source = f"FROM objects o WHERE {tests}"
    rows: list[Any] = reader.connection.execute(
        f"SELECT o.doc_id, o.id {source} ORDER BY o.doc_id, o.id LIMIT ? OFFSET ?",
        (*params, limit, offset),
    ).fetchall()
    return tuple(rows)


def _values(reader: IndexReader, wanted: ObjectQuery, generation: int) -> tuple[str, list[Any]]:
    """FROM and WHERE that list the matching rows `v` of `object_values`, with `{joined}` where
    another table may be joined to them."""
    tests, params = _tests("v", wanted)
    if wanted.value is None and wanted.contains is not None:
        lookup = look_up(reader, wanted.contains, generation)
        if lookup is not None and (
            lookup.guess <= _MOST_READ or lookup.guess <= _values_of_kind(reader, wanted)
        ):
            # CROSS JOIN keeps the text index in front.
            source = f"FROM ({lookup.sql}) l CROSS JOIN object_values v ON v.id = l.id{{joined}} "
            return f"{source} WHERE {tests}", [*lookup.params, *params]
    if wanted.value is not None and wanted.subtype is None:
        # The index of values needs the subtypes, of which there are few.
        tests += " AND v.subtype IN (SELECT subtype FROM subtype_counts WHERE primitive = ?)"
        params.append(wanted.primitive)
    return f"FROM object_values v{{joined}} WHERE {tests}", params


def _values_of_kind(reader: IndexReader, wanted: ObjectQuery) -> int:
    """At most so many distinct values have the primitive and subtype."""
    kind = ObjectQuery(wanted.primitive, wanted.subtype)
    tests, params = _tests("c", kind)
    found: int = reader.connection.execute(_KIND_VALUES.format(tests=tests), params).get
    return found


def _tests(row: str, wanted: ObjectQuery) -> tuple[str, list[str]]:
    """Everything asked of the row with this alias."""
    tests, params = [f"{row}.primitive = ?"], [wanted.primitive]
    for column, value in (
        ("subtype", wanted.subtype),
        ("value", wanted.value),
        ("doc_id", wanted.doc_id),
    ):
        if value is not None:
            tests.append(f"{row}.{column} = ?")
            params.append(value)
    if wanted.contains is not None:
        tests.append(contains_test(f"{row}.value", wanted.contains))
        params += contains_params(wanted.contains)
    return " AND ".join(tests), params


_ITS_OBJECTS = (
    " CROSS JOIN objects o ON o.primitive = v.primitive AND o.subtype = v.subtype "
    "AND o.value = v.value"
)
_KIND_VALUES = """
SELECT min(coalesce(sum(objects), 0), (SELECT coalesce(max(id), 0) FROM object_values))
FROM subtype_counts c WHERE {tests}
"""
