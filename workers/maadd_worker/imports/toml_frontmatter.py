"""TOML frontmatter, between lines of `+++`, as some site generators write it.

Its values become fields. The record is written in YAML, so comments of the block are not kept.
"""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from typing import Any

import msgspec

from maadd_worker.markdown.diagnostics import parse_error
from maadd_worker.markdown.frontmatter import BOM

_OPENING = re.compile(r"\+\+\+[ \t]*\r?\n")
_CLOSING = re.compile(r"^\+\+\+[ \t]*\r?(?:\n|\Z)", re.MULTILINE)
_KEY = re.compile(r"[ \t]*\[{0,2}[ \t]*([\"']?)([A-Za-z0-9_-]+)\1[ \t]*[=.\]]")
_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_BLOCK_LINE = 2


class TomlFile(msgspec.Struct, frozen=True):
    """A text in its parts. `raw` has the values that hold numbers with a fraction as they were
    written; `key_lines` are lines of the file."""

    values: dict[str, Any]
    raw: dict[str, Any]
    key_lines: dict[str, int]
    body: str
    body_start_line: int


def read_toml(text: str, file: str) -> TomlFile | None:
    """The parts of a text that begins with a line of `+++`, else None.

    Raises PARSE_ERROR with its place for a block without an end, and for one that is no TOML.
    """
    block, body = _split(text, file)
    if block is None:
        return None
    try:
        values = tomllib.loads(block)
        raw = tomllib.loads(block, parse_float=str)
    except tomllib.TOMLDecodeError as error:
        found = _PLACE.search(str(error))
        at = (int(found[1]), int(found[2])) if found and found[1] else (block.count("\n"), 1)
        reason = f"not readable as TOML: {_PLACE.sub('', str(error))}; correct it"
        raise parse_error(reason, file, at[0] + _BLOCK_LINE - 1, at[1]) from None
    return TomlFile(
        {key: _plain(value) for key, value in values.items()},
        {key: raw[key] for key, value in values.items() if raw[key] != value},
        _key_lines(block, values),
        body,
        block.count("\n") + _BLOCK_LINE + 1,
    )


def with_yaml_fences(text: str, file: str) -> str:
    """The text with an empty YAML block in place of its TOML; other texts as they are."""
    block, body = _split(text, file)
    if block is None:
        return text
    bom = BOM if text.startswith(BOM) else ""
    newline = "\r\n" if text.partition("\n")[0].endswith("\r") else "\n"
    return f"{bom}---{newline}---{newline}{body}"


def _split(text: str, file: str) -> tuple[str | None, str]:
    text = text.removeprefix(BOM)
    opening = _OPENING.match(text)
    if opening is None:
        return None, text
    closing = _CLOSING.search(text, opening.end())
    if closing is None:
        raise parse_error(
            "TOML frontmatter not closed; add a line with only +++ after the last field", file, 1, 1
        )
    return text[opening.end() : closing.start()], text[closing.end() :]


def _plain(value: Any) -> Any:
    """Dates and times as they are written in YAML."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return value


def _key_lines(block: str, values: dict[str, Any]) -> dict[str, int]:
    lines: dict[str, int] = {}
    for number, line in enumerate(block.split("\n"), start=_BLOCK_LINE):
        found = _KEY.match(line)
        if found is not None and found[2] in values:
            lines.setdefault(found[2], number)
    return lines
