"""Read-back verification: what was submitted against what file and index hold (spec 03 §4.4).

A mismatch never turns a success into a failure; it tells the caller to look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from maadd.protocol.errors import MaadError
from maadd_worker.extract.extraction import indexed_items
from maadd_worker.markdown.body import current_body
from maadd_worker.markdown.frontmatter import SplitFile, split_file
from maadd_worker.markdown.text import js_text, js_trim
from maadd_worker.markdown.values import same_value
from maadd_worker.markdown.yaml_profile import load_frontmatter
from maadd_worker.write.context import WriteContext

_ALL_UP_TO = 20
_SAMPLE = 10

_INDEXED = "SELECT field_name, field_value FROM field_values WHERE doc_id = ? AND present = 1"


class Submitted(msgspec.Struct, frozen=True):
    """What a caller sent for one record; a body of None was not given."""

    doc_id: str
    doc_type: str
    fields: Mapping[str, Any]
    body: str | None = None
    append_body: str | None = None


def sample_indexes(number: int) -> list[int]:
    """Which of `number` successes are looked at: all up to 20, else 10 evenly spaced."""
    if number <= _ALL_UP_TO:
        return list(range(number))
    return [place * number // _SAMPLE for place in range(_SAMPLE)]


def verify(context: WriteContext, submitted: Sequence[Submitted]) -> dict[str, Any]:
    """The `verification` member of an answer about these successes.

    Of a record that was submitted more than once, the last one counts.
    """
    last = list({one.doc_id: one for one in submitted}.values())
    sample = [last[index] for index in sample_indexes(len(last))]
    mismatches = [mismatch for one in sample for mismatch in _compare(context, one)]
    wrong = {mismatch["docId"] for mismatch in mismatches}
    return {
        "sampledIds": [one.doc_id for one in sample],
        "sampled": len(sample),
        "passed": len(sample) - len(wrong),
        "mismatches": mismatches,
    }


def _compare(context: WriteContext, one: Submitted) -> list[dict[str, Any]]:
    found: list[tuple[str, Any, Any]] = []
    row = context.writer.find(one.doc_id)
    if row is None:
        return _view(one, [("_index", "indexed", "missing")])
    try:
        content = context.root.read(row.file_path)
        split = split_file(content.data, row.file_path)
        stored = load_frontmatter(split, row.file_path)
    except MaadError as failure:
        return _view(one, [("_readable", "readable", failure.code)])
    for name, value in one.fields.items():
        if not _equal(value, stored.get(name)):
            found.append((name, value, stored.get(name)))
    found += _body_mismatches(one, split)
    found += _index_mismatches(context, one)
    return _view(one, found)


def _body_mismatches(one: Submitted, split: SplitFile) -> list[tuple[str, Any, Any]]:
    actual = current_body(split)
    if one.body is not None:
        expected = _normal(one.body)
        if expected != actual:
            return [("_body", f"{len(expected)} chars", f"{len(actual)} chars")]
    elif one.append_body is not None:
        expected = _normal(one.append_body)
        if expected not in actual:
            return [("_appendBody", f"{len(expected)} chars", f"{len(actual)} chars")]
    return []


def _index_mismatches(context: WriteContext, one: Submitted) -> list[tuple[str, Any, Any]]:
    """Indexed fields whose values in the index are not those that the value gives."""
    indexed: dict[str, set[str]] = {}
    for name, text in context.writer.connection.execute(_INDEXED, (one.doc_id,)):
        indexed.setdefault(name, set()).add(text)
    fields = context.model.schema(one.doc_type).fields
    found = []
    for name, value in one.fields.items():
        if name not in fields or not fields[name].index:
            continue
        items = () if value is None else indexed_items(value)
        expected = {js_text(item) for item in items}
        actual = indexed.get(name, set())
        if expected != actual:
            found.append((f"_index.{name}", sorted(expected), sorted(actual)))
    return found


def _normal(text: str) -> str:
    return js_trim(text.replace("\r\n", "\n"))


def _equal(expected: Any, actual: Any) -> bool:
    """The comparison of §4.4: nested values as JSON, booleans strictly, else the text form.

    A number and the text of that number are equal; null is the same as missing.
    """
    if same_value(expected, actual):
        return True
    strict = (bool, list, tuple, Mapping, type(None))
    if isinstance(expected, strict) or isinstance(actual, strict):
        return False
    return js_text(expected) == js_text(actual)


def _view(one: Submitted, found: Sequence[tuple[str, Any, Any]]) -> list[dict[str, Any]]:
    return [
        {"docId": one.doc_id, "field": field, "expected": expected, "actual": actual}
        for field, expected, actual in found
    ]
