"""Tables as a source: CSV, and JSON Lines with one object a line."""

from __future__ import annotations

import csv
import hashlib
import io
import os
from collections.abc import Iterator
from typing import Any

import msgspec

from maadd.protocol.errors import MaadError
from maadd.protocol.strict_json import DuplicateMemberError, NotJsonError, parse_json
from maadd_worker.imports.source import Item, Misfit, Progress, Source, SourceKind
from maadd_worker.markdown.frontmatter import decode_text

CSV_SUFFIXES = (".csv", ".tsv")
JSONL_SUFFIXES = (".jsonl", ".ndjson")

_DELIMITERS = (",", ";", "\t", "|")
_SNIFFED_CHARACTERS = 64 * 1024
_CELL_CHARACTERS = 64 * 1024 * 1024


def read_table(path: str, progress: Progress) -> Source:
    """The rows of a file; FILE_READ_ERROR, and PARSE_ERROR when it is no UTF-8 or no table."""
    real = os.path.realpath(path)
    try:
        with open(real, "rb") as file:
            data = file.read()
    except OSError as failure:
        raise MaadError(
            "FILE_READ_ERROR", f"{path} cannot be read: {os.strerror(failure.errno or 0)}"
        ) from None
    name, suffix = os.path.splitext(os.path.basename(real))
    text = decode_text(data, os.path.basename(real)).removeprefix("\ufeff")
    kind: SourceKind = "csv" if suffix.lower() in CSV_SUFFIXES else "jsonl"
    rows = _csv_rows if kind == "csv" else _jsonl_rows
    items: list[Item] = []
    misfits: list[Misfit] = []
    for row in rows(text, os.path.basename(real)):
        if isinstance(row, Misfit):
            misfits.append(row)
        else:
            items.append(row)
        progress(len(items), 0)
    return Source(kind, real, name, tuple(items), tuple(misfits), _no_text)


def _no_text(item: Item) -> str:
    raise AssertionError(f"row {item.key} of a table has no text")


def _csv_rows(text: str, name: str) -> Iterator[Item | Misfit]:
    # A cell may be a whole article; the limit is one of the module, not of a reader.
    csv.field_size_limit(_CELL_CHARACTERS)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)
    header: list[str] | None = None
    number = 0
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            # Where a quote is never closed, the rest cannot be told apart.
            advice = "close the quote or double it, and import the rest again"
            yield Misfit(name, f"not readable as CSV from here on: {error}", advice, line)
            return
        if not any(cell.strip() for cell in cells):
            continue
        if header is None:
            header = _header(cells, name, line)
            continue
        number += 1
        if len(cells) > len(header):
            advice = "quote values that hold the delimiter"
            reason = f"row {number} has {len(cells)} cells, the header {len(header)}"
            yield Misfit(name, reason, advice, line)
            continue
        fields = {key: cell for key, cell in zip(header, cells, strict=False) if cell.strip()}
        yield _row(number, fields, line)


def _header(cells: list[str], name: str, line: int) -> list[str]:
    header = [cell.strip() for cell in cells]
    repeated = {cell for cell in header if header.count(cell) > 1}
    if "" in header or repeated:
        what = f"column {sorted(repeated)[0]!r} twice" if repeated - {""} else "a nameless column"
        raise MaadError(
            "PARSE_ERROR", f"{name}:{line}: the header has {what}; give each column its own name"
        )
    return header


def _delimiter(text: str) -> str:
    """The mark that divides the header into most cells."""
    first = next((line for line in text[:_SNIFFED_CHARACTERS].splitlines() if line.strip()), "")
    return max(_DELIMITERS, key=first.count)


def _jsonl_rows(text: str, name: str) -> Iterator[Item | Misfit]:
    number = 0
    for line, row in enumerate(text.split("\n"), start=1):
        if not row.strip():
            continue
        number += 1
        try:
            value = msgspec.json.decode(row)
            # That decoder takes the last of two members with one name, and drops the first.
            parse_json(row, refuse_duplicates=True)
        except DuplicateMemberError as error:
            reason = f"the key {error.name!r} stands twice in one object"
            yield Misfit(name, reason, "rename one of the two or remove it", line)
            continue
        except (msgspec.DecodeError, NotJsonError, RecursionError) as error:
            yield Misfit(name, f"not JSON: {error}", "write one JSON object a line", line)
            continue
        if not isinstance(value, dict):
            yield Misfit(name, "not a JSON object", "write one JSON object a line", line)
            continue
        yield _row(number, value, line)


def _row(number: int, fields: dict[str, Any], line: int) -> Item:
    data = msgspec.json.encode(fields)
    digest = hashlib.sha256(data).hexdigest()
    lines = dict.fromkeys(fields, line)
    return Item(str(number), digest, fields, lines, {}, line, size=len(data))
