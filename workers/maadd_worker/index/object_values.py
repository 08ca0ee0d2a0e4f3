"""The distinct values of extracted objects and their text index (spec 02 §4.3).

Searches look for values, not for objects: there are far fewer of them. A row counts the
objects of one primitive, subtype and value; it goes, with its entry in the text index, when
the last of them goes. What changes is noted for the counts of short texts, too.
"""

from __future__ import annotations

from collections.abc import Mapping

import apsw

from maadd_worker.index.short_texts import count_short_texts, note_changes

Kind = tuple[str, str, str]
"""Primitive, subtype and value."""


def add_values(connection: apsw.Connection, differences: Mapping[Kind, int]) -> None:
    """Change the counts of values by `differences`, in the open transaction."""
    changed = [(*kind, number) for kind, number in differences.items() if number]
    if not changed:
        return
    note_changes(connection, changed)
    newest: int = connection.execute(_NEWEST).get
    connection.executemany(_ADD, changed)
    if any(number < 0 for *_, number in changed):
        connection.execute(_REMOVE_UNUSED_TEXT, (newest,))
        connection.execute(_REMOVE_UNUSED)
    connection.execute(_ADD_TEXT, (newest,))


def count_values(connection: apsw.Connection) -> None:
    """Make the counts and the text index anew from all objects, in the open transaction."""
    connection.execute(_COUNT_ALL)
    count_short_texts(connection)


_NEWEST = "SELECT coalesce(max(id), 0) FROM object_values"
_ADD = """
INSERT INTO object_values (primitive, subtype, value, objects) VALUES (?, ?, ?, ?)
ON CONFLICT (primitive, subtype, value) DO UPDATE SET objects = objects + excluded.objects
"""
_REMOVE_UNUSED_TEXT = """
INSERT INTO object_text (object_text, rowid, value)
SELECT 'delete', s.id, s.value FROM object_values v JOIN searched_values s ON s.id = v.id
WHERE v.objects <= 0 AND v.id <= ?
"""
_REMOVE_UNUSED = "DELETE FROM object_values WHERE objects <= 0"
_ADD_TEXT = (
    "INSERT INTO object_text (rowid, value) SELECT id, value FROM searched_values WHERE id > ?"
)
_COUNT_ALL = """
DELETE FROM object_values;
INSERT INTO object_values (primitive, subtype, value, objects)
    SELECT primitive, subtype, value, count(*) FROM objects GROUP BY primitive, subtype, value;
INSERT INTO object_text (object_text) VALUES ('rebuild');
"""
