"""How many objects have values with a text of one or two characters (spec 02 §4.3).

Nearly every value has a common short text, so that no index finds those that do faster than a scan
of all: they are counted. Pairs with a character that stands for a word or a syllable are not, of
which there are too many, each in few values.

A count is that of the last fold, in `short_texts`, and of what changed since, in `value_changes`.
A fold moves the changes into the counts once there are many, so that a write adds a few rows
instead of changing one count for each short text of its values.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import add
from typing import Any

import apsw

from maadd_worker.index.documents import read_meta
from maadd_worker.index.filters import ascii_lower

_END_OF_ALPHABETS = "\u1100"
"""The scripts before this character have letters for single sounds."""

_MOST_CHANGES = 1000
"""Changes that a search may have to look through."""

_FOLDED_KEY = "values_folded"
"""`engine_meta`: how many folds there were."""

_Counts = dict[tuple[str, str], dict[str, int]]
"""By primitive and subtype: the number of objects by short text."""


def is_counted(text: str) -> bool:
    """Whether the objects of this text are counted."""
    return len(text) == 1 or (len(text) == 2 and max(text) < _END_OF_ALPHABETS)


def note_changes(
    connection: apsw.Connection, differences: Iterable[tuple[str, str, str, int]]
) -> None:
    """Note how the numbers of objects of some values change, in the open transaction, and fold
    when that is due."""
    connection.executemany(_NOTE, differences)
    if connection.execute(_NEWEST_CHANGE).get > _MOST_CHANGES:
        fold_changes(connection)


def has_changes(connection: apsw.Connection) -> bool:
    """Whether anything changed since the last fold."""
    return bool(connection.execute(_NEWEST_CHANGE).get)


def fold_changes(connection: apsw.Connection) -> None:
    """Move the noted changes into the counts, in the open transaction; no text of a value stays
    in their table."""
    _add_counts(connection, _CHANGES)
    connection.execute("DELETE FROM short_texts WHERE objects = 0")


def count_short_texts(connection: apsw.Connection) -> None:
    """Count everything anew from `object_values`, in the open transaction."""
    connection.execute("DELETE FROM short_texts")
    _add_counts(connection, _VALUES)


def last_fold(connection: apsw.Connection) -> int:
    """The number of the last fold: the counts without the noted changes stay as they are until
    there is another one."""
    return int(read_meta(connection, _FOLDED_KEY) or 0)


def changes_since_fold(connection: apsw.Connection, tests: str, params: Iterable[str]) -> int:
    """By how much the changes since the last fold add to the number of objects whose values pass
    `tests`, which are about a row `c`."""
    found: int = connection.execute(_CHANGED.format(tests=tests), tuple(params)).get
    return found


def counted_objects(
    connection: apsw.Connection, text: str, primitive: str | None, subtype: str | None
) -> int:
    """Objects that had a short text in their values at the last fold; None asks nothing."""
    tests, params = ["text = ?"], [ascii_lower(text)]
    for column, wanted in (("primitive", primitive), ("subtype", subtype)):
        if wanted is not None:
            tests.append(f"{column} = ?")
            params.append(wanted)
    found: int = connection.execute(_COUNTED.format(tests=" AND ".join(tests)), params).get
    return found


def _add_counts(connection: apsw.Connection, source: str) -> None:
    counts = _count(connection.execute(source))
    connection.executemany(
        _ADD_COUNT, [(text, *kind, number) for text, kind, number in _rows(counts) if number]
    )
    connection.execute("DELETE FROM value_changes")
    connection.execute(_NOTE_FOLD, (_FOLDED_KEY,))


def _count(rows: Iterable[Any]) -> _Counts:
    counts: _Counts = {}
    for primitive, subtype, value, number in rows:
        kind = (primitive, subtype)
        of_kind = counts.get(kind)
        if of_kind is None:
            of_kind = counts[kind] = {}
        folded = ascii_lower(value)
        texts = {*folded, *map(add, folded, folded[1:])}
        if not folded.isascii():
            texts = set(filter(is_counted, texts))
        for text in texts:
            of_kind[text] = of_kind.get(text, 0) + number
    return counts


def _rows(counts: _Counts) -> list[tuple[str, tuple[str, str], int]]:
    rows = [
        (text, kind, number) for kind, texts in counts.items() for text, number in texts.items()
    ]
    # In the order of the table.
    rows.sort()
    return rows


_NOTE = "INSERT INTO value_changes (primitive, subtype, value, objects) VALUES (?, ?, ?, ?)"
_NEWEST_CHANGE = "SELECT coalesce(max(id), 0) FROM value_changes"
_CHANGES = "SELECT primitive, subtype, value, objects FROM value_changes"
_VALUES = "SELECT primitive, subtype, value, objects FROM object_values"
_CHANGED = "SELECT coalesce(sum(objects), 0) FROM value_changes c WHERE {tests}"
_COUNTED = "SELECT coalesce(sum(objects), 0) FROM short_texts WHERE {tests}"
_ADD_COUNT = """
INSERT INTO short_texts (text, primitive, subtype, objects) VALUES (?, ?, ?, ?)
ON CONFLICT (text, primitive, subtype) DO UPDATE SET objects = objects + excluded.objects
"""
_NOTE_FOLD = """
INSERT INTO engine_meta (key, value) VALUES (?, '1')
ON CONFLICT (key) DO UPDATE SET value = value + 1
"""
