"""Extracted objects by kind and value (spec 02 §4.3).

Values are matched first, then the objects that have them: the total is a sum over the counts
of the matching values. Substrings of three characters and more come from the text index, whose
folding of letters is wider than that of a search, so that every value found is tested again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from maadd_worker.index.counters import read_type_state
from maadd_worker.index.reader import IndexReader

_LISTED = 1000
"""So many matches at most are kept as a list."""

_SHORT_WALK = 20_000
"""A walk over so many objects in their own order is cheaper than sorting all that match."""

_GRAM = 3
_MOST_GRAMS = 24
"""So many runs of three characters of a text are looked at to find rare ones."""

_RARE = (200, 4000)
"""Values with a run: fewer are worth stopping the comparison, if any run has so few."""

_RARE_GRAMS = 3
"""So many rare runs together leave hardly a value that does not match."""

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
            keys = _walked(reader, wanted, matches.total, limit, offset)
        page = ObjectPage(matches.total, keys)
        reader.remember((wanted, limit, offset), generation, page, cost=1 + len(keys))
    return page


def _matches(reader: IndexReader, wanted: ObjectQuery, generation: int) -> _Matches:
    known = reader.recall(wanted, generation)
    if isinstance(known, _Matches):
        return known
    total = _total(reader, wanted)
    keys = _all_keys(reader, wanted) if 0 < total <= _LISTED else None
    found = _Matches(total, keys)
    reader.remember(wanted, generation, found, cost=1 + len(keys or ()))
    return found


def _total(reader: IndexReader, wanted: ObjectQuery) -> int:
    if wanted.doc_id is not None:
        tests, params = _tests("o", wanted)
        sql = f"SELECT count(*) FROM objects o WHERE {tests}"
    elif wanted.value is None and wanted.contains is None:
        tests, params = _tests("c", wanted)
        sql = f"SELECT coalesce(sum(objects), 0) FROM subtype_counts c WHERE {tests}"
    else:
        source, params = _values(reader, wanted)
        sql = f"SELECT coalesce(sum(v.objects), 0) {source}"
    total: int = reader.connection.execute(sql, params).get
    return total


def _all_keys(reader: IndexReader, wanted: ObjectQuery) -> tuple[Key, ...]:
    if wanted.doc_id is not None or (wanted.value is None and wanted.contains is None):
        tests, params = _tests("o", wanted)
        sql = f"SELECT doc_id, id FROM objects o WHERE {tests}"
    else:
        source, params = _values(reader, wanted)
        sql = (
            f"SELECT o.doc_id, o.id FROM (SELECT v.primitive, v.subtype, v.value {source}) m "
            "CROSS JOIN objects o ON o.primitive = m.primitive AND o.subtype = m.subtype "
            "AND o.value = m.value"
        )
    rows: list[Any] = reader.connection.execute(sql, params).fetchall()
    return tuple(sorted(rows))


def _walked(
    reader: IndexReader, wanted: ObjectQuery, total: int, limit: int, offset: int
) -> tuple[Key, ...]:
    """One page of many matches: the objects in their order tested one by one, or all that
    match sorted."""
    steps = (offset + limit) * reader.counters().objects / total
    walks = steps <= max(_SHORT_WALK, total)
    tests, params = _tests("o", wanted)
    # NOT INDEXED leaves the order of the table itself.
    table = "objects o NOT INDEXED" if walks else "objects o"
    rows: list[Any] = reader.connection.execute(
        f"SELECT doc_id, id FROM {table} WHERE {tests} ORDER BY doc_id, id LIMIT ? OFFSET ?",
        (*params, limit, offset),
    ).fetchall()
    return tuple(rows)


def _values(reader: IndexReader, wanted: ObjectQuery) -> tuple[str, list[str]]:
    """FROM and WHERE that list the matching rows `v` of `object_values`."""
    tests, params = _tests("v", wanted)
    grams = [] if wanted.contains is None else _grams(wanted.contains)
    if wanted.value is None and grams:
        match = " AND ".join(_rarest(reader, grams))
        # CROSS JOIN keeps the text index in front.
        source = (
            "FROM object_text CROSS JOIN object_values v ON v.id = object_text.rowid "
            f"WHERE object_text MATCH ? AND {tests}"
        )
        return source, [match, *params]
    if wanted.value is not None and wanted.subtype is None:
        # The index of values needs the subtypes, of which there are few.
        tests += " AND v.subtype IN (SELECT subtype FROM subtype_counts WHERE primitive = ?)"
        params.append(wanted.primitive)
    return f"FROM object_values v WHERE {tests}", params


def _tests(row: str, wanted: ObjectQuery) -> tuple[str, list[str]]:
    """Everything asked of the row with this alias."""
    asked = [("{row}.primitive = ?", wanted.primitive)]
    if wanted.subtype is not None:
        asked.append(("{row}.subtype = ?", wanted.subtype))
    if wanted.value is not None:
        asked.append(("{row}.value = ?", wanted.value))
    if wanted.contains is not None:
        # lower() folds ASCII letters only, and instr() knows no wildcards.
        asked.append(("instr(lower({row}.value), lower(?)) > 0", wanted.contains))
    if wanted.doc_id is not None:
        asked.append(("{row}.doc_id = ?", wanted.doc_id))
    return " AND ".join(test for test, _ in asked).format(row=row), [text for _, text in asked]


def _grams(text: str) -> list[str]:
    """Queries for the runs of three characters of a text; none for a text that is shorter, or
    that the text index cannot look up."""
    if "\0" in text:
        return []
    grams = dict.fromkeys(text[at : at + _GRAM] for at in range(len(text) - _GRAM + 1))
    return ['"' + gram.replace('"', '""') + '"' for gram in list(grams)[:_MOST_GRAMS]]


def _rarest(reader: IndexReader, grams: list[str]) -> list[str]:
    """Those of some runs that few values have; all when each is in many.

    The text index reads every value of every run that it is asked for.
    """
    if len(grams) <= _RARE_GRAMS:
        return grams
    for most in _RARE:
        numbers = {gram: reader.connection.execute(_COUNT, (gram, most)).get for gram in grams}
        rare = sorted((gram for gram in grams if numbers[gram] < most), key=numbers.__getitem__)
        if rare:
            return rare[:_RARE_GRAMS]
    return grams


_COUNT = "SELECT count(*) FROM (SELECT 1 FROM object_text WHERE object_text MATCH ? LIMIT ?)"
