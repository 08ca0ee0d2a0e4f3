"""YAML text to parser events, with the positions and errors of the file (spec 01 §4.2).

libyaml scans; PyYAML's own scanner takes over only for the surrogate escapes that libyaml
refuses. U+0085, U+2028, U+2029 and U+FEFF, which these scanners take for line breaks or
skip, are exchanged one for one against private-use characters that do not occur in the
text, so that positions do not move, and changed back in every scalar.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar

from yaml import MarkedYAMLError, YAMLError
from yaml._yaml import CParser
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.scanner import Scanner

from maadd.protocol.errors import MaadError
from maadd_worker.markdown.diagnostics import parse_error, profile_violation

MAX_BLOCK_BYTES = 256 * 1024

Event = Any
"""One of `yaml.events`; untyped, because the stubs leave their members out."""
Mark = Any
"""A `yaml` mark: 0-based `line` and `column`, `index` in code points."""

_Result = TypeVar("_Result")


class Place(NamedTuple):
    """1-based, in the file."""

    line: int
    col: int


_BRIDGED = re.compile("[\u0085\u2028\u2029\ufeff]")
_BRIDGED_CODES = (0x85, 0x2028, 0x2029, 0xFEFF)
_PRIVATE_USE = range(0xF0000, 0xFFFFE)
_UNPRINTABLE = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_LONE_CR = re.compile(r"\r(?!\n)")
_SURROGATE_REFUSAL = "found invalid Unicode character escape code"


class _PythonParser(Reader, Scanner, Parser):
    """PyYAML's own reader, scanner and parser, composed as its loaders compose them."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)


@dataclass(frozen=True, slots=True)
class EventSource:
    """The events of one YAML text and what is needed to speak about places in it.

    `next_event` gives None after the end of the stream. `text` is what was scanned: indexes
    of marks are code points of it. `restore` brings bridged characters back, None when there
    are none. Lines of `file` count from `first_line`.
    """

    next_event: Callable[[], Event]
    text: str
    restore: dict[int, int] | None
    surrogates: Literal["impossible", "refuse", "keep"]
    has_lone_cr: bool
    file: str
    first_line: int

    @property
    def verbatim(self) -> bool:
        """Whether the text of every scalar event is the value as it stands."""
        return self.restore is None and self.surrogates == "impossible"

    def scalar_text(self, event: Event) -> str:
        """The text of a scalar as the file means it; PARSE_ERROR for a lone surrogate."""
        value: str = event.value
        if self.restore is not None:
            value = value.translate(self.restore)
        if self.surrogates != "impossible" and _SURROGATE.search(value):
            value = value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
            if self.surrogates == "refuse" and _SURROGATE.search(value):
                raise self.parse_error(
                    "lone surrogate escape; write the character itself", event.start_mark
                )
        return value

    def line(self, mark: Mark) -> int:
        """1-based file line of a mark; as everywhere, only LF ends a line."""
        if self.has_lone_cr:
            return self.first_line + self.text.count("\n", 0, mark.index)
        line: int = self.first_line + mark.line
        return line

    def place(self, mark: Mark) -> Place:
        """Line and column of a mark in the file."""
        return Place(self.line(mark), self._column(mark.index))

    def parse_error(self, message: str, mark: Mark) -> MaadError:
        return parse_error(message, self.file, *self.place(mark))

    def profile_violation(self, message: str, mark: Mark) -> MaadError:
        return profile_violation(message, self.file, *self.place(mark))

    def scan_error(self, error: YAMLError) -> MaadError:
        """The PARSE_ERROR for what a scanner refused, with advice where there is some."""
        if not isinstance(error, MarkedYAMLError) or error.problem_mark is None:
            return self._unprintable(error)
        mark = error.problem_mark
        if "maximum nesting depth" in (error.problem or ""):
            return self.profile_violation("far too many levels of nesting", mark)
        if mark.index >= len(self.text) and error.context_mark is not None:
            mark = error.context_mark
        return self.parse_error(_explain(error, self.text, mark.index), mark)

    def _unprintable(self, error: YAMLError) -> MaadError:
        """What a reader refused; it names no line, so the character is looked for."""
        found = _UNPRINTABLE.search(self.text)
        if found is None:
            return parse_error(str(error), self.file, self.first_line, 1)
        at = found.start()
        return parse_error(
            f"unprintable character U+{ord(self.text[at]):04X}; remove it, or write it as an "
            "escape inside double quotes",
            self.file,
            self.first_line + self.text.count("\n", 0, at),
            self._column(at),
        )

    def _column(self, index: int) -> int:
        return index - self.text.rfind("\n", 0, index)


