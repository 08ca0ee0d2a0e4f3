"""Filters on substrings, narrowed to the texts that hold them (spec 02 §2.3).

Every value of an indexed field is an extracted object too, under the name of its field, so the
text index of object values finds the distinct texts with a rare substring. A filter that knows
its texts is served by index like any other choice of values; one on a substring that many
texts hold stays a scan, which is the shorter way then.
"""

from __future__ import annotations

from maadd_worker.index.counters import read_type_state
from maadd_worker.index.object_search import few_values
from maadd_worker.index.reader import IndexReader
from maadd_worker.index.scope import Condition, Scope, scope_of
from maadd_worker.index.writer import LOADING_KEY

_MANY_RECORDS = 10_000
"""The texts of fewer records are scanned before the text index has been asked."""

_FEW_TEXTS = 300


def with_known_texts(reader: IndexReader, scope: Scope, documents: int) -> Scope:
    """A scope of the same records in the reader's snapshot, and in no other; `documents` are the
    live records of its type."""
    if documents < _MANY_RECORDS or not any(map(_is_narrowed, scope.conditions)):
        return scope
    if reader.meta_get(LOADING_KEY) is not None:
        # Values are counted at the end of a load.
        return scope
    generation = read_type_state(reader.connection, None, "").generation
    narrowed = tuple(_narrowed(reader, each, generation) for each in scope.conditions)
    return scope_of(scope.doc_type, narrowed, scope.warnings)


def _is_narrowed(condition: Condition) -> bool:
    return not condition.behind and any(part.op == "contains" for part in condition.parts)


def _narrowed(reader: IndexReader, condition: Condition, generation: int) -> Condition:
    if not _is_narrowed(condition):
        return condition
    wanted = [part.bound for part in condition.parts if part.op == "contains"]
    found = (few_values(reader, condition.field, text, generation, _FEW_TEXTS) for text in wanted)
    known = [set(texts) for texts in found if texts is not None]
    if len(known) < len(wanted):
        return condition
    return condition.narrowed_to(sorted(set.intersection(*known)))
