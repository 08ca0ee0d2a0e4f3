"""Finding the values of objects that contain a text (spec 02 §4.3).

The text index knows the values with a run of three characters. Its folding of letters is wider
than that of a search, so that every value found is to be tested again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from maadd_worker.index.filters import ascii_lower
from maadd_worker.index.reader import IndexReader
from maadd_worker.index.short_texts import counted_objects, is_counted

_RUN = 3
_MOST_RUNS = 24
"""So many runs of three characters of a text are looked at to find rare ones."""

_SAMPLE = 64
"""Values with a run that are looked at to guess how many there are."""

_RARE_RUNS = 3
"""So many rare runs together leave hardly a value that does not match."""

_APART = 2
"""Between the places of two of them in the text."""

_WORTH_READING = 4
"""A run that has so many times the values of the rarest one takes longer to read than the values
that it would rule out."""

_CHANGES_PER_GUESS = 1000
"""So many changes of records leave a guess good enough."""

_REPLACED = "\0\ufffe\uffff"
"""Characters that the text index leaves out, or takes for another one."""

_LAST = "\U0010ffff" * _RUN


class Lookup(msgspec.Struct, frozen=True):
    """`sql` selects the `id` of every row of `object_values` that may contain the text, once
    each; `guess` is how many there are, or more."""

    sql: str
    params: tuple[str, ...]
    guess: float


def look_up(reader: IndexReader, text: str, generation: int) -> Lookup | None:
    """How the text index finds a text; None when it cannot. `generation` is that of all types."""
    if len(text) < _RUN:
        return _look_up_short(reader, text)
    runs = _runs(text)
    if not runs:
        return None
    era = generation // _CHANGES_PER_GUESS
    guesses = sorted((_guess(reader, run, era), place) for place, run in enumerate(runs))
    match = " AND ".join(runs[place] for place in _rarest(guesses))
    return Lookup(_WITH_RUNS, (match,), guesses[0][0])


def _look_up_short(reader: IndexReader, text: str) -> Lookup | None:
    folded = ascii_lower(text)
    if not folded or folded.casefold() != folded or any(each in _REPLACED for each in folded):
        return None
    counted = (folded,) if is_counted(folded) else tuple(folded)
    guess = min(counted_objects(reader.connection, each, None, None) for each in counted)
    return Lookup(_WITH_START, (folded, folded + _LAST), guess)


def _runs(text: str) -> list[str]:
    """Queries for the runs of three characters of a text; none for a text that the text index
    cannot look up."""
    if "\0" in text:
        return []
    runs = dict.fromkeys(text[at : at + _RUN] for at in range(len(text) - _RUN + 1))
    return ['"' + run.replace('"', '""') + '"' for run in list(runs)[:_MOST_RUNS]]


def _rarest(guesses: list[tuple[float, int]]) -> list[int]:
    """The places of the runs that the fewest values have: the text index reads every value of
    every run that it is asked for. Of two that share most of their characters one is enough:
    what has the one mostly has the other."""
    most = _WORTH_READING * max(1.0, guesses[0][0])
    chosen: list[int] = []
    for guess, place in guesses:
        if guess > most or len(chosen) == _RARE_RUNS:
            break
        if all(abs(place - other) >= _APART for other in chosen):
            chosen.append(place)
    return chosen


def _guess(reader: IndexReader, run: str, era: int) -> float:
    """How many values have a run: as many as there would be if all lay like the first ones.
    Most texts share most of their runs, so that guesses are remembered for a while, an `era`."""
    key = ("run", run)
    known = reader.recall(key, era)
    if isinstance(known, float):
        return known
    found: Any = reader.connection.execute(_FIRST_VALUES, (run, _SAMPLE)).fetchone()
    first, end, number, last = found
    guess = float(number)
    if number == _SAMPLE:
        guess *= (last - first + 1) / (end - first + 1)
    reader.remember(key, era, guess)
    return guess


_WITH_RUNS = "SELECT rowid AS id FROM object_text WHERE object_text MATCH ?"
# A value may have several runs that start with the text.
_WITH_START = "SELECT DISTINCT doc AS id FROM object_terms WHERE term BETWEEN ? AND ?"
_FIRST_VALUES = """
SELECT min(rowid), max(rowid), count(*), (SELECT max(id) FROM object_values)
FROM (SELECT rowid FROM object_text WHERE object_text MATCH ? LIMIT ?)
"""