def read_events(
    text: str,
    file: str,
    first_line: int,
    build: Callable[[EventSource], _Result],
    *,
    lone_surrogates: Literal["refuse", "keep"] = "refuse",
) -> _Result:
    """`build` applied to the events of `text`; what the scanner refuses is a PARSE_ERROR.

    `build` may run a second time from the start: a text that libyaml refuses for a surrogate
    escape (`"\\uD83D\\uDE00"`) is read again with PyYAML's scanner. A text over 256 KiB is a
    YAML_PROFILE_VIOLATION and is not scanned at all.
    """
    if _is_oversized(text):
        raise profile_violation(
            f"YAML larger than {MAX_BLOCK_BYTES // 1024} KiB; move long text into the body",
            file,
            first_line,
            1,
        )
    scanned, restore = _bridge(text)
    has_lone_cr = "\r" in scanned and _LONE_CR.search(scanned) is not None
    source = EventSource(
        _libyaml_events(scanned), scanned, restore, "impossible", has_lone_cr, file, first_line
    )
    try:
        return build(source)
    except YAMLError as error:
        if getattr(error, "problem", None) != _SURROGATE_REFUSAL:
            raise source.scan_error(error) from None
    try:
        events = _PythonParser(scanned).get_event
        return build(replace(source, next_event=events, surrogates=lone_surrogates))
    except YAMLError as error:
        raise source.scan_error(error) from None


def _libyaml_events(text: str) -> Callable[[], Event]:
    if text.isascii():
        return CParser(text).get_event
    # As bytes, so that a lone surrogate in the text is refused by the reader like any other
    # unprintable character.
    return CParser(text.encode("utf-8", "surrogatepass")).get_event


def _is_oversized(text: str) -> bool:
    if len(text) > MAX_BLOCK_BYTES:
        return True
    if len(text) * 4 <= MAX_BLOCK_BYTES or text.isascii():
        return False
    return len(text.encode("utf-8", "surrogatepass")) > MAX_BLOCK_BYTES


def _bridge(text: str) -> tuple[str, dict[int, int] | None]:
    """`text` with the misread characters exchanged, and the translation that undoes it."""
    if text.isascii() or not _BRIDGED.search(text):
        return text, None
    lowered = text.lower()
    free = (
        code
        for code in _PRIVATE_USE
        # Neither the character itself nor an escape that would produce it.
        if chr(code) not in text and f"{code:08x}" not in lowered
    )
    forth = dict(zip(_BRIDGED_CODES, free, strict=False))
    return text.translate(forth), {there: here for here, there in forth.items()}


def _explain(error: MarkedYAMLError, text: str, index: int) -> str:
    """The scanner's complaint, with what to do about the forms people write most."""
    problem = error.problem or "not valid YAML"
    character = text[index : index + 1]
    if "found character" in problem and "cannot start any token" in problem:
        if character == "\t":
            before = text[text.rfind("\n", 0, index) + 1 : index]
            if before.lstrip(" ").startswith("-"):
                return "a tab follows the list dash; put a space there"
            return "a tab is used as indentation; use spaces"
        return f"a value cannot start with {character!r}; put it in quotes"
    if "mapping values are not allowed" in problem:
        return "a value that contains ': ' must be in quotes"
    if "did not find expected node content" in problem and character in ("?", ":"):
        return f"an item cannot start with {character!r}; quote this item"
    if "expected <document start>" in problem:
        return "a second YAML document starts here; keep one"
    if "end of stream" in problem and "quoted" in (error.context or ""):
        return "the quote opened here is never closed"
    if "did not find expected ','" in problem:
        return "the list or map around this place is not closed, or lacks a comma or quotes"
    if "expected alphabetic or numeric" in problem:
        return "'*' and '&' have a meaning in YAML; put the value in quotes"
    if "did not find expected key" in problem:
        return "no 'key: value' line; check its indentation and quotes"
    context = f"{error.context}: " if error.context else ""
    return f"{context}{problem}"
