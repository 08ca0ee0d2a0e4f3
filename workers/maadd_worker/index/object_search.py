"""Extracted objects by kind and value (spec 02 §4.3).

Values are matched first, then the objects that have them: the total is a sum over the counts
of the matching values. Substrings of three characters and more come from the text index, whose
folding of letters is wider than that of a search, so that every value found is tested again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from maadd_worker.index.counters import read_type_state
from maadd_worker.index.filters import contains_test
from maadd_worker.index.reader import IndexReader

_LISTED = 1000
"""So many matches at most are kept as a list."""

_SHORT_WALK = 20_000
"""A walk over so many objects in their own order is cheaper than sorting all that match."""

_GRAM = 3
_MOST_GRAMS = 24
"""So many runs of three characters of a text are looked at to find rare ones."""

_SAMPLE = 64
"""Values with a run that are looked at to guess how many there are."""

_RARE_GRAMS = 3
"""So many rare runs together leave hardly a value that does not match."""

_APART = 2
"""Between the places of two of them in the text."""

_WORTH_READING = 4
"""A run that has so many times the values of the rarest one takes longer to read than the values
that it would rule out."""

_MOST_READ = 2000
"""A text whose rarest run has more values than this is no rare one."""

_CHANGES_PER_GUESS = 1000
"""So many changes of records leave a guess good enough."""

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


def few_values(
    reader: IndexReader, subtype: str, text: str, generation: int, most: int
) -> list[str] | None:
    """The distinct values of a subtype that contain a text; None when that are more than `most`,
    or when to find them would take long. `generation` is that of all types."""
    key = ("values", subtype, text, most)
    known = reader.recall(key, generation)
    if isinstance(known, list):
        return known
    grams, era = _grams(text), generation // _CHANGES_PER_GUESS
    if (
        not grams
        or reader.recall(("many", *key), era) is not None
        or min(_guess(reader, gram, era) for gram in grams) > _MOST_READ
    ):
        return None
    match = " AND ".join(_rarest(reader, grams, era))
    sql = f"""
        SELECT DISTINCT v.value FROM object_text CROSS JOIN object_values v
        ON v.id = object_text.rowid
        WHERE object_text MATCH ? AND v.subtype = ? AND {contains_test("v.value", text)} LIMIT ?
    """
    rows = reader.connection.execute(sql, (match, subtype, text, most + 1))
    values = [value for (value,) in rows]
    if len(values) > most:
        reader.remember(("many", *key), era, True)
        return None
    reader.remember(key, generation, values, cost=1 + len(values))
    return values


def _matches(reader: IndexReader, wanted: ObjectQuery, generation: int) -> _Matches:
    known = reader.recall(wanted, generation)
    if isinstance(known, _Matches):
        return known
    by_value = wanted.doc_id is None and not (wanted.value is None and wanted.contains is None)
    found = _of_values(reader, wanted, generation) if by_value else _of_objects(reader, wanted)
    reader.remember(wanted, generation, found, cost=1 + len(found.keys or ()))
    return found


def _of_values(reader: IndexReader, wanted: ObjectQuery, generation: int) -> _Matches:
    """The objects whose value matches, found through the distinct values."""
    source, params = _values(reader, wanted, generation)
    rows: list[Any] = reader.connection.execute(
        f"SELECT o.doc_id, o.id {source.format(joined=_ITS_OBJECTS)} LIMIT ?",
        (*params, _LISTED + 1),
    ).fetchall()
    if len(rows) <= _LISTED:
        return _Matches(len(rows), tuple(sorted(rows)))
    total = reader.connection.execute(
        f"SELECT coalesce(sum(v.objects), 0) {source.format(joined='')}", params
    ).get
    return _Matches(total, None)


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


def _walked(
    reader: IndexReader, wanted: ObjectQuery, total: int, limit: int, offset: int
) -> tuple[Key, ...]:
    """One page of many matches: the objects in their order tested one by one, or all that
    match sorted."""
    steps = (offset + limit) * reader.counters().objects / total
    walks = wanted.doc_id is None and steps <= max(_SHORT_WALK, total)
    # A column behind "+" is no use to an index, which leaves the order of the table itself.
    tests, params = _tests("+o" if walks else "o", wanted)
    rows: list[Any] = reader.connection.execute(
        f"SELECT doc_id, id FROM objects o WHERE {tests} ORDER BY doc_id, id LIMIT ? OFFSET ?",
        (*params, limit, offset),
    ).fetchall()
    return tuple(rows)


def _values(reader: IndexReader, wanted: ObjectQuery, generation: int) -> tuple[str, list[str]]:
    """FROM and WHERE that list the matching rows `v` of `object_values`, with `{joined}` where
    another table may be joined to them."""
    tests, params = _tests("v", wanted)
    grams = [] if wanted.contains is None else _grams(wanted.contains)
    if wanted.value is None and grams:
        match = " AND ".join(_rarest(reader, grams, generation // _CHANGES_PER_GUESS))
        # CROSS JOIN keeps the text index in front.
        source = (
            "FROM object_text CROSS JOIN object_values v ON v.id = object_text.rowid{joined} "
            f"WHERE object_text MATCH ? AND {tests}"
        )
        return source, [match, *params]
    if wanted.value is not None and wanted.subtype is None:
        # The index of values needs the subtypes, of which there are few.
        tests += " AND v.subtype IN (SELECT subtype FROM subtype_counts WHERE primitive = ?)"
        params.append(wanted.primitive)
    return f"FROM object_values v{{joined}} WHERE {tests}", params


def _tests(row: str, wanted: ObjectQuery) -> tuple[str, list[str]]:
    """Everything asked of the row with this alias."""
    asked = [("{row}.primitive = ?", wanted.primitive)]
    if wanted.subtype is not None:
        asked.append(("{row}.subtype = ?", wanted.subtype))
    if wanted.value is not None:
        asked.append(("{row}.value = ?", wanted.value))
    if wanted.contains is not None:
        test = contains_test("{row}.value", wanted.contains)
        asked.append((test, wanted.contains))
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


def _rarest(reader: IndexReader, grams: list[str], era: int) -> list[str]:
    """The runs that the fewest values have, by a guess: the text index reads every value of
    every run that it is asked for. Of two that share most of their characters one is enough:
    what has the one mostly has the other."""
    if len(grams) == 1:
        return grams
    guesses = sorted((_guess(reader, gram, era), place) for place, gram in enumerate(grams))
    most = _WORTH_READING * max(1.0, guesses[0][0])
    chosen: list[int] = []
    for guess, place in guesses:
        if guess > most or len(chosen) == _RARE_GRAMS:
            break
        if all(abs(place - other) >= _APART for other in chosen):
            chosen.append(place)
    return [grams[place] for place in chosen]


def _guess(reader: IndexReader, gram: str, era: int) -> float:
    """How many values have a run: as many as there would be if all lay like the first ones.
    Most texts share most of their runs, so that guesses are remembered for a while, an `era`."""
    key = ("gram", gram)
    known = reader.recall(key, era)
    if isinstance(known, float):
        return known
    found: Any = reader.connection.execute(_FIRST_VALUES, (gram, _SAMPLE)).fetchone()
    first, end, number, last = found
    guess = float(number)
    if number == _SAMPLE:
        guess *= (last - first + 1) / (end - first + 1)
    reader.remember(key, era, guess)
    return guess


_ITS_OBJECTS = (
    " CROSS JOIN objects o ON o.primitive = v.primitive AND o.subtype = v.subtype "
    "AND o.value = v.value"
)
_FIRST_VALUES = """
SELECT min(rowid), max(rowid), count(*), (SELECT max(id) FROM object_values)
FROM (SELECT rowid FROM object_text WHERE object_text MATCH ? LIMIT ?)
"""
